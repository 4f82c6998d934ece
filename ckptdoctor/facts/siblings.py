"""Looks next to a local checkpoint: at the names in its folder, and its ``config.json``.

One listing of the folder, and reads with a limit. Links are not followed out of the folder, with one exception: the
cache of ``huggingface_hub`` keeps each file as a link to ``../../blobs/`` and its hash.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
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
    """A file next to the checkpoint (or the checkpoint itself): its size, and when it was written (ns)."""

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
        """Return the file of this name, or None where there is none."""
        if name not in self.names:
            return None
        try:
            status = os.stat(os.path.join(self.path, name))
        except OSError:  # it has gone meanwhile
            return None
        return Sibling(name, status.st_size, status.st_mtime_ns)

    def read(self, name: str) -> str:
        """Return the text of a small file in the folder.

        It is "" for a file that is missing, is too long, or is not text.
        """
        return read_small(os.path.join(self.path, name)) if name in self.names else ""

    def beginning(self, name: str) -> str:
        """Return the first ``LONGEST`` bytes of a text in the folder, however long it is, or "" where there is none."""
        return read_small(os.path.join(self.path, name), cut=True) if name in self.names else ""


def folder_of(path: str) -> Folder:
    """Return what is next to the file at ``path`` (in it, where it is a folder).

    Empty for what is not a local file.
    """
    if not path or "\0" in path or _REMOTE.match(path) or not os.path.exists(path):
        return Folder("", "")
    inside = os.path.isdir(path)
    folder = path if inside else os.path.dirname(path) or os.curdir
    known = _known.get()
    names = known.get(folder) if known is not None else None
    if names is None:
        names = _names_of(folder)
        if known is not None:
            known[folder] = names
    if names is _UNLISTED:
        return Folder("", "")
    return Folder(folder, "" if inside else os.path.basename(path), names)


_SETTLED = 2_000_000_000  # nanoseconds without a change, after which the times of a folder tell the next one


def _names_of(folder: str) -> frozenset[str]:
    """Return the names of the files in a folder, which is listed again only where it has changed.

    Of 10,000 checkpoints in one folder, each looks at the names of all others.
    """
    try:
        status = os.stat(folder)
        told = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        settled = time.time_ns() - max(told[2:]) > _SETTLED
        return _as_it_was(folder, told) if settled else _names_in(folder)
    except OSError:  # not ours to list
        return _UNLISTED


@lru_cache(maxsize=4)
def _as_it_was(folder: str, told: tuple[int, int, int, int]) -> frozenset[str]:
    return _names_in(folder)


def _names_in(folder: str) -> frozenset[str]:
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_sibling(entry):
                names.append(entry.name)
            if len(names) >= _MOST:
                break
    return frozenset(names)


_UNLISTED = frozenset({""})  # no file has this name


_known: ContextVar[dict[str, frozenset[str]] | None] = ContextVar("known", default=None)


@contextmanager
def listed_once() -> Iterator[None]:
    """List each folder once meanwhile: for many checkpoints next to each other, of which each looks at all others."""
    before = _known.set({})
    try:
        yield
    finally:
        _known.reset(before)


def _is_sibling(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a regular file, or a link of the hub's cache to one."""
    try:
        if entry.is_symlink():
            return blob_of(entry.path) != "" and entry.is_file()
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


def blob_of(path: str) -> str:
    """Return the name of the blob that a file in the hub's cache is a link to: its hash, or "" for any other file."""
    try:
        found = _BLOB.fullmatch(os.readlink(path).replace(os.sep, "/"))
    except (OSError, ValueError):  # no link
        return ""
    return found[1] if found else ""


def read_small(path: str, *, cut: bool = False) -> str:
    """Return the text of a small local file.

    It is "" for a file that is missing, is not text, or is too long, unless it is cut.
    """
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


# suffixes that programs give to a file until it is complete (browsers, huggingface_hub, wget, curl, rsync, editors)
UNFINISHED = (
    *(".incomplete", ".part", ".partial", ".crdownload", ".download", ".opdownload", ".filepart", ".unconfirmed"),
    *(".tmp", ".temp", "~"),
)
# what says that the checkpoint itself is not complete: aria2 keeps it next to a file that has its full length but not
# all its bytes; DownThemAll writes .dtapart
CONTROL = (".aria2", ".st")


def suffix_of_unfinished(name: str) -> str:
    """Return the suffix by which a file is one that was not finished, or "" where it has none."""
    lower = name.lower()
    return next((suffix for suffix in UNFINISHED if lower.endswith(suffix) and len(name) > len(suffix)), "")


def unfinished_beside(folder: Folder) -> list[tuple[str, str]]:
    """Return the files next to a checkpoint that have its name and such a suffix: both of each."""
    if not folder.name:
        return []
    ends = [(f"{dot}{folder.name}{suffix}", suffix) for suffix in (*CONTROL, *UNFINISHED) for dot in ("", ".")]
    return [each for each in ends if each[0] in folder.names]


def is_shard(path: str) -> bool:
    """Return whether a file's name says that it is one of several shards."""
    return SHARD.search(path.replace("\\", "/").rpartition("/")[2]) is not None


_CONFIG = "config.json"
_LONGEST = 1 << 20

# the weights that such a config describes, whole or in parts
_WHOLE = frozenset({"model.safetensors", "pytorch_model.bin"})
_SHARD = regex(r"(?:model|pytorch_model)-\d{5}-of-\d{5}\.(?:safetensors|bin)")


@noun
class Config:
    """A config next to the weights: its path, its fields, and the line (from 1) of each outer one."""

    path: str
    fields: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict)

    def number(self, names: tuple[str, ...]) -> tuple[str, int] | None:
        """Return the first of these fields that is a number."""
        for name in names:
            value = self.fields.get(name)
            if type(value) is int:
                return name, value
        return None


def is_shard_of_model(name: str) -> bool:
    """Return whether a file has the name of one of several files with a model's weights."""
    return _SHARD.fullmatch(name) is not None


@cached_by_identity
def config_beside(checkpoint: Checkpoint) -> Config | None:
    """Return the config of the weights, or None where there is none, or where it describes several models at once."""
    folder = folder_of(checkpoint.path)
    if folder.name and folder.name not in _WHOLE and not is_shard_of_model(folder.name):
        return None
    config = read_config(folder, _CONFIG)
    return None if config is None or _composite(config.fields) else config


def read_config(folder: Folder, name: str) -> Config | None:
    """Return the JSON object in the file ``name`` of the folder.

    It is None where there is none, or none that can be read.
    """
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
    """Return whether the config holds configs of models inside (text, vision).

    Which tensors they speak of is not said.
    """
    return any(
        name.endswith("_config") and name != "quantization_config" and isinstance(value, dict)
        for name, value in fields.items()
    )


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the line of each field, where the file is laid out with one field to a line and its own indented least."""
    found = re.compile(r'^([ \t]*)"(\w+)"\s*:')
    matches = [(found.match(line), number) for number, line in enumerate(text.splitlines(), 1)]
    named = [(match, number) for match, number in matches if match is not None]
    least = min((len(match[1]) for match, _ in named), default=0)
    for match, number in named:
        if len(match[1]) == least:
            yield match[2], number


def says_tied(checkpoint: Checkpoint) -> bool | None:
    """Return what the ``config.json`` next to the checkpoint says about ``tie_word_embeddings``.

    It is None where it says nothing.
    """
    config = config_beside(checkpoint)
    said = config.fields.get("tie_word_embeddings") if config is not None else None
    return said if isinstance(said, bool) else None
