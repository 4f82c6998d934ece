"""The shards hold tensors that the index does not name.

What it means
    A tensor lies in one of the files, but the index was written without it: by a converter that goes by a list of
    parameters, or before something was added.

Why it matters
    Loaders that go by the index leave the tensor out without a word: a feature of the model is silently off.

What you see
    Nothing, or a parameter that is newly initialised.

How it is found
    The header of each shard that the index names is held against the index.

Repair
    ``ckptdoctor fix FOLDER --select X805`` writes the index anew, from the headers of the shards, as a file beside the
    old one; with ``--force`` in its place, and the old one is kept with ``.bak`` behind its name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.noticed import Noted, notes_of, problems
from ckptdoctor.rules.kit.sharded_samples import INDEX, ONE, TWO, index_file, shard
from ckptdoctor.rules.sharding.index_repair import new_index
from ckptdoctor.rules.when import noticed

_FIRST, _SECOND = shard(1), shard(2)

SICK = (
    Example(
        "a tensor too many",
        files={
            INDEX: index_file(),
            _FIRST: ONE | {"a.scale": T((2,))},
            _SECOND: TWO,
        },
    ),
)
HEALTHY = (Example("an index that fits", files={INDEX: index_file(), _FIRST: ONE, _SECOND: TWO}),)


@rule("X805", "index-omits-tensor", Severity.WARNING, when=noticed)
def index_omits_tensor(subject: Noted) -> Iterator[Problem]:
    """Report tensors that the index leaves out."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_OMITS),
        otherwise="the index leaves tensors out",
        cause="Loaders that go by the index leave them out without a word.",
        fix=new_index(subject, "X805"),
    )
