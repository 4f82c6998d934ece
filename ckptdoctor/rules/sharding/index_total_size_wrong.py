"""The index gives the wrong number of bytes.

Meaning
    ``metadata.total_size`` is the sum of the bytes of all tensors. It is wrong where the tensors were cast, dropped or
    added and the index was only edited.

Why it matters
    Only programs that place layers on devices (``device_map="auto"``) use it.

Symptoms
    Nothing.

Detection
    The bytes of the tensors are counted, shared ones both once and for each name: either sum is accepted.

Repair
    ``ckptdoctor fix FOLDER --select X807`` rewrites the index from the headers of the shards, as a file next to the old
    one; with ``--force`` it replaces the old one, which is kept with ``.bak`` appended to its name.
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

_FIRST, _SECOND = shard(1), shard(2)

SICK = (
    Example(
        "a count from before casting",
        files={INDEX: index_file(96), _FIRST: ONE, _SECOND: TWO},
    ),
)
HEALTHY = (Example("an index that fits", files={INDEX: index_file(), _FIRST: ONE, _SECOND: TWO}),)


@rule("X807", "index-total-size-wrong", Severity.INFO, when=noticed)
def index_total_size_wrong(subject: Noted) -> Iterator[Problem]:
    """Report a wrong sum."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_SIZE),
        otherwise="the index gives the wrong number of bytes",
        cause="The index was not rewritten when the tensors changed. Only programs that plan memory with it are "
        "misled.",
        fix=new_index(subject, "X807"),
    )
