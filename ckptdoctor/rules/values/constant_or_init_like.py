"""A weight tensor has a single value throughout, or still has PyTorch's default initialisation.

Meaning
    A layer was added and never trained before the model was saved, the wrong object was saved, or a script filled it
    with a constant.

Why it matters
    The model runs, but its results are no better than random: for example from a head that was left out of training, or
    an embedding that was tied during training and no longer is.

Symptoms
    Nothing when it is loaded.

Detection
    ``check --deep`` reads every value. ``Linear`` and convolutions of ``torch.nn`` begin with values spread uniformly
    between -1/√fan_in and 1/√fan_in: a weight whose values fill exactly this range uniformly has not been trained; the
    first steps of an optimizer move some beyond it. Other initialisations cannot be distinguished from training.

Repair
    None: the trained values are not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt
from struct import pack, unpack

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Histogram, Read, TensorValues, Values, weights_read

_FEW = 16  # elements that may well be the same
SICK = (Example("one number", {"a.weight": T((8, 8), value=0.5), "a.bias": T((8,), value=0.5)}, deep=True),)
HEALTHY = (
    Example("a norm layer", {"norm.weight": T((64,), value=1.0), "norm.bias": T((64,), value=0.0)}, deep=True),
    Example("a factor of each channel", {"ln.weight": T((64, 1, 1), value=1.0)}, deep=True),
    Example("a scale of each channel", {"a.weight_scale": T((64, 1), value=0.5)}, deep=True),
)
# names of what is not trained, or begins with one number: scales of quantized weights, masks, filters that average
_CONSTANT = ("scale", "mask", "zero", "norm", "blur", "pool", "resample", "filter", "ones")


@rule("V654", "constant-or-init-like", Severity.WARNING)
def constant_or_init_like(values: Values) -> Iterator[Problem]:
    """Report weights that were never trained."""
    matrices = [each for each in weights_read(values) if each.is_matrix]
    constant = [each for each in matrices if _is_constant(each)]
    if constant:
        first = constant[0]
        yield Problem(
            message=(
                f"{wording.plural(len(constant), 'weight tensor has', 'weight tensors have')} a single value "
                f"throughout"
                f"{wording.the_first(show_path(first.tensor.path), len(constant))}, all {first.values.min:.6g}"
            ),
            cause="Training does not leave a weight like this: it was filled by a script, or never trained.",
            advice="Use a trained checkpoint for these tensors.",
            keys=tuple([each.tensor.path for each in constant]),
            location=Location(path=first.tensor.path),
        )
    fresh = [each for each in matrices if _is_fresh(each.tensor, each.values)]
    if fresh:
        yield _fresh(fresh, len(matrices))


def _is_constant(read: Read) -> bool:
    key = read.tensor.key.lower()
    same = read.values.constant and read.values.min != 0 and read.values.count > _FEW
    return same and sum(size > 1 for size in read.tensor.shape) > 1 and not any(word in key for word in _CONSTANT)


def _fresh(fresh: list[Read], total: int) -> Problem:
    first = fresh[0].tensor
    every = len(fresh) == total
    return Problem(
        message=(
            f"{wording.all_of(len(fresh), 'weight tensor') if every else wording.plural(len(fresh), 'weight tensor')} "
            f"still {'has' if len(fresh) == 1 else 'have'} PyTorch's default initialisation"
            f"{wording.the_first(show_path(first.path), len(fresh))}"
        ),
        cause=(
            "The model was saved before it was trained, or the wrong one was saved."
            if every
            else "These layers were never trained: they were added after training, or left out of the optimizer."
        ),
        advice="If that is not intended, use a trained checkpoint for these tensors.",
        keys=tuple([each.tensor.path for each in fresh]),
        location=Location(path=first.path),
        severity=Severity.INFO if every else None,
    )


# Which weights are as ``torch.nn`` makes them, before the first step of any training

_ENOUGH = 1024  # values of which some always come close to the ends of the range
_CLOSE = 0.99  # of the range: with 1,024 even values, chance leaves them short of it once in 30,000 times
_UNEVEN = 1.6  # chi-squared per degree of freedom; of 31 degrees, chance gives more once in 50 weights


def _is_fresh(tensor: Tensor, values: TensorValues) -> bool:
    """Return whether the values fill the range of ``kaiming_uniform_(a=√5)`` exactly and evenly.

    That is what ``reset_parameters`` of Linear and of the convolutions does: evenly between ±1/√fan_in.
    """
    fan_in = prod(tensor.shape[1:])
    if values.count < _ENOUGH or values.finite != values.count or not fan_in or values.histogram is None:
        return False
    bound = 1 / sqrt(fan_in)
    most = _rounded(bound, tensor.dtype.name) * (1 + 1e-6)
    if not (bound * _CLOSE <= values.max <= most and bound * _CLOSE <= -values.min <= most):
        return False
    return _is_even(values.histogram)


def _rounded(bound: float, dtype: str) -> float:
    """Return the end of the range as a narrow dtype has it: a step further, and it was trained."""
    if dtype == "float16":
        return float(unpack("<e", pack("<e", bound))[0])
    if dtype == "bfloat16":  # the upper half of a float32, rounded to even
        (bits,) = unpack("<I", pack("<f", bound))
        return float(unpack("<f", pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0])
    return bound


def _is_even(histogram: Histogram) -> bool:
    total = sum(histogram.counts)
    bins = len(histogram.counts)
    if total < _ENOUGH or bins < 2:
        return False
    expected = total / bins
    return sum((count - expected) ** 2 / expected for count in histogram.counts) / (bins - 1) < _UNEVEN
