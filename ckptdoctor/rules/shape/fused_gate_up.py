"""Gate and up projection are in one tensor on one side and separate on the other.

Meaning
    Gated feed-forward layers (SwiGLU) have two projections of the input. Some implementations hold them in one tensor
    (``gate_up_proj``, ``w13``, ``w12``), others in two (``gate_proj`` and ``up_proj``, ``w1`` and ``w3``).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` silently leaves these layers random.

Symptoms
    Missing key(s) in state_dict: "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight", …
    Unexpected key(s) in state_dict: "layers.0.mlp.gate_up_proj.weight", …

Detection
    Only with a reference: at one place in the model a fused name is left over and the two names of the parts are
    missing, or the reverse, and the shapes add up.

Repair
    Where the fused name shows its parts and their order (``gate_up_proj`` of ``gate_proj`` and ``up_proj``, ``w13`` of
    ``w1`` and ``w3``, ``w12`` of ``w1`` and ``w2``), ``ckptdoctor fix FILE --auto --like OTHER --unsafe-fixes`` splits
    or joins along the rows, as transformers and vLLM do. Unsafe: it trusts the name. For other names there is none,
    since nothing shows the order: shapes do not, and a wrong order loads and gives nonsense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.edits import Edit, Fix, Fuse, Safety, Split
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.fused import Fused, spelled
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.shape.fusing import fused_problem
from ckptdoctor.rules.signs import Sign, leaf_among

_BODY = {
    "layers.0.norm.weight": T((4,)),
    "layers.0.attn.o_proj.weight": T((4, 4)),
    "layers.0.mlp.down_proj.weight": T((4, 6)),
}
_FUSED = {"layers.0.mlp.gate_up_proj.weight": T((12, 4))}
_TURNED = {"layers.0.mlp.wi.weight": T((12, 4))}  # a name that does not say the order
_APART = {"layers.0.mlp.gate_proj.weight": T((6, 4)), "layers.0.mlp.up_proj.weight": T((6, 4))}
SIGNS = (
    Sign(
        "the file keeps the gate and up projections in one fused tensor, and the model has two",
        Repair.BY_HAND,
        (Way("split it", "ckptdoctor fix FILE --auto --model MODULE:CLASS --unsafe-fixes"),),
        missing=leaf_among(r"(?:gate_proj|up_proj)\.\w+"),
        unexpected=leaf_among(r"(?:gate_up_proj|w13)\.\w+"),
        both=True,
    ),
    Sign(
        "the file keeps the gate and up projections in two tensors, and the model has one",
        Repair.BY_HAND,
        (Way("join them", "ckptdoctor fix FILE --auto --model MODULE:CLASS --unsafe-fixes"),),
        missing=leaf_among(r"(?:gate_up_proj|w13)\.\w+"),
        unexpected=leaf_among(r"(?:gate_proj|up_proj)\.\w+"),
        both=True,
    ),
)
SICK = (
    Example("fused here, separate there", {**_BODY, **_FUSED}, like={**_BODY, **_APART}),
    Example("separate here, fused there", {**_BODY, **_APART}, like={**_BODY, **_FUSED}),
    Example("a name that shows no order", {**_BODY, **_TURNED}, like={**_BODY, **_APART}),
)
HEALTHY = (
    Example("fused on both sides", {**_BODY, **_FUSED}, like={**_BODY, **_FUSED}),
    Example(
        "a gate with another size",
        {**_BODY, **_FUSED},
        like={**_BODY, **_APART, "layers.0.mlp.up_proj.weight": T((7, 4))},
    ),
)


_WHAT = "gate and up projection"
_UNKNOWN = (
    "The shapes do not show which comes first: usually the gate, but not everywhere. Look it up where the "
    "checkpoint comes from, and split or join along the rows: a wrong order loads silently and gives "
    "nonsense."
)
_TOLD = "By its name {} comes before {}, as in transformers and vLLM: the repair trusts the name."


@rule("S508", "fused-gate-up", Severity.ERROR)
def fused_gate_up(comparison: Comparison) -> Iterator[Problem]:
    """Report gated projections that are fused on one side only."""
    found = shapes(comparison).gates
    for here in (True, False):
        told = [each for each in found if each.here is here and spelled(each)]
        for problem in fused_problem(comparison, told, _WHAT, _told(told)):
            yield replace(problem, fix=_fix(comparison, told))
        others = [each for each in found if each.here is here and not spelled(each)]
        yield from fused_problem(comparison, others, _WHAT, _UNKNOWN)


def _told(found: Sequence[Fused]) -> str:
    return _TOLD.format(*[part.split(".")[-2:][0] for part in found[0].parts]) if found else ""


def _fix(comparison: Comparison, found: Sequence[Fused]) -> Fix:
    verb = "split" if found[0].here else "fuse"
    title = f"{verb} {wording.plural(len(found), 'gated projection')}, the gate first"
    edits = tuple([_edit(comparison, each) for each in found])
    return Fix(title, edits, Safety.UNSAFE, auto_option(comparison))


def _edit(comparison: Comparison, found: Fused) -> Edit:
    here = comparison.renamed.here
    if not found.here:
        return Fuse(tuple([here[part].path for part in found.parts]), found.key)
    (first, second), rows = found.parts, found.part_shapes[0][0]
    return Split(here[found.key].path, ((first, 0, rows), (second, rows, found.shape[0])))
