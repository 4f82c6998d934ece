"""What belongs to a checkpoint and is in none of the files that were given, so that nobody takes the output for all."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.unread import unheld
from ckptdoctor.formats.directories.names import shard_sets


def absent(paths: Sequence[str], checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    """A clause each: files that the numbers of others speak of, and what an index names in vain."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    gone = [
        os.path.join(folder, name)
        for folder, names in folders.items()
        for shards in shard_sets(names)
        for name in shards.missing
    ]
    told = [f"{name}, which is not among the files" for name in gone]
    return (*told, *[note.message for each in checkpoints for note in unheld(each)])
