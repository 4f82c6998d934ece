"""Finds the files that are meant: paths, directories, globs, and ``-`` for standard input."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, process
from ckptdoctor.checkpoint.natural import in_order
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.findings import Leftover
from ckptdoctor.inplace.names import hot_journal
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.wording import system_says

STANDARD_INPUT = "-"
STANDARD_INPUT_SHOWN = "standard input"

# In a directory, files with these suffixes are always examined: an empty or mistaken one is worth a finding
SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".safetensors", ".bin"})
# and so are pickles, which in protocols 0 and 1 begin like a text
PICKLES = frozenset({".pkl", ".pickle", ".joblib"})
# Other names (.tar, step numbers, blobs named by their hash) are examined when they begin like a checkpoint
_BEGINNINGS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NUMPY = b"\x93NUMPY"
_HEAD = 256
_CHUNK = 1 << 20
_LOOK = 0.5  # seconds
_ONE_FILE = "Hugging Face model folder"


def expand(patterns: Iterable[str]) -> list[str]:
    """Return the files to examine, each once, in the order asked for; directories give theirs in natural order.

    A path that exists is taken as it is, whatever its name. A directory is searched with everything below it,
    except hidden files and directories, and without following symbolic links to directories; a folder that is one
    checkpoint in several files stands for itself, and what is in it is not examined singly. Other patterns are
    globs (``**`` for any depth); one that matches nothing stays, so that opening it says why. So does a folder below
    that cannot be listed. Raises UsageError for a directory without checkpoints, UnreadableError for one that cannot be
    listed itself.
    """
    return list(dict.fromkeys(path for pattern in patterns for path in _expanded(pattern)))


def _expanded(pattern: str) -> Iterator[str]:
    if os.path.isdir(pattern):
        found = list(_below(pattern))
        if not found:
            suffixes = ", ".join(sorted(SUFFIXES))
            left = ", ".join([f"{each.path} ({each.nbytes:,} bytes)" for each in left_in([pattern])])
            more = f" Killed writes left {left}: the next write to the folder removes them." if left else ""
            raise UsageError(f"{pattern} holds no checkpoint: no file ends in {suffixes} or begins like one.{more}")
        yield from found
    elif _is_meant(pattern) or not any(char in pattern for char in "*?["):
        yield pattern
    else:
        yield from _matching(pattern)


def left_in(patterns: Iterable[str]) -> list[Leftover]:
    """Return what killed writes left in the folders among the patterns, and in those below that are searched."""
    searched = [pattern for pattern in patterns if os.path.isdir(pattern)]
    if not searched:  # files alone: what tells leftovers is not even imported
        return []
    from ckptdoctor.writing.unfinished import leftovers, size_of

    found: dict[str, Leftover] = {}
    for pattern in searched:
        for folder, folders, _ in os.walk(pattern):
            folders[:] = in_order(name for name in folders if not name.startswith("."))
            found |= {path: Leftover(path, size_of(path)) for path in leftovers(folder)}
    return list(found.values())


def require_openable(path: str) -> None:
    """Raise UnreadableError for what cannot be opened, which is all that is tried; addresses are not asked."""
    if is_address(path):
        return
    if os.path.isdir(path):
        _require_listing(path)
        return
    if not os.path.lexists(path) and formats.split_member(path) is None:
        from ckptdoctor.checkpoint.missing import missing

        raise missing(path)
    try:
        FileSource(path).close()
    except UnreadableError:
        if formats.split_member(path) is None:
            raise


def _require_listing(folder: str) -> None:
    """Raise UnreadableError for a folder that is not ours to read: nothing can be said of what it holds."""
    try:
        os.listdir(folder)
    except OSError as error:
        raise _unlisted(folder, error) from error


def _unlisted(folder: str, error: OSError) -> UnreadableError:
    return UnreadableError(f"{folder} cannot be listed: {system_says(error)}")


def _is_meant(pattern: str) -> bool:
    return pattern == STANDARD_INPUT or is_address(pattern) or os.path.exists(pattern)


def _matching(pattern: str) -> Iterator[str]:
    from glob import glob

    matches = in_order(glob(pattern, recursive=True))
    if not matches:
        yield pattern
    for path in matches:
        if not os.path.isdir(path):
            yield path


def _below(directory: str) -> Iterator[str]:
    unlisted: list[str] = []

    def note(error: OSError) -> None:
        if error.filename == directory:
            raise _unlisted(directory, error) from error
        unlisted.append(error.filename)

    for folder, folders, files in os.walk(directory, onerror=note):
        if _is_one(folder, files):
            folders.clear()
            yield folder
            continue
        folders[:] = in_order(name for name in folders if not name.startswith("."))
        for name in in_order(files):
            path = os.path.join(folder, name)
            meant = _has_suffix(name) or os.path.splitext(name)[1].lower() in PICKLES
            if name.startswith("."):
                continue
            if _is_to_be_opened(path) if meant else os.path.isfile(path) and begins_like_one(path):
                yield path
    yield from unlisted  # opening one says why


def _is_to_be_opened(path: str) -> bool:
    """Return whether it is a file, or may be one: what we cannot look at, and a link that leads nowhere, are said."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:  # removed since the folder was listed
        return os.path.islink(path)
    except OSError:
        return True


def _is_one(folder: str, files: Iterable[str]) -> bool:
    """Return whether a folder is one checkpoint.

    It is read as a whole, or of a known kind without files that can be examined, or all of it was being changed.

    A model's folder with its weights in one file is not: the file can be repaired, a folder cannot.
    """
    container = formats.examine_directory(folder)
    if container is None or container.format == _ONE_FILE:
        return False
    changing = os.path.exists(hot_journal(folder))
    return container.readable or changing or not any(map(_has_suffix, files))


def _has_suffix(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def begins_like_one(path: str) -> bool:
    """Return whether a local file begins as checkpoints do, whatever it is called."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:  # a file of some other kind that we may not read is nobody's checkpoint until asked for by name
        return False
    # the type of an array of objects, which is a pickle; others are not checkpoints until asked for by name
    objects = head.startswith(_NUMPY) and b"O" in head
    return head.startswith(_BEGINNINGS) or objects or _is_safetensors(head, path)


def _is_safetensors(head: bytes, path: str) -> bool:
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= os.path.getsize(path) - 8


@contextmanager
def spooled(stream: BinaryIO) -> Iterator[str]:
    """Keep the bytes of ``stream`` in a temporary file, for readers that need random access; remove it afterwards.

    Raises UnreadableError where there is no room for it.
    """
    from tempfile import gettempdir

    from ckptdoctor.writing.interrupts import cleaned_up

    with cleaned_up():
        # named before it is there: a signal may come in the very moment in which it is made
        path = os.path.join(gettempdir(), f"ckptdoctor-{os.urandom(8).hex()}")
        process.before_leaving(lambda: _removed(path))
        try:
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
                with os.fdopen(handle, "wb") as file:
                    while chunk := _next(stream):
                        file.write(chunk)
            except OSError as error:
                raise UnreadableError(
                    f"Standard input could not be kept in {os.path.dirname(path)}: {error.strerror}. Set "
                    "TMPDIR to a folder with more space, or save it as a file and name that."
                ) from error
            yield path
        except CkptDoctorError as error:  # nobody knows the copy
            error.message = error.message.replace(path, STANDARD_INPUT_SHOWN)
            error.args = (error.message,)
            raise
        finally:
            _removed(path)


def _next(stream: BinaryIO) -> bytes:
    """Return the next bytes, b"" at the end; a signal is acted upon within half a second.

    One that arrives between Python's last look for signals and the system's ``read`` does not end that ``read``: it
    would wait for bytes that may never come. So the waiting is done by ``select``, which gives up now and then.
    """
    from io import BufferedReader
    from select import select

    if isinstance(stream, BufferedReader) and os.name != "nt":  # there it knows sockets only
        while not select([stream], (), (), _LOOK)[0]:
            pass
        return stream.read1(_CHUNK)
    return stream.read(_CHUNK)


def _removed(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
