"""The file holds objects that ``torch.load`` has rejected since torch 2.6.

Meaning
    Besides tensors and plain data the checkpoint holds objects of other classes, such as the ``argparse.Namespace`` of
    the command line. Since torch 2.6 ``weights_only=True`` is the default, which accepts only a short list of classes.

Why it matters
    The file does not load as it is. With ``weights_only=False`` it does, but then a file from a stranger can run any
    command on your machine.

Symptoms
    Weights only load failed. …
    WeightsUnpickler error: Unsupported global: GLOBAL argparse.Namespace was not an allowed global by default.

Detection
    Every class and function that the pickle names is looked up in torch's own list; none is imported or called. Other
    rules report the names that they know more about: P202 NumPy, P203 paths, P204 whole models, P205 classes of other
    packages, P206 dangerous ones. Members of enums that Python 3.11.0 to 3.11.3 saved (Debian 12 has 3.11.2) belong
    here, too: the file has ``getattr`` with their names, and not their values.

Repair
    ``ckptdoctor fix FILE --weights-only-safe`` converts everything that torch rejects to plain data: a Namespace to a
    dict, a date to its ISO text. Safe: nothing inside is left out, and it refuses what plain data cannot express. Where
    it refuses, ``--select P201`` converts only objects that consist of nothing but their attributes. Other objects
    stay: allow their classes with ``torch.serialization.add_safe_globals``, or leave them out when saving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.globals import NEEDS_IMPORT, TYPE_TAGS, Blocked, BlockedCause, BlockedPlace, blocked_by
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.blocked import Objects, convertible
from ckptdoctor.rules.messages import CHECK, NOT_ALLOWED, Message, Way, Weight
from ckptdoctor.rules.pickle.old_torch_internal_global import is_unknown_internal
from ckptdoctor.rules.when import unusual_names

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
_PARTS = (
    Way("convert it to plain data", "ckptdoctor fix FILE --weights-only-safe"),
    CHECK,
)
MESSAGES = (
    Message(
        ("GLOBAL",),
        "the file holds an object of {global} besides the tensors, and torch 2.6 and later load only tensors "
        "and plain values",
        _PARTS,
        then=NOT_ALLOWED,
        also=("P202", "P203", "P204", "P205", "D605"),
        general=2,
    ),
    Message(
        ("Trying to call reduce for unrecognized function", "Can only create new object for nn.Parameter or classes"),
        "the file holds an object that torch 2.6 and later do not build: they load only tensors and plain values",
        _PARTS,
        also=("P202", "P203", "P204", "P205"),
    ),
    Message(
        ("Can only build Tensor, Parameter, OrderedDict or types allowlisted", "Can only build Tensor, parameter or"),
        "the file holds an object that torch 2.6 and later do not build: they load only tensors and plain values",
        _PARTS,
        also=("P202", "P203", "P204", "P205"),
    ),
    Message(
        ("must be imported to load nested jagged tensors",),
        "the file holds nested (jagged) tensors, whose code torch has not imported yet",
        (Way("before loading", "import torch.nested, torch._dynamo"),),
        also=("A709", "A710"),
    ),
    Message(
        ("Unsupported class", "unsupported class"),
        "the file names a class that torch does not load with weights_only: it loads only tensors and plain values",
        _PARTS,
        then=r"[a-z_]\w{0,60}\.",
        also=("P202", "P203", "P204", "P205"),
    ),
    Message(
        ("Weights only load failed", "was not an allowed global"),
        "torch rejects the file: it is not a checkpoint, or it holds more than tensors and plain values. The "
        "next line of the error shows which; it is not in this text",
        (CHECK,),
        also=("P202", "P203", "P204", "P205", "F001", "F002", "F003", "C101", "C104"),
        weight=Weight.ECHO,
    ),
)
SICK = (
    Example(
        "the arguments of the command line",
        {"model": _WEIGHTS, "epoch": 3, "args": Obj("argparse.Namespace", {"lr": 0.1, "betas": [0.9, 0.999]})},
    ),
    Example("a function", {"model": _WEIGHTS, "act": Obj("functools.partial", arguments=(len,))}),
)
HEALTHY = (
    Example("tensors and plain data", {"model": _WEIGHTS, "args": {"lr": 0.1}, "when": "2024-05-01", "s": {1, 2}}),
    Example("parameters of every common dtype", [T((2,), name, parameter=True) for name in ("float16", "bfloat16")]),
)
_CAUSE = "torch.load accepts only tensors, plain data and a short list of classes since 2.6 (weights_only=True)."
_NOT_PLAIN = "Such an object cannot be expressed as plain data; leave it out when you save."
_TAGS = (
    "C++ wrote it with the types of its lists and dicts, which Python does not need: "
    'torch.save(ckptdoctor.load(FILE), "plain.pt") writes the same without them.'
)


@rule("P201", "weights-only-blocked-global", Severity.ERROR, when=unusual_names)
def weights_only_blocked_global(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report classes and functions that are not on torch's list."""
    found = [each for each in blocked_by(checkpoint, BlockedCause.OTHER) if not is_unknown_internal(each.path)]
    later = tuple([each for each in found if each.path in NEEDS_IMPORT])
    if later:
        yield _needs_import(later)
    plain, values, rest = convertible(tuple([each for each in found if each.path not in NEEDS_IMPORT]))
    if plain.places:
        yield _curable(checkpoint, plain, values)
    if rest.blocked:
        yield _incurable(checkpoint, rest)
    parts = blocked_by(checkpoint, BlockedCause.PART)
    if parts:
        yield _part(checkpoint, parts)


_GETATTR = "builtins.getattr"


def _part(checkpoint: Checkpoint, found: tuple[Blocked, ...]) -> Problem:
    looked_up = [f"{part.module}.{part.name}" for each in checkpoint.globals for part in each.looks_up]
    return Problem(
        message=f"the file looks up {refused.listed_names(list(dict.fromkeys(looked_up)))} by getattr, "
        "which torch.load rejects",
        cause="Python 3.11.0 to 3.11.3 saves members of enums so, and pickle protocols below 4 save a class within a "
        "class so.",
        torch_says=refused.refusal_lines(found),
        advice="Do not allow getattr: it would reach more than a file names. ckptdoctor.load(FILE) opens the file and "
        "runs nothing. When you save, put the value of a member (member.value) in its place, and no class within a "
        "class.",
        keys=tuple([place.path for each in found if each.path == _GETATTR for place in each.places]),
        location=refused.first_use(found),
    )


def _curable(checkpoint: Checkpoint, objects: Objects, values: list[object]) -> Problem:
    return Problem(
        message=_message(objects),
        cause=_CAUSE,
        torch_says=refused.refusal_lines(objects.blocked),
        advice=refused.trusting(objects.blocked, "Or allow the class where you load it: {}"),
        keys=tuple([place.path for place in objects.places]),
        location=refused.first_use(objects.blocked),
        fix=refused.plain_fix(
            checkpoint,
            objects,
            values,
            f"convert {wording.plural(len(objects.places), 'object')} to plain data",
            "P201",
        ),
    )


def _incurable(checkpoint: Checkpoint, objects: Objects) -> Problem:
    return Problem(
        message=_message(objects),
        cause=_CAUSE,
        torch_says=refused.refusal_lines(objects.blocked),
        advice=(
            refused.trusting(objects.blocked, "If you trust the file: {} before torch.load.")
            + " "
            + (_TAGS if _only_tags(objects) else refused.KEEP if refused.has_plain_forms(checkpoint) else _NOT_PLAIN)
        ),
        keys=tuple([place.path for place in objects.places]),
        location=refused.first_use(objects.blocked),
    )


def _only_tags(objects: Objects) -> bool:
    return not objects.places and all(each.path in TYPE_TAGS for each in objects.blocked)


def _message(objects: Objects) -> str:
    if not objects.places:
        return f"the pickle names {refused.classes(objects.blocked)}, which torch.load rejects"
    if len(objects.places) == 1:
        return f"{refused.where(objects.places[0])} is {_what(objects.places[0], objects.blocked)}"
    number = wording.plural(len(objects.places), "object")
    return f"{number} of {refused.classes(objects.blocked)} ({refused.listed_places(objects.places)})"


def _what(place: BlockedPlace, blocked: Sequence[Blocked]) -> str:
    """Return the class of the object itself: others that it refers to are told by torch's lines."""
    name = next(each.path for each in blocked if place in each.places)
    return f"{wording.article(name)} {name}"


def _needs_import(found: tuple[Blocked, ...]) -> Problem:
    modules = list(dict.fromkeys([NEEDS_IMPORT[each.path] for each in found]))
    return Problem(
        message=f"the file holds {refused.classes(found)}, which torch loads only after an import",
        cause="torch registers these kinds of tensors only when their module is imported.",
        torch_says=refused.refusal_lines(found),
        advice=f"import {', '.join(modules)} before torch.load.",
        keys=tuple(dict.fromkeys([place.path for each in found for place in each.places])),
        location=refused.first_use(found),
        severity=Severity.WARNING,
    )
