"""Two files of the checkpoint have a tensor of the same name.

What it means
    A file was left from an earlier save, or a merged one lies among the shards that it was made of.

Why it matters
    Loaders that read every file take the last one, others the one that the index names: which of the two values is
    used depends on the program.

What you see
    Nothing: one of the two is used.

How it is found
    The names in the headers of all shards, and of further files that are called like shards.

Repair
    None: find out which file is the right one, and move the other out of the folder.
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
        "a tensor in both shards",
        files={"model.safetensors.index.json": _index(), _FIRST: _ONE | {"b.bias": T((2,))}, _SECOND: _TWO},
    ),
)
HEALTHY = (
    Example("an index that fits", files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: _TWO}),
)


@rule("X806", "duplicate-key-across-shards", Severity.WARNING)
def duplicate_key_across_shards(subject: Noted) -> Iterator[Problem]:
    """A name that two files have."""
    yield from problems(
        notes_of(subject, NoteKind.KEY_IN_TWO_FILES),
        otherwise="two files have tensors of the same name",
        cause="One of them is left from an earlier save. Loaders that read every file take the last, others the first.",
        advice="Move the one that is wrong out of the folder.",
    )
