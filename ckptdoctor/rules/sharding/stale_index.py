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
_FIRST, _SECOND = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"


def _index(total: int = 48, **files: str) -> bytes:
    """An index: "a.weight" in _FIRST and so on, but for what ``files`` says."""
    table = dict.fromkeys(_ONE, _FIRST) | dict.fromkeys(_TWO, _SECOND)
    table |= {key.replace("_", "."): file for key, file in files.items()}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": table}).encode()


_ALL = _ONE | _TWO
SICK = (
    Example(
        "sharded again",
        files={"model.safetensors.index.json": _index(), "model-00001-of-00001.safetensors": _ALL},
    ),
)
HEALTHY = (
    Example("an index that fits", files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: _TWO}),
)


@rule("X803", "stale-index", Severity.ERROR)
def stale_index(subject: Noted) -> Iterator[Problem]:
    """An index of another save."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_STALE),
        otherwise="the index is of another save",
        cause="The model was sharded again and the index was not. Loaders ask for files that never were.",
        torch_says=("does not appear to have files named",),
        fix=new_index(subject, "X803"),
    )
