"""The index looks for tensors in files that do not have them.

What it means
    For some tensor the index names the wrong shard, or a tensor that is in none of them; or it cannot be read at all.

Why it matters
    Loaders that go by the index fail on that tensor, or leave it as it was initialised.

What you see
    KeyError: 'b.bias'
    File does not contain tensor b.bias

How it is found
    The header of each shard is held against the index.

Repair
    ``ckptdoctor fix FOLDER --select X804`` writes the index anew, from the headers of the shards, as a file beside the
    old one; with ``--force`` in its place, and the old one is kept with ``.bak`` behind its name. What is in none of
    the shards must be fetched first.
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
        "a tensor in another shard",
        files={"model.safetensors.index.json": _index(b_bias=_FIRST), _FIRST: _ONE, _SECOND: _TWO},
    ),
    Example(
        "a tensor in no shard",
        files={"model.safetensors.index.json": _index(c_bias=_FIRST), _FIRST: _ONE, _SECOND: _TWO},
    ),
    Example("an index that is none", files={"model.safetensors.index.json": b"{", _FIRST: _ONE, _SECOND: _TWO}),
)
HEALTHY = (
    Example("an index that fits", files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: _TWO}),
)


@rule("X804", "index-tensor-missing", Severity.ERROR)
def index_tensor_missing(subject: Noted) -> Iterator[Problem]:
    """Tensors that are not where the index says."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_WRONG),
        otherwise="the index does not fit the shards",
        cause="The shards or the index were edited or written by hand. Loaders that go by the index do not find them.",
        fix=new_index(subject, "X804"),
    )
    yield from problems(
        notes_of(subject, NoteKind.INDEX_LACKS),
        otherwise="the index names a tensor that is in none of the files",
        cause="A shard was written anew without it, or is not the one of this index.",
        advice="Fetch the shards again: the values are not here.",
    )
