"""A state dict holds values other than tensors.

Meaning
    A number, a string or None was put among the weights; or a module with ``get_extra_state`` (TransformerEngine) saved
    its additional state.

Why it matters
    Extra states are loaded by the modules that saved them. Anything else makes ``load_state_dict`` fail, and
    safetensors accepts neither.

Symptoms
    Unexpected key(s) in state_dict: "epoch".
    While copying the parameter named "fc.scale", expected torch.Tensor or Tensor-like object from checkpoint but
    received <class 'float'>
    Key `epoch` is invalid, expected torch.Tensor but received <class 'int'>

Detection
    Most values of a model's state dict are tensors, and some are not. By itself that is info, not a fault; with a
    reference, a value that is not extra state is a warning, and an error where the reference has a tensor with that
    name.

Repair
    With a reference, ``ckptdoctor fix FILE --drop KEY`` leaves out values that its model does not have. Unsafe: the
    values are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, Opaque
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.patterns import key_patterns
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.quantized import unfit_of
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.structure.odd_leaves import Leaf, non_tensors, sets_with_others
from ckptdoctor.rules.when import more_than_weights
from ckptdoctor.shell import word

_NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "out.weight": T((2, 2))}
_REFUSED = "is invalid, expected torch.Tensor but received"
MESSAGES = (
    Message(
        (f"{_REFUSED} <class 'collections.OrderedDict'>", f"{_REFUSED} <class 'dict'>"),
        "a value in the dict is a dict of its own, and safetensors holds only tensors, not dicts of them",
        (Way("save that dict alone, such as", 'safetensors.torch.save_file(weights["state_dict"], path)'),),
        also=("W306",),
    ),
    Message(
        (_REFUSED,),
        "a value in the dict is not a tensor ({kind}), and safetensors holds only tensors",
        (Way("leave out other values", "isinstance(value, torch.Tensor)"),),
        then=r"<class'(?P<kind>[\w.]{1,100})'>",
        also=("W306",),
        general=1,
    ),
)
SICK = (
    Example("a number among the weights", {**_NET, "epoch": 3}),
    Example("an extra state", {"model": {**_NET, "fc._extra_state": None}}),
    Example("a number that the target does not have", {"model": {**_NET, "epoch": 3}}, like=_NET),
    Example("a number where a tensor should be", {**_NET, "fc.scale": 0.5}, like={**_NET, "fc.scale": T(())}),
)
HEALTHY = (
    Example("tensors only", _NET),
    Example("values next to the weights", {"model": _NET, "epoch": 3, "best": T(())}),
    Example("settings with a tensor", {"mean": T((3,)), "kind": "normal", "size": 3}),
    Example("an extra state for a model", {**_NET, "fc._extra_state": None}, like=_NET),
)

_NAMED = 3  # values that a sentence names
_PATTERNS = 8  # --drop options on one command line


@rule("W307", "non-tensor-in-state-dict", Severity.INFO, when=more_than_weights)
def non_tensor_in_state_dict(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report state dicts with values that are not tensors."""
    if isinstance(subject, Comparison):
        yield from _compared(subject)
        return
    for state_dict in sets_with_others(subject):
        found = non_tensors(subject, state_dict)
        if found:
            yield _known(found)


def _known(found: list[Leaf]) -> Problem:
    extra = [each for each in found if each.is_extra_state]
    others = [each for each in found if not each.is_extra_state]
    return Problem(
        message=_message(found),
        cause=(
            "safetensors accepts only tensors; load_state_dict passes extra state to the module that saved it."
            if not others
            else "load_state_dict and safetensors accept only tensors."
        ),
        torch_says=_lines(others or extra, unexpected=bool(others)),
        keys=tuple([each.path for each in found]),
        location=Location(path=found[0].path[:-1]),
    )


def _compared(comparison: Comparison) -> Iterator[Problem]:
    if comparison.state_dict is None or comparison.uncovered:
        return
    packed = {path for layer in unfit_of(comparison).layers for path in (*layer.gone, layer.weight.path[:-1])}  # Q954
    odd = non_tensors(comparison.checkpoint, comparison.state_dict)
    found = [each for each in odd if not each.is_extra_state and each.path not in packed]
    wanted = [each for each in found if comparison.final_name(each.key) in comparison.reference.tensors]
    if wanted:
        yield Problem(
            message=f"{_message(wanted)}, where {comparison.reference.source} has tensors",
            cause="load_state_dict copies only tensors.",
            torch_says=tuple([_refused(comparison.final_name(each.key), each.node) for each in wanted[:_NAMED]]),
            advice="Save them as tensors: torch.tensor(value).",
            keys=tuple([each.path for each in wanted]),
            location=Location(path=comparison.path),
            severity=Severity.ERROR,
        )
    strange = [each for each in found if comparison.final_name(each.key) not in comparison.reference.tensors]
    if strange:
        yield Problem(
            message=f"{_message(strange)}, and unknown to {comparison.reference.source}",
            cause="load_state_dict does not ignore them, whatever they are.",
            torch_says=(wording.unexpected_line([each.key for each in strange]),),
            keys=tuple([each.path for each in strange]),
            location=Location(path=comparison.path),
            fix=_fix(comparison, strange),
            severity=Severity.WARNING,
        )


def _fix(comparison: Comparison, found: list[Leaf]) -> Fix | None:
    gone = {each.key for each in found}
    state_dict = comparison.state_dict
    others = [key for key in state_dict.others if key not in gone] if state_dict is not None else []
    staying = [*(tensor.key for tensor in comparison.renamed.here.values()), *others]
    patterns = key_patterns([each.key for each in found], staying)
    if len(patterns) > _PATTERNS:
        return None
    option = " ".join([f"--drop {word(pattern)}" for pattern in patterns])
    edits = (Drop(tuple([each.path for each in found])),)
    return Fix(f"drop {wording.plural(len(found), 'value')}", edits, Safety.UNSAFE, option)


def _message(found: Sequence[Leaf]) -> str:
    named = wording.listed(found, _NAMED, say=lambda each: f"{each.key} ({kind(each.node)})")
    place = wording.of_place(found[0].path[:-1])
    words = "1 value{} is not a tensor: {}" if len(found) == 1 else "{:,} values{} are not tensors: {}"
    return words.format(*(() if len(found) == 1 else (len(found),)), place, named)


def _lines(found: Sequence[Leaf], *, unexpected: bool) -> tuple[str, ...]:
    safetensors = f"Key `{found[0].key}` is invalid, expected torch.Tensor but received <class '{kind(found[0].node)}'>"
    return (wording.unexpected_line([each.key for each in found]), safetensors) if unexpected else (safetensors,)


def _refused(key: str, node: Node) -> str:
    return (
        f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint '
        f"but received <class '{kind(node)}'>"
    )


def kind(node: Node) -> str:
    """Return what ``type(value)`` shows: ``int``, ``NoneType``, ``collections.OrderedDict``."""
    if isinstance(node, (Mapping, Items)):
        return node.kind
    return node.class_name if isinstance(node, Opaque) else type(node).__name__
