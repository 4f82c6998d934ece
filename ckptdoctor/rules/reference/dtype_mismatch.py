"""Keys do not have the dtype that the target expects: loading silently casts them.

Meaning
    The checkpoint's tensors and the target's have the same names and shapes but different dtypes.

Why it matters
    ``load_state_dict`` casts silently. If the target's dtype holds every value of the checkpoint's, nothing is lost;
    otherwise values are rounded, or become infinite (float32 above 65,504 in float16).

Symptoms
    Nothing: it loads silently.

Detection
    The dtypes under equal keys with equal shapes are compared, after the proposed renames. It is a warning where the
    cast can lose values, by the bits of the two formats.

Repair
    None is needed to load. If the loss matters, build the target in the checkpoint's dtype
    (``model.to(torch.float32)``) before loading.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import cast_loses_values
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.quantized import packed
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording

_FLOAT = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4))}
_HALF = {key: T(value.shape, "float16") for key, value in _FLOAT.items()}
SICK = (
    Example("half precision for a float32 model", _HALF, like=_FLOAT),
    Example("float32 for a half precision model", {"epoch": 1, "model": _FLOAT}, like={"model": _HALF}),
)
HEALTHY = (Example("the same dtypes", _FLOAT, like=_FLOAT),)


@rule("R004", "dtype-mismatch", Severity.INFO)
def dtype_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report equal keys of equal shapes and different dtypes: one finding for each pair of dtypes."""
    here, there = comparison.renamed.here, comparison.reference.tensors
    pairs: dict[str, tuple[DType, DType, list[str]]] = {}
    known = packed(comparison) if comparison.renamed.recast else frozenset()
    for key in comparison.renamed.recast:
        source, target = here[key].dtype, there[key].dtype
        if target is not None and key not in known:
            pairs.setdefault(f"{source.name} {target.name}", (source, target, []))[2].append(key)
    for source, target, keys in pairs.values():
        loses = cast_loses_values(source, target)
        verb = "is" if len(keys) == 1 else "are"
        yield Problem(
            message=f"{wording.plural(len(keys), 'key')}{wording.of_place(comparison.path)} {verb} {source.name} here "
            f"and {target.name} in {comparison.reference.source}",
            cause=(
                f"load_state_dict silently casts to {target.name}, which cannot hold every {source.name} value."
                if loses
                else f"load_state_dict silently casts to {target.name}; no value is lost."
            ),
            advice=f"To keep every value: model.to(torch.{source.name}) before loading." if loses else "",
            keys=tuple([here[key].path for key in keys]),
            location=Location(path=comparison.path),
            severity=Severity.WARNING if loses else Severity.INFO,
        )
