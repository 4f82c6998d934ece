"""Two files of the checkpoint have a tensor with the same name.

Meaning
    A file was left from an earlier save, or a merged file is among the shards that it was made from.

Why it matters
    Loaders that read every file take the last one, others the one that the index names: which of the two values is
    used depends on the program.

Symptoms
    Nothing: one of the two is used.

Detection
    The names in the headers of all shards, and of other files that are named like shards. Different dtypes or shapes
    are reported: then one of the files belongs to another model, or is quantised.

Repair
    None: find out which file is the right one, and move the other out of the folder.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.sharded_samples import INDEX, ONE, TWO, index_file, shard
from ckptdoctor.rules.when import noticed

_FIRST, _SECOND = shard(1), shard(2)

SICK = (
    Example(
        "a tensor in both shards",
        files={INDEX: index_file(), _FIRST: ONE | {"b.bias": T((2,))}, _SECOND: TWO},
    ),
)
HEALTHY = (Example("an index that fits", files={INDEX: index_file(), _FIRST: ONE, _SECOND: TWO}),)


@rule("X806", "duplicate-key-across-shards", Severity.WARNING, when=noticed)
def duplicate_key_across_shards(subject: Noted) -> Iterator[Problem]:
    """Report a name that two files have."""
    yield from problems(
        notes_of(subject, NoteKind.KEY_IN_TWO_FILES),
        otherwise="two files have tensors with the same name",
        cause="One of them is left from an earlier save. Some loaders that read every file take the last, others "
        "the first.",
        advice="Move the wrong one out of the folder.",
    )
