"""Objects of other packages, or of the script that saved the file, are in the file with the weights.

Meaning
    A meter, a configuration, a logger or a callback was saved in the same dict as the state dict. Its class belongs to
    the training script (``__main__``) or to a package that may not be installed here.

Why it matters
    torch has rejected the whole file since 2.6. With ``weights_only=False`` it loads only where these classes can be
    imported, although the weights themselves are plain tensors.

Symptoms
    WeightsUnpickler error: Unsupported global: GLOBAL __main__.RecorderMeter was not an allowed global by default.
    Can't get attribute 'RecorderMeter' on <module '__main__' …
    No module named 'utils'

Detection
    Names in the pickle that are neither Python's, torch's, NumPy's nor of a package known to leave objects (P210),
    outside of a pickled model.

Repair
    ``ckptdoctor fix FILE --select P205 --unsafe-fixes`` drops those objects that hold no tensors and have a key of
    their own. Unsafe: their contents are lost in the new file. ``--weights-only-safe`` keeps their attributes, as plain
    data, and refuses objects that hold more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.globals import Blocked, BlockedCause, BlockedPlace, blocked_by, outermost, package
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.refusals import not_importable
from ckptdoctor.rules.pickle.packages import to_install
from ckptdoctor.rules.when import unusual_names

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
SICK = (
    Example(
        "a meter of the training script",
        {"model": _WEIGHTS, "recorder": Obj("__main__.RecorderMeter", {"total_epoch": 90, "current_epoch": 3})},
    ),
    Example("a meter that holds a tensor", {"model": _WEIGHTS, "best": Obj("utils.meters.Best", {"loss": T()})}),
)
HEALTHY = (Example("the numbers instead of the meter", {"model": _WEIGHTS, "recorder": {"current_epoch": 3}}),)


@rule("P205", "unimportable-class-junk", Severity.ERROR, when=unusual_names)
def unimportable_class_junk(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report classes of other packages."""
    found = [each for each in blocked_by(checkpoint, BlockedCause.FOREIGN) if not to_install(each.path)]
    if not found:
        return
    places = outermost(found)
    yield Problem(
        message=_message(found, places),
        cause=f"The weights themselves do not need {_packages(found)}, but torch loads all of the file or nothing.",
        torch_says=(*refused.refusal_lines(found[:1]), not_importable(found[0].path)),
        advice=(
            refused.trusting(found, "If you trust the file and have the code: {} before torch.load.")
            + " Next time save only plain data."
            + (f" {refused.KEEP}" if refused.has_plain_forms(checkpoint) else "")
        ),
        keys=tuple([place.path for place in places]),
        location=refused.first_use(found),
        fix=refused.drop_objects_fix(checkpoint, places, "P205"),
    )


def _message(found: Sequence[Blocked], places: Sequence[BlockedPlace]) -> str:
    what = refused.classes(found)
    if not places:
        return f"the pickle names {what}, which may not exist where it is loaded"
    if len(places) == 1:
        return f"{refused.where(places[0])} is of the class {what}, which may not exist where it is loaded"
    return (
        f"{wording.plural(len(places), 'object')} ({refused.listed_places(places)}) are of {what}, which may not exist"
    )


def _packages(found: Sequence[Blocked]) -> str:
    names = dict.fromkeys([package(each.path) for each in found])
    return wording.listed(["the training script" if name == "__main__" else name for name in names])
