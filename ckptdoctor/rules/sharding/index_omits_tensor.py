"""The shards hold tensors that the index does not name.

Meaning
    A tensor is in one of the shards, but the index was written without it: by a converter that uses a list of
    parameters, or before something was added. It may omit a whole shard.

Why it matters
    Loaders that use the index silently leave the tensor out: a feature of the model is off.

Symptoms
    Nothing, or a parameter that is newly initialised.

Detection
    The header of each shard that the index names, or that is numbered as one of the same set, is compared with the
    index.

Repair
    ``ckptdoctor fix FOLDER --select X805`` rewrites the index from the headers of the shards, as a file next to the old
    one; with ``--force`` it replaces the old one, which is kept with ``.bak`` appended to its name.
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
    Example(
        "a shard that the index omits",
        files={
            INDEX: {"metadata": {"total_size": 24}, "weight_map": dict.fromkeys(TWO, _SECOND)},
            _FIRST: ONE,
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
        otherwise="the index omits tensors",
        cause="Loaders that use the index silently leave them out.",
        fix=new_index(subject, "X805"),
    )
