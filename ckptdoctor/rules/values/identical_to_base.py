"""Every weight is byte-identical to that of the checkpoint that it is compared with: nothing was trained.

Meaning
    A model that was meant to be fine-tuned is its base, byte for byte: the optimizer did not get the parameters, they
    were frozen, an adapter was never merged, or the wrong object was saved.

Why it matters
    The file works as well as its base, and no better. Nobody notices until results are compared.

Symptoms
    Nothing: "the fine-tune has no effect".

Detection
    ``check --deep --like BASE`` compares the bytes of all tensors with those of the same name, shape and dtype there.
    Buffers, such as running statistics, may have changed, as they do without training. If some weights have changed, or
    there are others, V658 names them.

Repair
    None: the trained values are not in the file. Save the trained model, or check whether its optimizer was given
    ``model.parameters()`` with ``requires_grad``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.weight_sets import may_train
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.same_as_base import SameAsBase
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording

_BASE: dict[str, object] = {"fc.weight": T((4, 3), value=0.5), "fc.bias": T((4,), value=0.25)}
_STATISTICS = {"bn.running_mean": T((4,), value=1.0)}
SICK = (
    Example("nothing was trained", _BASE, like=_BASE, deep=True),
    Example(
        "only statistics have changed",
        {"model": {**_BASE, **_STATISTICS}},
        like={**_BASE, "bn.running_mean": T((4,), value=0.0)},
        deep=True,
    ),
)
HEALTHY = (
    Example("a head that was trained", {**_BASE, "fc.bias": T((4,), value=0.75)}, like=_BASE, deep=True),
    Example("a new layer", {**_BASE, "head.weight": T((4, 4), value=0.75)}, like=_BASE, deep=True),
    Example("only names and shapes are compared", _BASE, like=_BASE),
)


@rule("V657", "identical-to-base", Severity.WARNING)
def identical_to_base(found: SameAsBase) -> Iterator[Problem]:
    """Report models that are their base."""
    same = [each for each in found.same if may_train(each.key, each.dtype)]
    rest = [each for each in (*found.different, *found.unknown) if may_train(each.key, each.dtype)]
    if rest or not same:
        return
    comparison = found.comparison
    place = comparison.path
    yield Problem(
        message=f"{wording.all_of(len(same), 'weight')}{wording.of_place(place)} {'is' if len(same) == 1 else 'are'} "
        f"byte-identical to {comparison.reference.source}",
        cause="If it was trained from there, training had no effect: the parameters were frozen, the optimizer did "
        "not get them, or the wrong object was saved.",
        advice="Make sure that you saved the trained model.",
        keys=tuple([each.path for each in same]),
        location=Location(path=place),
    )
