"""A state dict has keys that are not strings.

Meaning
    Tensors were put under numbers or tuples: some in a dict of weights that otherwise has names, or all of them, as
    ``dict(enumerate(...))`` does.

Why it matters
    ``load_state_dict`` calls ``startswith`` on every key, and fails on the first that is not a string. safetensors
    rejects the dict as well.

Symptoms
    AttributeError: 'int' object has no attribute 'startswith'
    argument 'tensor_dict': 'int' object is not an instance of 'str'

Detection
    Tensors under such keys, in a model's state dict or in a dict where weights should be (``state_dict``, ``model``).
    A file that is nothing but two or more tensors under numbers may be any data: info, and only where they differ in
    their number of dimensions, as weights and biases do, and embeddings by their ids do not. With a reference it is an
    error. Numbers in an optimizer's state are correct.

Repair
    None by command. In Python: ``{str(key): value for key, value in weights.items()}``, unless that gives two keys one
    name. Where all keys are numbers, only their order shows the names: ``dict(zip(model.state_dict(),
    weights.values()))`` where the shapes agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Part, show_part
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message
from ckptdoctor.rules.structure.bare_list_or_tuple import named_in_order
from ckptdoctor.rules.structure.odd_leaves import numbered, untextual
from ckptdoctor.rules.when import more_than_weights

_NET: dict[object, object] = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
MESSAGES = (
    Message(
        ("'int' object has no attribute 'startswith'",),
        "the dict that was loaded has numbers in the place of names; load_state_dict needs names",
        (CHECK,),
        near=("load_state_dict", "state_dict"),
    ),
)
SICK = (
    Example("a number among names", {**_NET, 0: T((2,))}),
    Example("numbers where weights should be", {"model": {0: T((2, 4)), 1: T((2,))}, "epoch": 3}),
    Example("nothing but numbers", {0: T((2, 4)), 1: T((2,))}),
    Example("a tuple among names", {"state_dict": {**_NET, (1, 2): T((2,))}}),
)
HEALTHY = (
    Example("names", {"model": _NET, "buckets": {0: T((2,)), 1: T((2,))}}),
    Example("an optimizer", {"model": _NET, "optimizer": {"state": {0: {"exp_avg": T((2, 4))}}, "param_groups": []}}),
    Example("a setting under a number", {**_NET, 0: "zero"}),
)


_DATA = "If these are a model's weights, check the file with --like to see whether they fit the model."
_NAMELESS = "Give each of them the name that it has in the model."


@rule("W309", "non-string-keys", Severity.ERROR, when=more_than_weights)
def non_string_keys(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report dicts of weights with keys that are not strings."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    reference = subject.reference if isinstance(subject, Comparison) else None
    for path, odd, number in untextual(checkpoint):
        if reference is not None and len(odd) == number:
            shapes = [each.shape for each in checkpoint.tensors if each.path[:-1] == path]
            place = "".join([f"[{json.dumps(part)}]" for part in path])
            named = named_in_order(shapes, reference, f"torch.load(path){place}.values()")
            yield _problem(path, odd, number, named or _NAMELESS, Severity.ERROR)
        elif reference is None and not path and numbered(checkpoint):
            if len({len(each.shape) for each in checkpoint.tensors}) > 1:
                yield _problem(path, odd, number, _DATA, Severity.INFO)
        else:
            yield _problem(path, odd, number, _advice(odd), Severity.ERROR)


def _problem(path: KeyPath, odd: list[Part], number: int, advice: str, severity: Severity) -> Problem:
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
        advice=advice,
        keys=tuple([(*path, part) for part in odd]),
        location=Location(path=path),
        severity=severity,
    )


def _advice(odd: list[Part]) -> str:
    if all(isinstance(part, int) for part in odd):
        return "In Python: {str(key): value for key, value in weights.items()}, and save that."
    return "Give each of them a name when you save."
