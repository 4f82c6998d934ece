"""The matrices of one model have different floating dtypes.

Meaning
    A part of the model was converted with ``.half()`` or ``.bfloat16()`` and another was not, or two checkpoints were
    merged. Norms, routers and small tensors are often kept in float32 on purpose and do not count.

Why it matters
    ``load_state_dict`` casts each tensor to the dtype of its parameter, and nothing happens. Where the tensors
    themselves become the parameters (``assign=True``, ``dtype="auto"``), layers of two dtypes meet, and the forward
    pass fails.

Symptoms
    mat1 and mat2 must have the same dtype, but got Float and Half
    expected m1 and m2 to have the same dtype, but got: float != c10::Half
    expected scalar type Half but found Float

Detection
    The dtypes of all tensors of two dimensions and more are counted, except those whose names mark them as norms,
    routers, position tables or scales, and quantised models are not reported. Info only: it may be intended.

Repair
    No automatic one: only the target shows which dtype is right. ``--dtype float16`` casts all of them, and reports
    what is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.dtype.float_kinds import Mixture, mixture
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.when import several_float_dtypes

_TORCH = {"float64": "Double", "float32": "Float", "bfloat16": "BFloat16", "float16": "Half"}
_MEET = "tensors of different dtypes meet ({one} and {other}): the checkpoint or the input was only partly cast"
_CAST = (Way("cast all of it to one dtype", "model.float()"), CHECK)
# as torch calls them in Python's words and in those of C++: a cast of integers would be another matter
_FLOATS = r"Half|Float|BFloat16|Double|Float8_\w{1,20}|half|float|double"
MESSAGES = (
    Message(
        ("expected scalar type",),
        _MEET,
        _CAST,
        then=r"(?P<one>Half|Float|BFloat16|Double)butfound(?P<other>Half|Float|BFloat16|Double)",
    ),
    Message(
        ("mat1 and mat2 must have the same dtype, but got",),
        _MEET,
        _CAST,
        then=rf"(?P<one>{_FLOATS})and(?P<other>{_FLOATS})",
        also=("T553", "T556"),
    ),
    Message(
        ("expected m1 and m2 to have the same dtype, but got:",),
        _MEET,
        _CAST,
        then=rf"(?:c10::)?(?P<one>{_FLOATS})!=(?:c10::)?(?P<other>{_FLOATS})",
        also=("T553", "T556"),
    ),
)
SICK = (
    Example("a head that was not converted", {"a.weight": T((8, 8), "float16"), "head.weight": T((4, 8))}),
    Example(
        "two halves of a merge",
        {"model": {"vision.fc.weight": T((8, 8)), "text.fc.weight": T((8, 16), "bfloat16"), "n": T((), "int64")}},
    ),
)
HEALTHY = (
    Example("one dtype", {"a.weight": T((8, 8), "float16"), "a.bias": T((8,), "float16")}),
    Example("norms in float32", {"a.weight": T((8, 8), "bfloat16"), "a.norm.weight": T((8,)), "b": T((8,))}),
    Example("a router in float32", {"a.weight": T((8, 8), "bfloat16"), "mlp.router.weight": T((4, 8))}),
    Example("integers next to floats", {"a.weight": T((8, 8)), "index": T((8, 8), "int64")}),
)


@rule("T551", "mixed-float-dtypes", Severity.INFO, when=several_float_dtypes)
def mixed_float_dtypes(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report models of several dtypes."""
    for state_dict in weights_among(checkpoint.state_dicts):
        found = mixture(state_dict)
        if found is not None:
            yield _problem(state_dict, found)


def _problem(state_dict: StateDict, found: Mixture) -> Problem:
    counts = [f"{len(tensors):,} {name}" for name, tensors in found.kinds]
    (most, _), *others = found.kinds
    rest = [each for _, tensors in others for each in tensors]
    one, other = _TORCH[others[0][0]], _TORCH[most]
    return Problem(
        message=f"matrices{wording.of_place(state_dict.path)} have {len(counts)} dtypes: {wording.listed(counts)}",
        cause=f"Not {most}: {wording.module_groups({each.key: each.numel for each in rest})}. load_state_dict "
        "casts each to the dtype of its parameter; if the tensors themselves are used, the dtypes clash.",
        torch_says=(f"mat1 and mat2 must have the same dtype, but got {one} and {other}",),
        keys=tuple([each.path for each in rest]),
        location=Location(path=state_dict.path),
    )
