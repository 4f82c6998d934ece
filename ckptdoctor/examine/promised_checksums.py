"""Finds the checksum that a local file should have: by its name, by lists and seals next to it, by a download."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import DamagedError, UnreadableError
from ckptdoctor.facts.siblings import Folder, blob_of, folder_of, read_small
from ckptdoctor.regex import regex
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.sealing.manifest import entries_of, read_seal, seals_of
from ckptdoctor.values.damage import Promise

_DIGITS = regex(r"[0-9a-f]{64}")
# torch.hub.HASH_REGEX, with the eight digits or more that people use
_IN_NAME = regex(r"-([0-9a-f]{8,64})\.[A-Za-z]\w*(?:\.tar)?$")
# where Git LFS keeps the files of a clone: .git/lfs/objects/OI/DO/IDO…, by the object's SHA-256
_LFS = regex(r"[\\/]lfs[\\/]objects[\\/]([0-9a-f]{2})[\\/]([0-9a-f]{2})$")
# what sha256sum and md5sum write: the sum, two blanks or a blank and a star, the name; a backslash before it where it
# is escaped
_LINE = regex(r"\\?([0-9a-fA-F]{64}|[0-9a-fA-F]{32})(?:[ \t]+\*?(.*))?")
# what BSD's sha256 and "sha256sum --tag" write
_TAGGED = regex(r"(?:SHA256|MD5) \((.*)\) = ([0-9a-fA-F]{64}|[0-9a-fA-F]{32})")
_LONE = ("sha256", "sha256sum", "md5", "md5sum")  # suffixes of lists of one file
_LISTS = (
    *("SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt", "sha256sum.txt", "checksums.txt", "CHECKSUMS", "checksums"),
    *("MD5SUMS", "MD5SUMS.txt", "md5sums.txt", "md5sum.txt"),
)
_MD5 = 32  # digits
_LONGEST_LIST = 100_000  # lines
_CHUNK = 4 << 20  # bytes that are read at a time


def promise_of(source: Source) -> Promise | None:
    """Return what the file is said to have.

    It is None where nothing is said, and for what is not the local file itself.
    """
    if source.file != source.path or source.identity is None:
        return None
    folder = folder_of(source.path)
    return next(_promises(source.path, folder), None) if folder.own is not None else None


def _promises(path: str, folder: Folder) -> Iterator[Promise]:
    blob = blob_of(path) or (folder.name if os.path.basename(folder.path) == "blobs" else "")
    if _DIGITS.fullmatch(blob):
        yield Promise(blob, "its name in the cache of huggingface_hub")
    stored = _LFS.search(os.path.abspath(folder.path))
    if stored and _DIGITS.fullmatch(folder.name) and folder.name.startswith(stored[1] + stored[2]):
        yield Promise(folder.name, "its name in the store of Git LFS")
    yield from _downloaded(folder)
    yield from _sealed(path)
    yield from sorted(_by_lists(folder), key=lambda promise: promise.algorithm == "md5")  # SHA-256 says more
    found = _IN_NAME.search(folder.name)
    if found and not found[1].isdecimal():  # digits alone are a date, or a number of steps
        yield Promise(found[1], "its name", sure=False)


def _sealed(path: str) -> Iterator[Promise]:
    """Yield the checksum in the seal of the file, or of a folder above. One that is not intact promises nothing."""
    path = os.path.normpath(path)
    for where, _, file in entries_of(path):
        name = os.path.basename(where) if os.path.dirname(where) == os.path.dirname(path) else where
        yield Promise(file.digest, f"its seal {name}", seal=where)


def bad_seals(source: Source) -> tuple[str, ...]:
    """Return why seals of a local file or folder, its own or of a folder above, say nothing: they cannot be read."""
    if source.file != source.path or is_address(source.path):
        return ()
    found = []
    for where in seals_of(os.path.normpath(source.path)):
        try:
            read_seal(where)
        except (DamagedError, UnreadableError) as error:
            found.append(error.message)
    return tuple(found)


def _by_lists(folder: Folder) -> Iterator[Promise]:
    stem = os.path.splitext(folder.name)[0]
    for suffix in _LONE:
        yield from _listed(folder, f"{folder.name}.{suffix}", lone=True)
    for name in (*[f"{stem}.{suffix}" for suffix in _LONE], *_LISTS):
        yield from _listed(folder, name, lone=False)


def _downloaded(folder: Folder) -> Iterator[Promise]:
    """Yield what huggingface_hub noted when it downloaded the file: commit, ETag (the SHA-256 of LFS), time."""
    path = os.path.join(folder.path, ".cache", "huggingface", "download", f"{folder.name}.metadata")
    lines = read_small(path).split("\n")
    if len(lines) >= 3 and _DIGITS.fullmatch(lines[1].strip()):
        yield Promise(lines[1].strip(), "the checksum that huggingface_hub recorded at download")


def _listed(folder: Folder, name: str, lone: bool) -> Iterator[Promise]:
    """Yield the sum of the file in a list of sums; in one of its own (``lone``) the name may be missing."""
    lines = [line for line in folder.read(name).splitlines()[:_LONGEST_LIST] if line.strip()]
    for line in lines:
        digits, named = _parsed(line.strip())
        if not digits or (len(digits) == _MD5 and "md5" not in name.lower()):  # other sums are as long
            continue
        if os.path.basename(named.replace("\\", "/")) == folder.name or (lone and len(lines) == 1 and not named):
            yield Promise(digits.lower(), name, algorithm="md5" if len(digits) == _MD5 else "sha256")


def _parsed(line: str) -> tuple[str, str]:
    tagged = _TAGGED.fullmatch(line)
    if tagged:
        return tagged[2], tagged[1]
    plain = _LINE.fullmatch(line)
    return (plain[1], (plain[2] or "").strip()) if plain else ("", "")


def digest_of(source: Source, algorithm: str, work: Work | None = None) -> str:
    """Return the checksum of all bytes, which ``work`` counts.

    Raises TruncatedError when the file shrinks meanwhile.
    """
    import hashlib

    work = work or Work()
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for offset in range(0, source.size, _CHUNK):
        chunk = source.read(offset, min(_CHUNK, source.size - offset))
        digest.update(chunk)
        work.advance(len(chunk))
    return digest.hexdigest()
