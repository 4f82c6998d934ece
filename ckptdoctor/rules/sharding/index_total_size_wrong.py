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

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.facts.notes import Noted, notes_of
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.noticed import problems
from ckptdoctor.rules.sharding.index_repair import new_index

_ONE: dict[str, object] = {"a.weight": T((2, 2)), "a.bias": T((2,))}
_TWO: dict[str, object] = {"b.weight": T((2, 2)), "b.bias": T((2,))}
_FIRST, _SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def _index(total: int = 48, **files: str) -> bytes:
    """An index: "a.weight" in _FIRST and so on, but for what ``files`` says."""
    table = dict.fromkeys(_ONE, _FIRST) | dict.fromkeys(_TWO, _SECOND)
    table |= {key.replace("_", "."): file for key, file in files.items()}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": table}).encode()


SICK = (
    Example(
        "a count from before casting",
        files={"model.safetensors.index.json": _index(96), _FIRST: _ONE, _SECOND: _TWO},
    ),
)
HEALTHY = (
    Example("an index that fits", files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: _TWO}),
)


@rule("X807", "index-total-size-wrong", Severity.INFO)
def index_total_size_wrong(subject: Noted) -> Iterator[Problem]:
    """A wrong sum."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_SIZE),
        otherwise="the index counts other bytes than there are",
        cause="The index was not written anew when the tensors changed. Only what plans memory by it is misled.",
        fix=new_index(subject, "X807"),
    )
