"""The index counts other bytes than there are.

What it means
    ``metadata.total_size`` is the sum of the bytes of all tensors. It is wrong where the tensors were cast, dropped or
    added and the index was only edited.

Why it matters
    Programs that plan where layers go (``device_map="auto"``) believe it. Nothing else does.

What you see
    Nothing.

How it is found
    The bytes of the tensors are counted, shared ones once and also for each name: either may be meant.

Repair
    ``ckptdoctor fix FOLDER --select X807`` writes the index anew, from the headers of the shards, as a file beside the
    old one; with ``--force`` in its place, and the old one is kept with ``.bak`` behind its name.
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
        otherwise="the index counts other bytes than there are",
        cause="The index was not written anew when the tensors changed. Only what plans memory by it is misled.",
        fix=new_index(subject, "X807"),
    )
