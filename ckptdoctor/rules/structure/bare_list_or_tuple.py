"""The file is a list of tensors without names.

Meaning
    ``torch.save(list(model.parameters()))``, or a converter from a framework that counts its weights instead of naming
    them, leaves only the order of the tensors.

Why it matters
    ``load_state_dict`` needs names. Only the order shows which tensor is which, and buffers (running means) are missing
    if the list was made from ``parameters()``.

Symptoms
    Expected state_dict to be dict-like, got <class 'list'>.

Detection
    The top of the file is a list or a tuple of two or more tensors. By itself that may be any data: info, not a fault.
    With a reference it is an error; if the shapes are those of its keys, or of its parameters, in order, that is
    reported.

Repair
    None by command. In Python: ``dict(zip(model.state_dict(), torch.load(path)))`` where the shapes agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Sequence
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.facts.weight_sets import expected_candidates
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import SHOW, Message
from ckptdoctor.rules.structure.odd_leaves import unnamed
from ckptdoctor.rules.when import more_than_weights

_NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "bn.running_mean": T((2,))}
MESSAGES = (
    Message(
        ("Expected state_dict to be dict-like, got <class '",),
        "load_state_dict takes a dict of names and tensors, and what it was given is of the type {kind}",
        (SHOW,),
        then=r"(?P<kind>list|tuple|set|str|NoneType|torch\.Tensor|numpy\.ndarray)'",
    ),
    Message(
        ("'list' object has no attribute 'items'", "'tuple' object has no attribute 'items'"),
        "the checkpoint is a list instead of a dict of names and tensors",
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
    Example("a list next to the weights", {"model": _NET, "betas": [T((2,)), T((2,))]}),
)


@rule("W305", "bare-list-or-tuple", Severity.INFO, when=more_than_weights)
def bare_list_or_tuple(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report files that are tensors in a row."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    tree, tensors = checkpoint.tree, unnamed(checkpoint)
    if tensors is None or not isinstance(tree, Sequence):
        return
    reference = subject.reference if isinstance(subject, Comparison) else None
    yield Problem(
        message=f"the file is a {tree.kind} of {wording.plural(len(tensors), 'tensor')} without names",
        cause="load_state_dict needs names; here only the order shows which tensor is which.",
        torch_says=(f"Expected state_dict to be dict-like, got <class '{tree.kind}'>.",),
        advice=_advice([each.shape for each in tensors], reference),
        keys=tuple([each.path for each in tensors]),
        severity=Severity.INFO if reference is None else Severity.ERROR,
    )


def _advice(shapes: list[tuple[int, ...]], reference: Reference | None) -> str:
    if reference is None:
        return "If these are a model's weights, check the file with --like to see whether they fit the model."
    return named_in_order(shapes, reference, "torch.load(path)") or (
        f"In order, the shapes are not those of {reference.source}: nothing shows which tensor is which."
    )


def named_in_order(shapes: list[tuple[int, ...]], reference: Reference, tensors: str) -> str:
    """Return how to name tensors by their order (``tensors``: what gives them in Python); "" where shapes differ."""
    if shapes == [each.shape for each in reference.tensors.values()]:
        return f"{_agree('key', reference)} dict(zip(model.state_dict(), {tensors}))."
    if shapes == [each.shape for each in expected_candidates(reference.tensors)]:
        return f"{_agree('parameter', reference)} dict(zip(dict(model.named_parameters()), {tensors}))."
    return ""


def _agree(noun: str, reference: Reference) -> str:
    return f"In order, the shapes are those of the {noun}s of {reference.source}:"
