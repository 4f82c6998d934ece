"""Reads what is named by files that are in the folder of a checkpoint and are not part of it.

``training_args.bin``, ``optimizer.pt``, the states of another step: some program unpickles them, and somebody who was
told that the folder is healthy lets it. They are looked at for what their pickles name, and for nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from ckptdoctor.checkpoint import Aside, FolderSource
from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.formats.other_pickles import Search
from ckptdoctor.inplace.names import is_journal

# bytes of pickles, and files, that are gone through of one folder
_MOST_BYTES = 64 << 20
_MOST_FILES = 2_000
_DEEPEST = 4

# nothing unpickles a file that is called so
_PLAIN = (
    *(".safetensors", ".distcp", ".json", ".jsonl", ".txt", ".md", ".py", ".yaml", ".yml", ".toml", ".csv", ".tsv"),
    *(".log", ".sh", ".jinja", ".html", ".gguf", ".onnx", ".h5", ".model", ".msgpack", ".parquet", ".arrow"),
    *(".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".lock", ".gitattributes", ".gitignore"),
)


def beside(folder: FolderSource, read: Collection[str], without: str = "") -> tuple[tuple[Aside, ...], int]:
    """Return what all files name but those in ``read`` and in ``without``, and how many were too many to look at.

    Raises nothing: of a file that cannot be opened, whoever opens it says so.
    """
    search, looked, left = Search(_MOST_BYTES), 0, 0
    for name in _files(folder, "", without):
        if name in read or name.lower().endswith(_PLAIN) or is_journal(os.path.basename(name)):
            continue
        if looked >= _MOST_FILES or search.room <= 0:
            left += 1
            continue
        looked += 1
        try:
            search.file(folder.open(name), name)
        except CkptDoctorError:
            continue
    return tuple(search.found), left


def _files(folder: FolderSource, below: str, without: str, depth: int = 0) -> Iterator[str]:
    """Yield every file by its path, those of hidden folders and behind links to folders left out."""
    for name in folder.names:
        path = f"{below}{name}"
        if not name.endswith("/"):
            yield path
        elif depth < _DEEPEST and not name.startswith(".") and path != without:
            if os.path.islink(os.path.join(folder.path, name.rstrip("/"))):
                continue
            try:
                inner = folder.below(name)
            except UnreadableError:  # not ours to read
                continue
            yield from _files(inner, path, without, depth + 1)
