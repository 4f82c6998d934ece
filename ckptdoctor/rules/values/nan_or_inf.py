"""Weights hold NaN or infinity.

Meaning
    Training diverged and continued, a loss in float16 overflowed, a layer divided by zero, or bytes were damaged. A
    single NaN in a weight makes every output of its layer NaN.

Why it matters
    ``torch.load`` and ``load_state_dict`` silently accept them. Metrics then become NaN, detections empty, images
    black. Resumed training never recovers: an optimizer spreads NaN to every parameter that it updates.

Symptoms
    Nothing at all, or a loss of NaN.

Detection
    ``check --deep`` reads every value. Infinities in attention masks and in bounds (of quantization observers, metrics
    and ranges: ``min_val``, ``low``, ``upper_bound``) are intended and not counted, nor are those in the scores of
    Lightning's callbacks (``kth_value``). O756 reports the state of optimizers.

Repair
    No automatic one: replacing them with zeros gives a plausible but wrong model. If the file holds the same network a
    second time (an average and the raw weights) and that copy is finite, the finding names it, and ``ckptdoctor graft
    FILE --from FILE --root model --from-root model_ema --unsafe-fixes`` replaces the tensors that have NaN with its
    tensors: a mixture that you should examine before you use it. If only the bytes of this file were damaged,
    ``ckptdoctor graft FILE --from OTHER`` takes the tensors from an intact copy. Otherwise go back to the previous
    checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor, show_path
from ckptdoctor.facts.weight_sets import networks
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import TensorValues, Values, may_be_infinite, not_finite

_NAN, _INF = float("nan"), float("inf")
SICK = (
    Example("a NaN", {"fc.weight": T((4, 3), value=_NAN), "fc.bias": T((4,), value=0.5)}, deep=True),
    Example("an infinity in bfloat16", {"fc.weight": T((4, 3), "bfloat16", value=_INF)}, deep=True),
    Example(
        "raw weights next to a finite average",
        {
            "model": {"fc.weight": T((4, 3), value=_NAN), "fc.bias": T((4,), value=0.5)},
            "model_ema": {"fc.weight": T((4, 3), value=0.25), "fc.bias": T((4,), value=0.5)},
        },
        deep=True,
    ),
)
HEALTHY = (
    Example("finite values", {"fc.weight": T((4, 3), value=0.5), "fc.bias": T((4,), value=0.0)}, deep=True),
    Example("open bounds", {"space.high": T((4,), value=_INF), "fc.weight": T((4, 4), value=0.5)}, deep=True),
    Example(
        "a callback without a score yet",
        {
            "state_dict": {"fc.weight": T((4, 4), value=0.5)},
            "callbacks": {"ModelCheckpoint": {"kth_value": T((), value=_INF)}},
        },
        deep=True,
    ),
    Example("a mask", {"attn.mask": T((4, 4), value=-_INF), "attn.weight": T((4, 4), value=0.5)}, deep=True),
)


@rule("V651", "nan-or-inf", Severity.ERROR)
def nan_or_inf(values: Values) -> Iterator[Problem]:
    """Report values that are NaN or infinite."""
    weights = not_finite(values)
    if weights:
        yield Problem(
            message=f"{_told(weights)}{wording.the_first(show_path(weights[0][0].path), len(weights))}",
            cause="Training diverged, float16 overflowed, or bytes were damaged; the output of such a layer is NaN.",
            advice=_advice(values),
            keys=tuple([tensor.path for tensor, _ in weights]),
            location=Location(path=weights[0][0].path),
        )


def _told(found: Sequence[tuple[Tensor, TensorValues]]) -> str:
    nan, infinite = sum(read.nan for _, read in found), sum(read.infinite for _, read in found)
    words = [f"{nan:,} NaN"] if nan else []
    words += [wording.plural(infinite, "infinity", "infinities")] if infinite else []
    return f"{' and '.join(words)} in {wording.plural(len(found), 'tensor')}"


def _advice(values: Values) -> str:
    never = "Never replace them with zeros: the model would be plausible but wrong."
    pairs = finite_copies(values)
    if pairs:
        sick, whole = pairs[0]
        bad = show_path(sick.path) or "the one at the top"
        use = f"The same network in {show_path(whole.path)} is finite: use it instead of {bad}"
        return f"{use}{_splice(show_path(sick.path), show_path(whole.path))}. {never}"
    copied = "if only this file was damaged, ckptdoctor graft FILE --from OTHER takes them from another copy"
    if copies(values.checkpoint):
        every = "Every copy of the network in this file is affected"
        return f"{every}: go back to the previous checkpoint; {copied}. {never}"
    return f"Go back to the previous checkpoint; {copied}. {never}"


def _splice(sick: str, whole: str) -> str:
    """Return the command that takes single tensors of the finite copy, where both have names that a shell takes."""
    if not all(re.fullmatch(r"[\w./-]+", name, re.ASCII) and name[0] != "-" for name in (sick, whole)):
        return ""
    command = f"ckptdoctor graft FILE --from FILE --root {sick} --from-root {whole} --unsafe-fixes"
    return f", or take single tensors from it with {command}, which makes a mixture of both"


def finite_copies(values: Values) -> list[tuple[StateDict, StateDict]]:
    """Yield sets of weights that are not finite, each with another set of the same network that is, in file order."""
    return [
        (sick, whole)
        for network in networks(values.checkpoint)
        for sick in network.sets
        if not _is_finite(values, sick)
        for whole in [next((each for each in network.sets if _is_finite(values, each)), None)]
        if whole is not None
    ]


def copies(checkpoint: Checkpoint) -> bool:
    """Return whether some network is there more than once: as it was trained, and averaged."""
    return any(len(each.sets) > 1 for each in networks(checkpoint))


def _is_finite(values: Values, state_dict: StateDict) -> bool:
    """Return whether all its tensors were read, and none holds NaN or an infinity that does not belong there."""
    for tensor in state_dict.tensors:
        read = values.of(tensor)
        if tensor.numel and (read is None or read.nan or (read.infinite and not may_be_infinite(tensor))):
            return False
    return True
