"""Weights are stored in a wider dtype than their values need: all of them are exact in half the bytes.

Meaning
    The values were made in float16 or bfloat16 and saved as float32: by a conversion from ZeRO shards, by ``.float()``
    before saving, by a merge.

Why it matters
    The file is twice as large as it has to be, and so is the memory that it is loaded into.

Symptoms
    Nothing.

Detection
    ``check --deep`` casts every value down and up again and compares. All tensors of a network in this dtype have to
    come back the same; those that hold one number throughout (norm layers, biases of zeros) prove nothing.

Repair
    ``--select T554`` casts exactly these tensors, after reading every value again: no value changes, and casting back
    gives the same bytes. ``--dtype`` casts all weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.edits import Cast, Fix, Safety
from ckptdoctor.edits.casts import can_be_cast
from ckptdoctor.facts.weight_sets import may_train
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Read, Values, weights_read

_TARGETS = {"float64": ("bfloat16", "float16", "float32"), "float32": ("bfloat16", "float16")}
_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_TELLING = 64  # different values that are hardly all round by chance
_PATTERN = b"\x00\x00\x80\x3f" * 128  # 1.0 in float32


def _spread(data: bytes, low: int) -> bytes:
    """Return the bytes with 128 different values where the ones are; ``low`` is the lowest byte of each."""
    at = data.index(_PATTERN)
    values = b"".join([bytes([low, 0, number, 0x3F]) for number in range(128)])
    return data[:at] + values + data[at + len(values) :]


SICK = (
    Example(
        "bfloat16 values in float32",
        {"a.weight": T((16, 8), value=1.0)},
        "safetensors",
        ".safetensors",
        damage=lambda data: _spread(data, 0),
        deep=True,
    ),
)
HEALTHY = (
    Example(
        "values that need float32",
        {"a.weight": T((16, 8), value=1.0)},
        damage=lambda data: _spread(data, 1),
        deep=True,
    ),
    Example("a fresh norm layer", {"norm.weight": T((64,), value=1.0), "norm.bias": T((64,), value=0.0)}, deep=True),
)


@rule("T554", "wasted-precision", Severity.INFO)
def wasted_precision(values: Values) -> Iterator[Problem]:
    """Report bytes that say nothing."""
    trained = [each for each in weights_read(values) if may_train(each.tensor.key, each.tensor.dtype)]
    for dtype, targets in _TARGETS.items():
        wide = [each for each in trained if each.tensor.dtype.name == dtype]
        target = next((name for name in targets if _all_fit(wide, name)), None)
        if target is not None:
            saved = sum(each.tensor.numel for each in wide) * (_BYTES[dtype] - _BYTES[target])
            yield Problem(
                message=(
                    f"{wording.all_of(len(wide), dtype + ' tensor')} "
                    f"{'holds' if len(wide) == 1 else 'hold'} only values that {target} holds exactly"
                ),
                cause=f"The values were computed in {target}; {saved:,} bytes of the file hold no information.",
                advice=f"Casting to {target} loses nothing here.",
                keys=tuple([each.tensor.path for each in wide]),
                fix=_fix([each.tensor for each in wide], target),
            )


def _fix(tensors: Sequence[Tensor], target: str) -> Fix | None:
    if not all(map(can_be_cast, tensors)):
        return None
    paths = tuple([tensor.path for tensor in tensors])
    return Fix(f"cast to {target}, losing nothing", (Cast(paths, target, exact=True),), Safety.SAFE, "--select T554")


def _all_fit(wide: Sequence[Read], target: str) -> bool:
    telling = any(not each.values.constant and each.values.count >= _TELLING for each in wide)
    return telling and all(target in each.values.fits for each in wide)
