"""A file of a checkpoint in several files is not there, or cannot be read.

What it means
    The index of a sharded checkpoint, the numbers in its shards' names, or the ``.metadata`` of a distributed one name
    a file that is not in the folder. The download or the copy broke off, or left it out.

Why it matters
    Tensors are missing. Some loaders say so; those that take whatever lies in the folder leave parameters as they were
    initialised, and the model gives nonsense.

What you see
    does not appear to have files named
    FileNotFoundError: [Errno 2] No such file or directory: 'model-00002-of-00002.safetensors'

How it is found
    The names in the folder are held against the index, or against the ``-00001-of-00002`` of the names themselves. A
    name that leads out of the folder is not followed.

Repair
    None: fetch the file, as with ``hf download REPOSITORY --include NAME``, and check again. ``ckptdoctor salvage``
    saves what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.facts.notes import Noted, format_of, notes_of
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
    Example("a shard that the index names", files={"model.safetensors.index.json": _index(), _FIRST: _ONE}),
    Example("one of two numbered shards", files={"config.json": b"{}", _SECOND: _TWO}),
    Example(
        "a shard that was cut off",
        files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: b"\x40" + bytes(7) + b"{"},
    ),
    Example(
        "a name that leads elsewhere",
        files={"model.safetensors.index.json": _index(b_bias="../other.safetensors"), _FIRST: _ONE, _SECOND: _TWO},
    ),
)
HEALTHY = (
    Example("both shards", files={"model.safetensors.index.json": _index(), _FIRST: _ONE, _SECOND: _TWO}),
    Example("shards without an index", files={_FIRST: _ONE, _SECOND: _TWO}),
)


@rule("X801", "missing-shard", Severity.ERROR)
def missing_shard(subject: Noted) -> Iterator[Problem]:
    """Files that belong to the checkpoint and are not there, or cannot be read."""
    yield from problems(
        notes_of(subject, NoteKind.FILE_MISSING),
        otherwise="a file of the checkpoint is missing",
        cause="The download or the copy is not complete. Loaders that take what they find leave parameters at random.",
        advice=_advice(subject),
        torch_says=("does not appear to have files named",) if _is_sharded(subject) else (),
    )
    yield from problems(
        notes_of(subject, NoteKind.FILE_DAMAGED),
        otherwise="a file of the checkpoint cannot be read",
        cause="The tensors in it are missing from the checkpoint.",
        advice="Fetch it again; “ckptdoctor check” on that file alone says more.",
    )
    yield from problems(
        notes_of(subject, NoteKind.FILE_OUTSIDE),
        otherwise="a name leads out of the folder",
        cause="No checkpoint needs that, and it is not followed: what lies there is not examined.",
        advice="Take the checkpoint from where it was published, and do not open this one with anything else.",
    )


def _advice(subject: Noted) -> str:
    if isinstance(subject, Container) and subject.guidance:
        return subject.guidance
    if _is_sharded(subject):
        return "Fetch it, as with “hf download REPOSITORY --include NAME”, and check again."
    return "Copy it from where the checkpoint was saved, and check again."


def _is_sharded(subject: Noted) -> bool:
    """Whether transformers would look for the file."""
    return format_of(subject).startswith(("sharded Hugging Face", "Hugging Face"))
