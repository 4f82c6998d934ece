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
        "a tensor too many",
        files={
            "model.safetensors.index.json": _index(),
            _FIRST: _ONE | {"a.scale": T((2,))},
            _SECOND: _TWO,
        },
    ),
)
HEALTHY = (
    Example("an index that fits", files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: _TWO}),
)


@rule("X805", "index-omits-tensor", Severity.WARNING)
def index_omits_tensor(subject: Noted) -> Iterator[Problem]:
    """Tensors that the index leaves out."""
    yield from problems(
        notes_of(subject, NoteKind.INDEX_OMITS),
        otherwise="the index leaves tensors out",
        cause="Loaders that go by the index leave them out without a word.",
        fix=new_index(subject, "X805"),
    )
