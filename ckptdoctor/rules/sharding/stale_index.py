"""The index is of another save than the shards that lie beside it.

What it means
    It names shards that are not there, while others with other numbers are, and hold the tensors: the model was
    sharded again, quantized or converted, and the index was not written with it.

Why it matters
    Loaders go by the index: they ask for a file that never was, or find tensors missing late.

What you see
    does not appear to have files named

How it is found
    The names in the index are held against the files and the tensors in them.

Repair
    ``ckptdoctor fix FOLDER --select X803`` writes the index anew, from the headers of the shards, as a file beside the
    old one; with ``--force`` in its place, and the old one is kept with ``.bak`` behind its name. A tensor that lies in
    two shards, or a shard that is missing, must be settled first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.sharded_samples import INDEX, ONE, TWO, index_file, shard
from ckptdoctor.rules.sharding.index_repair import new_index
from ckptdoctor.rules.when import noticed

_FIRST, _SECOND = shard(1, of=3), shard(2, of=3)

_ALL = ONE | TWO
SICK = (
    Example(
        "sharded again",
        files={INDEX: index_file(of=3), "model-00001-of-00001.safetensors": _ALL},
    ),
)
HEALTHY = (Example("an index that fits", files={INDEX: index_file(of=3), _FIRST: ONE, _SECOND: TWO}),)


@rule("X803", "stale-index", Severity.ERROR, when=noticed)
def stale_index(subject: Noted) -> Iterator[Problem]:
    """Report an index of another save."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_STALE),
        otherwise="the index is of another save",
        cause="The model was sharded again and the index was not. Loaders ask for files that never were.",
        torch_says=("does not appear to have files named",),
        fix=new_index(subject, "X803"),
    )
