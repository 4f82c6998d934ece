"""Which SHA-256 a file is said to have: by its name, by the cache that it lies in, or by a list beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Source
from ckptdoctor.facts.siblings import Folder, blob_of, folder_of, read_small
from ckptdoctor.late import late_dataclass

CHUNK = 4 << 20

_WHOLE = re.compile(r"[0-9a-f]{64}")
# torch.hub.HASH_REGEX, with the eight digits or more that people use
_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.[A-Za-z]\w*(?:\.tar)?$")
# what sha256sum writes: the sum, two blanks or a blank and a star, the name; a backslash before it where it is escaped
_LINE = re.compile(r"\\?([0-9a-fA-F]{64})(?:[ \t]+\*?(.*))?")
# what BSD's sha256 and "sha256sum --tag" write
_TAGGED = re.compile(r"SHA256 \((.*)\) = ([0-9a-fA-F]{64})")
_LISTS = ("SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt", "sha256sum.txt", "checksums.txt", "CHECKSUMS", "checksums")
_LONGEST_LIST = 100_000  # lines


@late_dataclass(frozen=True)
class Promise:
    """The SHA-256 (or its first digits) that a file should have, and who says so.

    ``sure`` is false where the digits of a name may be something else than a checksum.
    """

    digits: str
    by: str
    sure: bool = True


def promise_of(source: Source) -> Promise | None:
    """What the file is said to have; None where nothing is said, and for what is not the local file itself."""
    if source.file != source.path or source.identity is None:
        return None
    folder = folder_of(source.path)
    return next(_promises(source.path, folder), None) if folder.own is not None else None


def _promises(path: str, folder: Folder) -> Iterator[Promise]:
    blob = blob_of(path) or (folder.name if os.path.basename(folder.path) == "blobs" else "")
    if _WHOLE.fullmatch(blob):
        yield Promise(blob, "its name in the cache of huggingface_hub")
    yield from _downloaded(folder)
    for name in (f"{folder.name}.sha256", f"{folder.name}.sha256sum"):
        yield from _listed(folder, name, lone=True)
    stem = os.path.splitext(folder.name)[0]
    for name in (f"{stem}.sha256", f"{stem}.sha256sum", *_LISTS):
        yield from _listed(folder, name, lone=False)
    found = _IN_NAME.search(folder.name)
    if found and not found[1].isdecimal():  # digits alone are a date, or a number of steps
        yield Promise(found[1], "its name", sure=False)


def _downloaded(folder: Folder) -> Iterator[Promise]:
    """What huggingface_hub noted when it downloaded the file into a folder: commit, ETag (the SHA-256 of LFS), time."""
    path = os.path.join(folder.path, ".cache", "huggingface", "download", f"{folder.name}.metadata")
    lines = read_small(path).split("\n")
    if len(lines) >= 3 and _WHOLE.fullmatch(lines[1].strip()):
        yield Promise(lines[1].strip(), "what huggingface_hub noted when it was downloaded")


def _listed(folder: Folder, name: str, lone: bool) -> Iterator[Promise]:
    """The sum of the file in a list of sums; in one of its own (``lone``) the name may be missing."""
    lines = [line for line in folder.read(name).splitlines()[:_LONGEST_LIST] if line.strip()]
    for line in lines:
        digits, named = _parsed(line.strip())
        if not digits:
            continue
        if os.path.basename(named.replace("\\", "/")) == folder.name or (lone and len(lines) == 1 and not named):
            yield Promise(digits.lower(), name)


def _parsed(line: str) -> tuple[str, str]:
    tagged = _TAGGED.fullmatch(line)
    if tagged:
        return tagged[2], tagged[1]
    plain = _LINE.fullmatch(line)
    return (plain[1], (plain[2] or "").strip()) if plain else ("", "")


def sha256_of(source: Source) -> str:
    """The SHA-256 of all bytes. Raises TruncatedError when the file shrinks meanwhile."""
    from hashlib import sha256

    digest = sha256()
    for offset in range(0, source.size, CHUNK):
        digest.update(source.read(offset, min(CHUNK, source.size - offset)))
    return digest.hexdigest()
