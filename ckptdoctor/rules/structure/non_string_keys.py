"""A state dict has keys that are not strings.

Meaning
    Tensors were put under numbers or tuples, in a dict of weights that otherwise has names.

Why it matters
    ``load_state_dict`` calls ``startswith`` on every key, and fails on the first that is not a string. safetensors
    rejects the dict as well.

Symptoms
    AttributeError: 'int' object has no attribute 'startswith'
    argument 'tensor_dict': 'int' object is not an instance of 'str'

Detection
    Tensors under such keys, in a model's state dict or in a dict where weights should be (``state_dict``, ``model``).
    Numbers in an optimizer's state are correct.

Repair
    None by command. In Python: ``{str(key): value for key, value in weights.items()}``, unless that gives two keys one
    name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Part, show_part
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.structure.odd_leaves import untextual
from ckptdoctor.rules.when import more_than_weights

_NET: dict[object, object] = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
SICK = (
    Example("a number among names", {**_NET, 0: T((2,))}),
    Example("numbers where weights should be", {"model": {0: T((2, 4)), 1: T((2,))}, "epoch": 3}),
    Example("a tuple among names", {"state_dict": {**_NET, (1, 2): T((2,))}}),
)
HEALTHY = (
    Example("names", {"model": _NET, "buckets": {0: T((2,)), 1: T((2,))}}),
    Example("an optimizer", {"model": _NET, "optimizer": {"state": {0: {"exp_avg": T((2, 4))}}, "param_groups": []}}),
    Example("a setting under a number", {**_NET, 0: "zero"}),
)


@rule("W309", "non-string-keys", Severity.ERROR, when=more_than_weights)
def non_string_keys(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report dicts of weights with keys that are not strings."""
    for path, odd, number in untextual(checkpoint):
        yield _problem(path, odd, number)


def _problem(path: KeyPath, odd: list[Part], number: int) -> Problem:
    some = wording.all_of(number, "key") if len(odd) == number else f"{len(odd):,} of {wording.plural(number, 'key')}"
    verb, noun = ("is", "a text") if len(odd) == 1 else ("are", "texts")
    first = type(odd[0]).__name__ if isinstance(odd[0], int) else None
    return Problem(
        message=f"{some}{wording.of_place(path)} {verb} not {noun}: {wording.abridged(map(show_part, odd))}",
        cause="load_state_dict and safetensors need names.",
        torch_says=(
            f"AttributeError: '{first}' object has no attribute 'startswith'",
            f"argument 'tensor_dict': '{first}' object is not an instance of 'str'",
        )
        if first is not None
        else (),
        advice=_advice(odd),
        keys=tuple([(*path, part) for part in odd]),
        location=Location(path=path),
    )


def _advice(odd: list[Part]) -> str:
    if all(isinstance(part, int) for part in odd):
        return "In Python: {str(key): value for key, value in weights.items()}, and save that."
    return "Give each of them a name when you save."
