"""The index and the shards next to it are from different saves.

Meaning
    It names missing shards, while shards with other numbers exist and hold the tensors: the model was sharded again,
    quantized or converted, and the index was not rewritten.

Why it matters
    Loaders use the index: they ask for a file that never existed, or notice missing tensors late.

Symptoms
    does not appear to have files named

Detection
    The names in the index are compared with the files and the tensors in them.

Repair
    ``ckptdoctor fix FOLDER --select X803`` rewrites the index from the headers of the shards, as a file next to the old
    one; with ``--force`` it replaces the old one, which is kept with ``.bak`` appended to its name. Resolve tensors
    that are in two shards, and missing shards, first.
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
        otherwise="the index is from another save",
        cause="The model was sharded again and the index was not rewritten. Loaders ask for files that never existed.",
        torch_says=("does not appear to have files named",),
        fix=new_index(subject, "X803"),
    )
