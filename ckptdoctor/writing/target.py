"""Decides where the output goes: which path is really meant, and whether it may be written at all."""

from __future__ import annotations

import os
import stat

from ckptdoctor.errors import WriteError
from ckptdoctor.noun import noun

# What the names of temporary files hold: one left behind by a crash is recognised, and may be deleted
MARK = "ckptdoctor-tmp"

# what proves or restores a checkpoint is never replaced by one (``sealing.manifest``, ``sealing.parity.table``)
_KEPT = {b'{"format":"ckptdoctor seal"': "seal", b'{"format":"ckptdoctor parity"': "parity file"}
_SLASHES = tuple(filter(None, (os.sep, os.altsep)))


@noun
class Target:
    """``path`` with symbolic links resolved. ``replaces``: a file is there that will be replaced."""

    path: str
    directory: str
    replaces: bool


def require_folder(output: str) -> str:
    """Return the folder in which ``output`` is to be. Raises WriteError where there is none."""
    directory = os.path.dirname(os.path.realpath(output))
    if not os.path.isdir(directory):
        raise WriteError(
            f"{output} cannot be written: there is no folder {directory}. Create it first, or give another."
        )
    return directory


def resolve(output: str, source: os.stat_result | None, *, force: bool = False, break_links: bool = False) -> Target:
    """Return where ``output`` leads. ``source`` is the status of the original; None: there is none.

    Raises WriteError for a missing directory, for anything but a regular file, for an existing file unless ``force``,
    for a seal or parity where there is an original, and for a file with several names (hard links) unless
    ``break_links``.
    """
    path = os.path.realpath(output)
    directory = require_folder(output)
    if output.endswith(_SLASHES) and not os.path.isdir(path):  # one that is there was told from a file before
        raise WriteError(f"{output} cannot be written: there is no such folder. Create it first, or name a file.")
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return Target(path, directory, replaces=False)
    except OSError as error:
        raise WriteError(f"{output} cannot be written: {error.strerror}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise WriteError(f"{output} is not a regular file; give another output path.")
    if not force:
        raise WriteError(_exists(output, source is not None and os.path.samestat(status, source)))
    kept = _kept(path) if source is not None else ""
    if kept:
        raise WriteError(f"{output} is a {kept} of ckptdoctor, so no checkpoint replaces it. Give another output path.")
    if status.st_nlink > 1 and not break_links:
        raise WriteError(
            f"{output} is one of {status.st_nlink} names (hard links) of a file, and the others would keep the old"
            " contents; delete this name first, or give another output path."
        )
    return Target(path, directory, replaces=True)


def _kept(path: str) -> str:
    """Return what a file is that a checkpoint must not replace, by its first bytes; "" for any other."""
    try:
        with open(path, "rb") as file:
            head = file.read(max(map(len, _KEPT)))
    except OSError:  # then nothing is known of it, and --force was given
        return ""
    return next((what for kind, what in _KEPT.items() if head.startswith(kind)), "")


def _exists(output: str, is_source: bool) -> str:
    if is_source:
        return f"{output} is the original itself; give another output path, or replace the original with --force."
    return f"{output} already exists; give another output path, or replace it with --force."


def temporary_name(target: Target) -> str:
    """Return a new hidden name next to the target, with its suffix, since some checks look at that."""
    stem, suffix = os.path.splitext(os.path.basename(target.path))
    room = 255 - len(os.fsencode(suffix)) - len(MARK) - 20  # file systems allow 255 bytes
    stem = os.fsdecode(os.fsencode(stem)[:room]) if len(os.fsencode(stem)) > room else stem
    return os.path.join(target.directory, f".{stem}.{os.urandom(6).hex()}.{MARK}{suffix}")
