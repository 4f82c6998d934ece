"""Layers are missing between others.

Meaning
    A list of similar layers has the numbers 0 to 31 with some missing in between. A shard or a stage of a pipeline was
    lost when the checkpoint was put together.

Why it matters
    A lenient loader leaves those layers at their initial values, and the model produces nonsense.

Symptoms
    Missing key(s) in state_dict: "layers.17.attn.q.weight", …

Detection
    The numbers in the keys, for lists in which every layer has several submodules. Lists with every second number, or
    with most numbers left out, are assumed to be intended.

Repair
    None: the values are not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind, StateDict
from ckptdoctor.facts.siblings import is_shard
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import notes_of
from ckptdoctor.rules.sharding.layer_lists import Layers, layer_lists
from ckptdoctor.rules.when import numbered_layers

_INNER = ("attn.q.weight", "attn.k.weight", "mlp.up.weight", "mlp.down.weight")


def _layers(*numbers: int) -> dict[str, T]:
    return {f"layers.{number}.{name}": T((2, 2)) for number in numbers for name in _INNER}


SICK = (Example("one layer is missing", _layers(0, 1, 2, 4, 5)),)
HEALTHY = (
    Example("all layers", _layers(0, 1, 2, 3, 4, 5)),
    Example("every second one", _layers(0, 2, 4, 6, 8)),
    Example("few of many", _layers(3, 8, 13, 18, 20)),
)


@rule("X813", "layer-gap", Severity.WARNING, when=numbered_layers)
def layer_gap(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report numbers that are left out."""
    if is_shard(checkpoint.path):  # shards that are sorted by name have gaps
        return
    if notes_of(checkpoint, NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED):  # the layers lie there: X801 says so
        return
    for state_dict in checkpoint.state_dicts:
        for layers in layer_lists(state_dict):
            if layers.missing:
                yield _problem(state_dict, layers)


def _problem(state_dict: StateDict, layers: Layers) -> Problem:
    numbers = wording.abridged(map(str, layers.missing), 6)
    where = wording.of_place(state_dict.path)
    are = "is" if len(layers.missing) == 1 else "are"
    first, last = layers.present[0], layers.present[-1]
    return Problem(
        message=f"{layers.name}{where} go from {first} to {last}, but {numbers} {are} missing",
        cause="A part was lost when the checkpoint was put together, unless these layers were removed on purpose.",
        advice="Copy the checkpoint again from where it was saved, and make sure that every part is there.",
    )
