"""What belongs to a checkpoint and is in none of the files that were given, so that nobody takes the output for all."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.unread import unheld
from ckptdoctor.formats.directories.names import shard_sets
from ckptdoctor.wording import and_more

_SETS = 20  # sets of numbered files that are looked at; whoever has more of them names no checkpoint
_NAMED = 4  # of those that are lacking, how many are named


def absent(paths: Sequence[str], checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    """A clause each: files that the numbers of others speak of, and what an index names in vain."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    sets = [(folder, shards) for folder, names in folders.items() for shards in shard_sets(names)]
    told = [_ungiven(folder, shards.missing) for folder, shards in sets[:_SETS] if len(shards.present) < shards.total]
    return (*told, *[note.message for each in checkpoints for note in unheld(each)])


def _ungiven(folder: str, names: Sequence[str]) -> str:
    shown = and_more(names, _NAMED, "shard", say=lambda name: os.path.join(folder, name))
    return f"{shown}, which {'is' if len(names) == 1 else 'are'} not among the files"
