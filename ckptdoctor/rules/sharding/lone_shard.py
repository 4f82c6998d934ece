"""The file is one of several that make up a checkpoint, and others of them are not next to it.

Meaning
    ``model-00001-of-00004.safetensors`` holds a quarter of a model's tensors. The download was interrupted, or somebody
    mistook the one file for the model.

Why it matters
    Loaded on its own it leaves the rest of the model at its initial values; ``from_pretrained`` fails without the
    others.

Symptoms
    Missing key(s) in state_dict: …
    does not appear to have files named

Detection
    By the numbers in the file's name and the names in its folder. If all are there nothing is reported: check the
    folder to compare them with their index.

Repair
    None: download the others, and check the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import SHARD, folder_of
from ckptdoctor.findings import Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.sharded_samples import ONE, TWO, shard
from ckptdoctor.rules.when import numbered_file
from ckptdoctor.shell import quote, word

SICK = (
    Example("the first of two", ONE, "safetensors", metadata={"format": "pt"}, name=shard(1)),
    Example("the second of two", TWO, "safetensors", metadata={"format": "pt"}, name=shard(2)),
)
HEALTHY = (
    Example("both", ONE, "safetensors", metadata={"format": "pt"}, name=shard(1), beside={shard(2): b"its bytes"}),
    Example("one of one", ONE, "safetensors", metadata={"format": "pt"}, name=shard(1, 1)),
)


@rule("X816", "lone-shard", Severity.WARNING, when=numbered_file)
def lone_shard(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a shard without the others."""
    found = shards_of(checkpoint.path)
    if found is None or not found.missing:
        return
    folder = quote(os.path.dirname(checkpoint.path) or os.curdir)
    first = word(found.missing[0])
    yield Problem(
        message=f"this is file {found.number:,} of {found.count:,} of a checkpoint, and "
        f"{wording.abridged(found.missing, 2)} {'is' if len(found.missing) == 1 else 'are'} not next to it",
        cause="The tensors in the others are missing. Lenient loaders leave these parameters random.",
        torch_says=(wording.files_asked_for(found.missing),),
        advice=f"Download the others (for example with: hf download REPOSITORY --include {first}), and check the "
        f"folder: ckptdoctor check {folder}",
    )


@noun
class ShardFile:
    """A file that is number ``number`` (from 1) of ``count``, and the names of those that are not next to it."""

    number: int
    count: int
    missing: tuple[str, ...]


def shards_of(path: str) -> ShardFile | None:
    """Return the shards that a local file is one of, by its name.

    It is None where it is called otherwise, or is not a file here.
    """
    folder = folder_of(path)
    match = SHARD.search(folder.name)
    if match is None or folder.name not in folder.names:
        return None
    number, count = int(match[1]), int(match[2])
    if not 1 <= number <= count or count == 1:
        return None
    before, after = folder.name[: match.start()], folder.name[match.end() - 1 :]
    names = [f"{before}-{each:05}-of-{match[2]}{after}" for each in range(1, count + 1)]
    return ShardFile(number, count, tuple([name for name in names if name not in folder.names]))
