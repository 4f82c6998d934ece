"""Some value is too large for float16, which would make it infinite.

Meaning
    float16 ends at 65,504. This file's float32, float64 or bfloat16 tensors hold larger values.

Why it matters
    ``model.half()``, ``torch_dtype=torch.float16`` and ``load_state_dict`` into a float16 model silently make them
    infinite, and everything after that layer NaN. Running variances of norm layers are the usual case.

Symptoms
    Nothing when it is cast; NaN, black images or empty text afterwards.

Detection
    ``check --deep`` reads every value.

Repair
    None is needed: keep the file as it is. Cast the model to bfloat16 (``--dtype bfloat16``; ``--dtype float16`` is
    refused here), or keep the named layers in float32 (``_keep_in_fp32_modules`` in transformers).
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Values, weights_read

_LARGEST = 65_504.0
_WIDER = ("float64", "float32", "bfloat16")
SICK = (
    Example("a running variance", {"bn.weight": T((4,), value=1.0), "bn.running_var": T((4,), value=1e6)}, deep=True),
    Example("a weight in bfloat16", {"a.weight": T((4, 3), "bfloat16", value=1e5)}, deep=True),
)
HEALTHY = (
    Example("the largest float16", {"a.weight": T((4, 3), value=65_504.0)}, deep=True),
    Example("small values", {"a.weight": T((4, 3), "bfloat16", value=0.5)}, deep=True),
)


@rule("T552", "fp16-overflow-risk", Severity.WARNING)
def fp16_overflow_risk(values: Values) -> Iterator[Problem]:
    """Report values beyond float16."""
    wide = [each for each in weights_read(values) if each.tensor.dtype.name in _WIDER]
    found = [each for each in wide if each.values.absmax > _LARGEST]
    if not found:
        return
    worst = max(found, key=lambda each: each.values.absmax)
    yield Problem(
        message=(
            f"{wording.plural(len(found), 'tensor holds', 'tensors hold')} values that float16 makes infinite; "
            f"the largest is {worst.values.absmax:,.8g} in {show_path(worst.tensor.path)}"
        ),
        cause="float16 ends at 65,504; casting to it silently turns larger values into infinity.",
        advice="Cast to bfloat16 instead, or keep these tensors in float32.",
        keys=tuple([each.tensor.path for each in found]),
        location=Location(path=worst.tensor.path),
    )
