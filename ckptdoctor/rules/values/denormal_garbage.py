"""The magnitudes of the values are those of random bits, not of weights.

Meaning
    Some values are smaller than 1e-18 and others, in the same tensor, larger than 1e6. Memory that was allocated and
    never written looks like that, and so do bytes that are read in the wrong byte order or with the wrong dtype.

Why it matters
    The layer computes nonsense, and ``torch.load`` does not report it.

Symptoms
    Nothing when it is loaded; then infinities, NaN or noise.

Detection
    ``check --deep`` counts the exponents of evenly spaced values of every float32, float64 and bfloat16 weight: at
    least one in 20 is below 2^-60, and at least one in 20 above 2^20. Weights that decayed to almost nothing, as in
    dead channels, are not mixed with large ones.

Repair
    None: nothing in the file shows what the values were. If all tensors are affected, the bytes may be in the other
    order: see C113. Otherwise load the weights again from their source, and save them again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Read, TensorValues, Values, weights_read

_TINY, _HUGE = -60, 20  # exponents
_SHARE = 0.05  # of the values that are not zero
_ENOUGH = 64  # values that are not zero
_WIDE = ("float32", "float64", "bfloat16")
_ONE = b"\x00\x00\x80\x3f"  # 1.0 in float32


def _scrambled(data: bytes) -> bytes:
    """Return the bytes with values of all sizes where the ones are."""
    at = data.index(_ONE * 256)
    values = b"".join([bytes([number, 7, number, number]) for number in range(256)])
    return data[:at] + values + data[at + len(values) :]


SICK = (Example("uninitialised memory", {"a.weight": T((16, 16), value=1.0)}, damage=_scrambled, deep=True),)
HEALTHY = (
    Example("a dead layer", {"a.weight": T((16, 16), value=1e-30)}, deep=True),
    Example("weights", {"a.weight": T((16, 16), value=0.5)}, deep=True),
)


@rule("V655", "denormal-garbage", Severity.ERROR)
def denormal_garbage(values: Values) -> Iterator[Problem]:
    """Report sizes that no weights have."""
    found = [each for each in weights_read(values) if _is_garbage(each)]
    if not found:
        return
    first = found[0].tensor
    yield Problem(
        message=(
            f"the values of {wording.plural(len(found), 'tensor')} look like random bits, some below 1e-18 "
            f"next to others above 1e6{wording.the_first(show_path(first.path), len(found))}"
        ),
        cause="Memory that was never written, or bytes read in the wrong byte order or dtype.",
        advice="Load the weights again from their source, check these tensors, and save them again.",
        keys=tuple([each.tensor.path for each in found]),
        location=Location(path=first.path),
    )


def _is_garbage(read: Read) -> bool:
    return read.tensor.dtype.name in _WIDE and _spread(read.values)


def _spread(values: TensorValues) -> bool:
    exponents = values.histogram.exponents if values.histogram is not None else ()
    total = sum(count for _, count in exponents)
    tiny = sum(count for exponent, count in exponents if exponent < _TINY)
    huge = sum(count for exponent, count in exponents if exponent > _HUGE)
    return total >= _ENOUGH and min(tiny, huge) >= _SHARE * total
