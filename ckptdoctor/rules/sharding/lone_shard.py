"""The file is one of several that make up a checkpoint, and others of them do not lie beside it.

What it means
    ``model-00001-of-00004.safetensors`` holds a quarter of a model's tensors. The download broke off, or somebody took
    the one file for the model.

Why it matters
    Loaded on its own it leaves the rest of the model as it was initialised; ``from_pretrained`` fails without the
    others.

What you see
    Missing key(s) in state_dict: …
    does not appear to have files named

How it is found
    By the numbers in the file's name and the names in its folder. Where all are there nothing is said: check the folder
    to hold them against their index.

Repair
    None: fetch the others, and check the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from shlex import quote

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.sharding import shards_of
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.sharded_samples import ONE, TWO, shard
from ckptdoctor.rules.when import numbered_file

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
    """A shard without the others."""
    found = shards_of(checkpoint.path)
    if found is None or not found.missing:
        return
    folder = quote(os.path.dirname(checkpoint.path) or os.curdir)
    first = quote(found.missing[0])
    yield Problem(
        message=f"this is file {found.number:,} of {found.count:,} of a checkpoint, and "
        f"{wording.abridged(found.missing, 2)} {'is' if len(found.missing) == 1 else 'are'} not beside it",
        cause="The tensors in the others are missing. Loaders that take what they find leave parameters at random.",
        torch_says=("does not appear to have files named",),
        advice=f"Fetch the others, as with “hf download REPOSITORY --include {first}”, and check the folder: "
        f"ckptdoctor check {folder}",
    )
