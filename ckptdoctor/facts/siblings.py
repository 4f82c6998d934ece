"""Looks beside a local checkpoint: at the names in its folder, its ``config.json``, and the checksums promised for it.

One listing of the folder, and reads with a limit. Links are not followed out of the folder, but for one: the cache of
``huggingface_hub`` keeps each file as a link to ``../../blobs/`` and its hash.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, Source
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.source import READING
from ckptdoctor.noun import field, noun
from ckptdoctor.regex import regex

# how one file of several is called
SHARD = regex(r"-(\d{5})-of-(\d{5})\.")
# names that are looked at in one folder, at most
_MOST = 20_000
# bytes of a small file that are read, at most: a longer one is left alone
LONGEST = 4 << 20

_BLOB = regex(r"\.\./\.\./blobs/([0-9a-f]{40}|[0-9a-f]{64})")
_REMOTE = regex(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@noun
class Sibling:
    """A file beside the checkpoint (or the checkpoint itself): its size, and when it was written (ns)."""

    name: str
    size: int
    mtime_ns: int


@noun
class Folder:
    """The names of the regular files in the folder of a checkpoint; ``name`` is its own, "" where it is the folder."""

    path: str
    name: str
    names: frozenset[str] = frozenset()

    @property
    def own(self) -> Sibling | None:
        """The checkpoint itself, where it is one file."""
        return self.file(self.name)

    def file(self, name: str) -> Sibling | None:
        """The file of this name; None where there is none."""
        if name not in self.names:
            return None
        try:
            status = os.stat(os.path.join(self.path, name))
        except OSError:  # it has gone meanwhile
            return None
        return Sibling(name, status.st_size, status.st_mtime_ns)

    def read(self, name: str) -> str:
        """The text of a small file in the folder; "" for none, one that is too long, and one that is no text."""
        return read_small(os.path.join(self.path, name)) if name in self.names else ""

    def beginning(self, name: str) -> str:
        """The first ``LONGEST`` bytes of a text in the folder, however long it is; "" where there is none."""
        return read_small(os.path.join(self.path, name), cut=True) if name in self.names else ""


def folder_of(path: str) -> Folder:
    """What lies beside the file at ``path`` (in it, where it is a folder). Empty for what is not a local file."""
    if not path or "\0" in path or _REMOTE.match(path) or not os.path.exists(path):
        return Folder("", "")
    inside = os.path.isdir(path)
    folder = path if inside else os.path.dirname(path) or os.curdir
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_sibling(entry):
                    names.append(entry.name)
                if len(names) >= _MOST:
                    break
    except OSError:  # not ours to list
        return Folder("", "")
    return Folder(folder, "" if inside else os.path.basename(path), frozenset(names))


def _is_sibling(entry: os.DirEntry[str]) -> bool:
    """Whether it is a regular file, or a link of the hub's cache to one."""
    try:
        if entry.is_symlink():
            return blob_of(entry.path) != "" and entry.is_file()
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


def blob_of(path: str) -> str:
    """The name of the blob that a file in the hub's cache is a link to: its hash; "" for any other file."""
    try:
        found = _BLOB.fullmatch(os.readlink(path).replace(os.sep, "/"))
    except (OSError, ValueError):  # no link
        return ""
    return found[1] if found else ""


def read_small(path: str, *, cut: bool = False) -> str:
    """The text of a small local file; "" for none, one that is no text, and one that is too long, unless it is cut."""
    target = path
    if blob_of(path):
        target = os.path.join(os.path.dirname(path), os.readlink(path))
    try:
        handle = os.open(target, READING | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError):
        return ""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        data = file.read(LONGEST + 1)
    if cut and len(data) > LONGEST:
        return data[:LONGEST].decode("utf-8", "replace")
    try:
        return data.decode("utf-8") if len(data) <= LONGEST else ""
    except UnicodeDecodeError:
        return ""


def is_shard(path: str) -> bool:
    """Whether a file's name says that it is one of several shards."""
    return SHARD.search(path.replace("\\", "/").rpartition("/")[2]) is not None


NAME = "config.json"
_LONGEST = 1 << 20

# the weights that such a config describes, whole or in parts
_WHOLE = frozenset({"model.safetensors", "pytorch_model.bin"})
_SHARD = regex(r"(?:model|pytorch_model)-\d{5}-of-\d{5}\.(?:safetensors|bin)")


@noun
class Config:
    """A config beside the weights: its path, its fields, and the line (from 1) on which each of the outer ones is."""

    path: str
    fields: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict)

    def number(self, names: tuple[str, ...]) -> tuple[str, int] | None:
        """The first of these fields that is a number."""
        for name in names:
            value = self.fields.get(name)
            if type(value) is int:
                return name, value
        return None


def is_shard_of_model(name: str) -> bool:
    """Whether a file has the name of one of several files with a model's weights."""
    return _SHARD.fullmatch(name) is not None


@cached_by_identity
def config_beside(checkpoint: Checkpoint) -> Config | None:
    """The config of the weights; None where there is none, or where it describes several models at once."""
    folder = folder_of(checkpoint.path)
    if folder.name and folder.name not in _WHOLE and not is_shard_of_model(folder.name):
        return None
    config = read_config(folder, NAME)
    return None if config is None or _composite(config.fields) else config


def read_config(folder: Folder, name: str) -> Config | None:
    """The JSON object in the file ``name`` of the folder; None where there is none, or none that can be read."""
    text = folder.read(name)
    if not text or len(text) > _LONGEST:
        return None
    from json import loads

    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return Config(os.path.join(folder.path, name), fields, dict(_lines(text)))


def _composite(fields: Mapping[str, object]) -> bool:
    """Whether the config holds configs of models inside (text, vision): which tensors they speak of is not said."""
    return any(
        name.endswith("_config") and name != "quantization_config" and isinstance(value, dict)
        for name, value in fields.items()
    )


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """The line of each field, where the file is laid out with one field to a line and its own indented least."""
    found = re.compile(r'^([ \t]*)"(\w+)"\s*:')
    matches = [(found.match(line), number) for number, line in enumerate(text.splitlines(), 1)]
    named = [(match, number) for match, number in matches if match is not None]
    least = min((len(match[1]) for match, _ in named), default=0)
    for match, number in named:
        if len(match[1]) == least:
            yield match[2], number


CHUNK = 4 << 20

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


@noun
class Promise:
    """The SHA-256 (or its first digits) or MD5 that a file should have, and who says so.

    ``sure`` is false where the digits of a name may be something else than a checksum.
    """

    digits: str
    by: str
    sure: bool = True
    algorithm: str = "sha256"

    @property
    def kind(self) -> str:
        """What people call it."""
        return {"sha256": "SHA-256", "md5": "MD5"}[self.algorithm]


def promise_of(source: Source) -> Promise | None:
    """What the file is said to have; None where nothing is said, and for what is not the local file itself."""
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
    yield from sorted(_by_lists(folder), key=lambda promise: promise.algorithm == "md5")  # SHA-256 says more
    found = _IN_NAME.search(folder.name)
    if found and not found[1].isdecimal():  # digits alone are a date, or a number of steps
        yield Promise(found[1], "its name", sure=False)


def _by_lists(folder: Folder) -> Iterator[Promise]:
    stem = os.path.splitext(folder.name)[0]
    for suffix in _LONE:
        yield from _listed(folder, f"{folder.name}.{suffix}", lone=True)
    for name in (*[f"{stem}.{suffix}" for suffix in _LONE], *_LISTS):
        yield from _listed(folder, name, lone=False)


def _downloaded(folder: Folder) -> Iterator[Promise]:
    """What huggingface_hub noted when it downloaded the file into a folder: commit, ETag (the SHA-256 of LFS), time."""
    path = os.path.join(folder.path, ".cache", "huggingface", "download", f"{folder.name}.metadata")
    lines = read_small(path).split("\n")
    if len(lines) >= 3 and _DIGITS.fullmatch(lines[1].strip()):
        yield Promise(lines[1].strip(), "what huggingface_hub noted when it was downloaded")


def _listed(folder: Folder, name: str, lone: bool) -> Iterator[Promise]:
    """The sum of the file in a list of sums; in one of its own (``lone``) the name may be missing."""
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
    """The checksum of all bytes, which ``work`` counts. Raises TruncatedError when the file shrinks meanwhile."""
    import hashlib

    work = work or Work()
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for offset in range(0, source.size, CHUNK):
        chunk = source.read(offset, min(CHUNK, source.size - offset))
        digest.update(chunk)
        work.advance(len(chunk))
    return digest.hexdigest()
