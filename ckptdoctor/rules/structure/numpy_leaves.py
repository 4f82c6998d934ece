"""A state dict has NumPy arrays instead of tensors.

Meaning
    Weights that were converted from another framework, or that went through ``.numpy()``, were saved as arrays.

Why it matters
    ``load_state_dict`` accepts only tensors. That shows once the file is loaded with ``weights_only=False``; before
    that torch rejects the arrays themselves, which is P202.

Symptoms
    While copying the parameter named "fc.weight", expected torch.Tensor or Tensor-like object from checkpoint but
    received <class 'numpy.ndarray'>

Detection
    Arrays among the tensors of a model's state dict; or a dict of only arrays under names with dots, at the top of the
    file or under a key like ``state_dict`` or ``model``.

Repair
    The repair of P202 converts the arrays of a torch file to tensors with the same elements. Elsewhere, in Python:
    ``{key: torch.as_tensor(value) for key, value in weights.items()}``, and save again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SHOW, Message
from ckptdoctor.rules.structure.odd_leaves import Leaf, arrays
from ckptdoctor.rules.when import more_than_weights

_ARRAY = Obj("numpy.array", arguments=([0.5, 0.25],))
MESSAGES = (
    Message(
        ("expected torch.Tensor or Tensor-like object from checkpoint but received",),
        "an entry of the checkpoint is not a tensor ({kind}), but the model has a parameter with its name",
        (SHOW,),
        then=r"<class'(?P<kind>[\w.]{1,200})'>",
        also=("W307",),
    ),
)
SICK = (
    Example("weights as arrays", {"model": {"fc.weight": _ARRAY, "fc.bias": _ARRAY}, "epoch": 3}),
    Example("bare weights as arrays", {"fc.weight": _ARRAY, "fc.bias": _ARRAY}),
    Example("one array among tensors", {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "fc.scale": _ARRAY}),
)
HEALTHY = (
    Example("tensors", {"fc.weight": T((2, 4)), "fc.bias": T((2,))}),
    Example("an array next to the weights", {"model": {"fc.weight": T((2, 4))}, "mean": _ARRAY}),
    Example("arrays that are not weights", {"losses": _ARRAY, "accuracies": _ARRAY}),
)


@rule("W306", "numpy-leaves", Severity.ERROR, when=more_than_weights)
def numpy_leaves(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report state dicts of arrays."""
    for path, found, number in arrays(checkpoint):
        yield _problem(path, found, number)


def _problem(path: KeyPath, found: list[Leaf], number: int) -> Problem:
    some = wording.all_of(number, "value") if len(found) == number else f"{len(found):,} of {number:,} values"
    return Problem(
        message=f"{some}{wording.of_place(path)} are NumPy arrays, not tensors"
        if len(found) > 1
        else _single(found[0]),
        cause="load_state_dict accepts only tensors, even if the file is loaded with weights_only=False.",
        torch_says=(
            f'While copying the parameter named "{found[0].key}", expected torch.Tensor or Tensor-like object from '
            "checkpoint but received <class 'numpy.ndarray'>",
        ),
        advice="In Python: {key: torch.as_tensor(value) for key, value in weights.items()}, and save that.",
        keys=tuple([each.path for each in found]),
        location=Location(path=path),
    )


def _single(found: Leaf) -> str:
    return f"{found.key}{wording.of_place(found.path[:-1])} is a NumPy array, not a tensor"
