"""The file is a list of tensors without names.

What it means
    ``torch.save(list(model.parameters()))``, or a converter from a framework that counts its weights instead of naming
    them, leaves tensors in an order and nothing else.

Why it matters
    ``load_state_dict`` goes by names. Which tensor is which, only the order tells, and buffers (running means) are
    missing where the list was made of ``parameters()``.

What you see
    Expected state_dict to be dict-like, got <class 'list'>.

How it is found
    The top of the file is a list or a tuple of two or more tensors. By itself that may be data of any kind: worth
    knowing and no fault. With a reference it is an error; where the shapes are those of its keys, or of its parameters,
    one after another, that is said.

Repair
    None by command. In Python: ``dict(zip(model.state_dict(), torch.load(path)))`` where the shapes agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Sequence, Tensor
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts.weight_sets import expected_candidates
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SHOW, Message
from ckptdoctor.rules.when import more_than_weights

_NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "bn.running_mean": T((2,))}
MESSAGES = (
    Message(
        ("Expected state_dict to be dict-like, got <class '",),
        "what was given to load_state_dict is a {kind}, where a dict of names and tensors was expected",
        (SHOW,),
        then=r"(?P<kind>list|tuple|set|str|NoneType|torch\.Tensor|numpy\.ndarray)'",
    ),
    Message(
        ("'list' object has no attribute 'items'", "'tuple' object has no attribute 'items'"),
        "the checkpoint is a list where a dict of names and tensors was expected",
        (SHOW,),
        among=("load_state_dict", "torch.load", "state_dict"),
    ),
)
SICK = (
    Example("a list of parameters", [T((2, 4)), T((2,))]),
    Example("a tuple of everything", (T((2, 4)), T((2,)), T((2,))), like=_NET),
    Example("a list of parameters for a model", [T((2, 4)), T((2,))], like=_NET),
)
HEALTHY = (
    Example("a state dict in a list", [3, {"fc.weight": T((2, 4))}]),
    Example("one tensor", [T((2, 4))]),
    Example("a list beside the weights", {"model": _NET, "betas": [T((2,)), T((2,))]}),
)


@rule("W305", "bare-list-or-tuple", Severity.INFO, when=more_than_weights)
def bare_list_or_tuple(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report files that are tensors in a row."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    tree = checkpoint.tree
    if not isinstance(tree, Sequence) or tree.kind not in ("list", "tuple") or len(tree.items) < 2:
        return
    tensors = [each for each in tree.items if isinstance(each, Tensor)]
    if len(tensors) < len(tree.items):
        return
    reference = subject.reference if isinstance(subject, Comparison) else None
    yield Problem(
        message=f"the file is a {tree.kind} of {wording.plural(len(tensors), 'tensor')} without names",
        cause="load_state_dict goes by names; here only the order tells which tensor is which.",
        torch_says=(f"Expected state_dict to be dict-like, got <class '{tree.kind}'>.",),
        advice=_advice([each.shape for each in tensors], reference),
        keys=tuple([each.path for each in tensors]),
        severity=Severity.INFO if reference is None else Severity.ERROR,
    )


def _advice(shapes: list[tuple[int, ...]], reference: Reference | None) -> str:
    if reference is None:
        return "If these are a model's weights: hold the file against the model with --like to see whether they fit."
    if shapes == [each.shape for each in reference.tensors.values()]:
        return f"{_agree('key', reference)} dict(zip(model.state_dict(), torch.load(path)))."
    if shapes == [each.shape for each in expected_candidates(reference.tensors)]:
        return f"{_agree('parameter', reference)} dict(zip(dict(model.named_parameters()), torch.load(path)))."
    return f"One after another the shapes are not those of {reference.source}: which tensor is which cannot be told."


def _agree(noun: str, reference: Reference) -> str:
    return f"One after another the shapes are those of the {noun}s of {reference.source}:"
