"""The experts of a mixture are stacked in one tensor on one side and separate on the other.

Meaning
    Implementations with grouped matrix products hold all experts of a layer in one tensor (``experts.w1`` of
    [8, 14336, 4096], ``experts.gate_up_proj``, ``experts.weight1``); others hold each expert as a module of its own
    (``experts.0.w1.weight``).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` silently leaves all experts random.

Symptoms
    Missing key(s) in state_dict: "layers.0.experts.0.w1.weight", "layers.0.experts.1.w1.weight", …
    Unexpected key(s) in state_dict: "layers.0.experts.w1", …

Detection
    Only with a reference: in one block one side has ``experts.0`` … ``experts.N`` and the other tensors of
    ``experts`` without numbers, and both hold just as many elements.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` stacks or unbinds them, one expert after another, where both sides give
    the tensors the same names and each slice has the shape of one expert's, as it is or, for all of them, transposed:
    no value changes, and the reference confirms it. If a slice is square, its shape does not show whether it is
    transposed, so specify it: ``--expert-layout out-in`` (like the weight of torch.nn.Linear) or ``in-out``. None where
    gate and up projection are in one tensor only on one side: their order differs between libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.edits import Edit, Fix, Fuse, Reshape, Safety, Split, Transpose
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.experts import Experts, Stack, stacks
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.shaping import key_places
from ckptdoctor.rules.messages import AUTO, COMPARE
from ckptdoctor.rules.signs import Sign

_BODY = {"layers.0.gate.weight": T((3, 4)), "layers.0.norm.weight": T((4,)), "layers.0.attn.weight": T((4, 4))}
_STACKED = {"layers.0.experts.w1": T((3, 6, 4)), "layers.0.experts.w2": T((3, 4, 6))}
_APART: dict[str, object] = {
    f"layers.0.experts.{index}.{name}.weight": T((6, 4) if name == "w1" else (4, 6))
    for index in range(3)
    for name in ("w1", "w2")
}
_TURNED = {"layers.0.experts.w1": T((3, 4, 6)), "layers.0.experts.w2": T((3, 6, 4))}
_GATED: dict[str, object] = {
    f"layers.0.experts.{index}.{name}.weight": T((6, 4)) for index in range(3) for name in ("w1", "w3")
}
_MORE = {**_BODY, "head.weight": T((9, 4)), "head.bias": T((9,)), "embed.weight": T((9, 4)), "out.weight": T((4, 4))}
_SQUARE = {"layers.0.experts.w1": T((3, 4, 4))}
_SQUARES: dict[str, object] = {f"layers.0.experts.{index}.w1.weight": T((4, 4)) for index in range(3)}
_ONE_BY_ONE = r".*\.(?:local_)?experts\.\d+\..+"
_IN_ONE = r".*\.(?:local_)?experts\.(?!\d)[^.]+(?:\.\w+)?"
SIGNS = (
    Sign(
        "the experts of each layer are stacked in one tensor in the file, and separate in the model",
        Repair.BY_HAND,
        (COMPARE, AUTO),
        missing=_ONE_BY_ONE,
        unexpected=_IN_ONE,
        both=True,
    ),
    Sign(
        "the experts of each layer are separate in the file, and stacked in one tensor in the model",
        Repair.BY_HAND,
        (COMPARE, AUTO),
        missing=_IN_ONE,
        unexpected=_ONE_BY_ONE,
        both=True,
    ),
)
SICK = (
    Example("stacked here, separate there", {**_MORE, **_STACKED}, like={**_MORE, **_APART}),
    Example("separate here, stacked there", {**_MORE, **_APART}, like={**_MORE, **_STACKED}),
    Example("slices that are transposed", {**_MORE, **_TURNED}, like={**_MORE, **_APART}),
    Example("slices that are square", {**_MORE, **_SQUARE}, like={**_MORE, **_SQUARES}),
    Example(
        "gate and up projection in one", {**_MORE, "layers.0.experts.w13": T((3, 12, 4))}, like={**_MORE, **_GATED}
    ),
)
HEALTHY = (
    Example("separate on both sides", {**_MORE, **_APART}, like={**_MORE, **_APART}),
    Example(
        "fewer experts",
        {**_MORE, "layers.0.experts.w1": T((2, 6, 4)), "layers.0.experts.w2": T((2, 4, 6))},
        like={**_MORE, **_APART},
    ),
)


_UNKNOWN = (
    "Stack or unbind them like the library that the checkpoint comes from: the shapes do not show whether "
    "the slices are transposed, nor the order of gate and up projection in them."
)


@rule("S509", "moe-stacked-experts", Severity.ERROR)
def moe_stacked_experts(comparison: Comparison) -> Iterator[Problem]:
    """Report experts that are stacked on one side only."""
    found = [(each, stacks(comparison, each)) for each in shapes(comparison).experts]
    for here in (True, False):
        told = [(layer, parts) for layer, parts in found if layer.here is here and parts]
        sure = [each for each in told if not any(part.square for part in each[1])]
        doubtful = [each for each in told if each not in sure]
        if sure:
            parts = [each for _, parts in sure for each in parts]
            yield _problem(comparison, [layer for layer, _ in sure], _fix(comparison, parts, here), "")
        if doubtful:
            problem = _problem(comparison, [layer for layer, _ in doubtful], None, _doubt(doubtful[0][1]))
            yield replace(problem, commands=(f"ckptdoctor fix FILE {auto_option(comparison)}",))
        others = [layer for layer, parts in found if layer.here is here and not parts]
        if others:
            yield _problem(comparison, others, None, _UNKNOWN)


def _problem(comparison: Comparison, layers: Sequence[Experts], fix: Fix | None, advice: str) -> Problem:
    first, here = layers[0], layers[0].here
    stacked = tuple([key for layer in layers for key in layer.stacked])
    apart = tuple([key for layer in layers for key in layer.apart])
    missing, unexpected = (apart, stacked) if here else (stacked, apart)
    more = wording.beyond(len(layers) - 1, "layer", before="; ", after=" likewise")
    ours, theirs = ("stacked", "apart") if here else ("apart", "stacked")
    return Problem(
        message=f"{first.count:,} experts are {ours} here and {theirs} in the model{_at(comparison, first)}{more}",
        cause=f"The same experts and number of elements: {wording.plural(len(stacked), 'tensor')} on one side, "
        f"{len(apart):,} on the other.",
        torch_says=(wording.missing_line(missing), wording.unexpected_line(unexpected)),
        advice=advice,
        keys=key_places(comparison, unexpected),
        location=Location(path=comparison.path),
        fix=fix,
    )


def _at(comparison: Comparison, layer: Experts) -> str:
    """Return the stacked tensor that the sentence can show."""
    key = layer.stacked[0]
    shape = comparison.renamed.here[key].shape if layer.here else comparison.reference.tensors[key].shape
    return f" ({key} {wording.shape(shape)})"


def _doubt(found: Sequence[Stack]) -> str:
    """Return why there is no repair of slices that are square."""
    square = next(each for each in found if each.square)
    return (
        f"The slices of {square.key} are square ({wording.shape(square.shape)}): no shape shows whether they "
        "are transposed. Specify the layout of the library that the checkpoint comes from (--expert-layout). "
        "To see what would make the file fit then, or that nothing does:"
    )


def edits_for(comparison: Comparison, turned: bool) -> tuple[Edit, ...]:
    """Unbind or stack all experts, whose slices are ``turned`` or not, as somebody has said."""
    made: list[Edit] = []
    for here in (True, False):
        layers = [each for each in shapes(comparison).experts if each.here is here]
        parts = [part for layer in layers for part in stacks(comparison, layer, turned)]
        made += _unbound(comparison, parts) if here else _stacked(comparison, parts)
    return tuple(made)


def _fix(comparison: Comparison, found: Sequence[Stack], here: bool) -> Fix:
    title = f"{'unbind' if here else 'stack'} {wording.plural(len(found), 'stack')} of experts"
    edits = _unbound(comparison, found) if here else _stacked(comparison, found)
    return Fix(title, edits, Safety.CONFIRMED, auto_option(comparison))


def _unbound(comparison: Comparison, found: Sequence[Stack]) -> tuple[Edit, ...]:
    """Return the slices one below the other, cut apart, and turned where they are transposed."""
    here = comparison.renamed.here
    flat, cut, turned = [], [], []
    for each in found:
        path, rows = here[each.key].path, each.shape[-1] if each.turned else each.shape[0]
        flat.append(Reshape(path, (len(each.apart) * rows, *(each.shape[:1] if each.turned else each.shape[1:]))))
        cut.append(Split(path, tuple([(key, at * rows, (at + 1) * rows) for at, key in enumerate(each.apart)])))
        turned += [Transpose((*path[:-1], key)) for key in each.apart if each.turned]
    return (*flat, *cut, *turned)


def _stacked(comparison: Comparison, found: Sequence[Stack]) -> tuple[Edit, ...]:
    """Return the same backwards."""
    here = comparison.renamed.here
    turned, joined, deep = [], [], []
    for each in found:
        paths = tuple([here[key].path for key in each.apart])
        turned += [Transpose(path) for path in paths if each.turned]
        joined.append(Fuse(paths, each.key))
        slice_ = each.shape[::-1] if each.turned else each.shape
        deep.append(Reshape((*paths[0][:-1], each.key), (len(paths), *slice_)))
    return (*turned, *joined, *deep)
