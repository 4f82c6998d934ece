"""The folder of a local checkpoint: the names of the files in it, and the contents of small ones.

One listing of the folder, and reads with a limit. Links are not followed out of the folder, but for one: the cache of
``huggingface_hub`` keeps each file as a link to ``../../blobs/`` and its hash.
"""

from __future__ import annotations

import os
import re
import stat

from ckptdoctor.checkpoint.source import READING
from ckptdoctor.noun import noun
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
