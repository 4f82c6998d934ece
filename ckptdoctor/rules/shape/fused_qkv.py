"""Queries, keys and values are in one tensor on one side and separate on the other.

Meaning
    Attention has three projections. Some implementations hold them in one tensor (``in_proj_weight``, ``qkv``,
    ``Wqkv``, ``c_attn``, ``query_key_value``), others in three (``q_proj``, ``k_proj``, ``v_proj``).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` silently leaves attention random.

Symptoms
    Missing key(s) in state_dict: "layers.0.attn.q_proj.weight", "layers.0.attn.k_proj.weight", …
    Unexpected key(s) in state_dict: "layers.0.attn.qkv.weight", …

Detection
    Only with a reference: at one place in the model a fused name is left over and the three names of the parts are
    missing, or the reverse, and the shapes add up.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` where the names around the fused tensor show its library:
    ``in_proj_weight`` next to ``out_proj`` is ``torch.nn.MultiheadAttention``, ``attn.qkv`` next to ``attn.proj`` in a
    vision transformer is timm's, and both have all queries, then all keys, then all values. No value changes. Otherwise
    ``ckptdoctor fix FILE --auto --like OTHER --qkv-layout q-k-v``, and ``--heads N`` for layouts that go head by head.
    That option is required: the order of the rows (all queries, then all keys, then all values; head by head; group by
    group) differs between libraries, and shapes do not show it. A wrong order loads and gives nonsense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import gcd

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.edits import Edit, Fix, Fuse, Safety, Split, Transpose
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.fused import Fused
from ckptdoctor.match.shapes.projections import Ranges, fuse_order, rows, split_parts
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.shape.fusing import fused_problem
from ckptdoctor.rules.signs import Sign, leaf_among

_BODY = {"norm.weight": T((4,)), "mlp.fc.weight": T((16, 4)), "mlp.proj.weight": T((4, 16)), "head.weight": T((2, 4))}
_FUSED = {"layers.0.attn.qkv.weight": T((12, 4)), "layers.0.attn.qkv.bias": T((12,))}
_APART: dict[str, object] = {
    f"layers.0.attn.{name}_proj.{leaf}": T((4, 4) if leaf == "weight" else (4,))
    for name in "qkv"
    for leaf in ("weight", "bias")
}
_TORCH: dict[str, object] = {
    "layers.0.self_attn.in_proj_weight": T((12, 4)),
    "layers.0.self_attn.in_proj_bias": T((12,)),
    "layers.0.self_attn.out_proj.weight": T((4, 4)),
}
_PARTS: dict[str, object] = {
    **{f"layers.0.self_attn.{name}_proj.weight": T((4, 4)) for name in "qkv"},
    **{f"layers.0.self_attn.{name}_proj.bias": T((4,)) for name in "qkv"},
    "layers.0.self_attn.out_proj.weight": T((4, 4)),
}
_FUSED_KEYS = leaf_among(r"in_proj_weight|in_proj_bias|(?:qkv|Wqkv|c_attn|query_key_value)\.\w+")
_SPLIT_KEYS = leaf_among(r"(?:q|k|v)(?:_proj|_proj\w*|_lin)?\.\w+|(?:query|key|value)\.\w+|to_[qkv]\.\w+")
SIGNS = tuple(
    [
        Sign(
            "one side keeps query, key and value in one fused tensor, the other in three; the order of the "
            "rows depends on the architecture, so no command can know it unless you specify it",
            Repair.BY_HAND,
            (Way("if you know it", "ckptdoctor fix FILE --auto --model MODULE:CLASS --qkv-layout LAYOUT"),),
            missing=missing,
            unexpected=unexpected,
            both=True,
        )
        for missing, unexpected in ((_SPLIT_KEYS, _FUSED_KEYS), (_FUSED_KEYS, _SPLIT_KEYS))
    ]
)
SICK = (
    Example("three projections for torch.nn.MultiheadAttention", {**_BODY, **_PARTS}, like={**_BODY, **_TORCH}),
    Example("torch.nn.MultiheadAttention for three projections", {**_BODY, **_TORCH}, like={**_BODY, **_PARTS}),
    Example("fused here, separate there", {**_BODY, **_FUSED}, like={**_BODY, **_APART}),
    Example("separate here, fused there", {**_BODY, **_APART}, like={**_BODY, **_FUSED}),
    Example(
        "fewer keys and values than queries",
        {**_BODY, "layers.0.attn.Wqkv.weight": T((8, 4))},
        like={
            **_BODY,
            "layers.0.self_attn.q_proj.weight": T((4, 4)),
            "layers.0.self_attn.k_proj.weight": T((2, 4)),
            "layers.0.self_attn.v_proj.weight": T((2, 4)),
        },
    ),
)
HEALTHY = (
    Example("fused on both sides", {**_BODY, **_FUSED}, like={**_BODY, **_FUSED}),
    Example(
        "shapes that do not add up",
        {**_BODY, "layers.0.attn.qkv.weight": T((10, 4))},
        like={**_BODY, **_APART},
    ),
    Example(
        "no keys among the missing",
        {**_BODY, **_FUSED},
        like={**_BODY, "layers.0.attn.q_proj.weight": T((4, 4)), "layers.0.attn.v_proj.weight": T((4, 4))},
    ),
)

_LAYOUTS = (
    "The shapes do not show the order of the rows: q-k-v (all queries, then all keys, then all values: "
    "GPT-2, nn.MultiheadAttention), k-v-q, per-head (the query, key and value of one head after another: "
    "GPT-NeoX, BLOOM), or grouped (the queries of a group, then its key and value: Megatron, Falcon). Look "
    "it up where the checkpoint comes from, and specify it with --qkv-layout and --auto: a wrong one loads "
    "silently and gives nonsense."
)

_TOLD = (
    "{} has all queries first, then all keys, then all values. The names around the fused tensor show that it is that."
)


@rule("S507", "fused-qkv", Severity.ERROR)
def fused_qkv(comparison: Comparison) -> Iterator[Problem]:
    """Report projections of attention that are fused on one side only."""
    found, what = shapes(comparison).qkv, "the attention projections"
    told = _owners(comparison, found) if found else {}
    for here in (True, False):
        known = [each for each in found if each.here is here and each.key in told]
        for problem in fused_problem(comparison, known, what, ""):
            yield replace(problem, cause=f"{problem.cause} {_said(known, told)}", fix=_fix(comparison, known))
        others = [each for each in found if each.here is here and each.key not in told]
        yield from fused_problem(comparison, others, what, _LAYOUTS)


def _said(found: Sequence[Fused], told: Mapping[str, str]) -> str:
    return _TOLD.format(" and ".join(dict.fromkeys([told[each.key] for each in found])))


def _fix(comparison: Comparison, found: Sequence[Fused]) -> Fix:
    verb = "split" if found[0].here else "fuse"
    title = f"{verb} {wording.plural(len(found), 'projection')} of attention: queries, then keys, then values"
    edits = projection_edits(comparison, [(each, one_after_another(each)) for each in found])
    return Fix(title, edits, Safety.CONFIRMED, auto_option(comparison))


def one_after_another(found: Fused, layout: str = "q-k-v") -> dict[str, Ranges]:
    """Return the rows of each part in a layout in which the number of heads makes no difference."""
    queries, keys = found.part_shapes[0][0], found.part_shapes[1][0]
    size = gcd(queries, keys)
    return rows(layout, queries // size, keys // size, size)


def projection_edits(comparison: Comparison, found: Iterable[tuple[Fused, dict[str, Ranges]]]) -> tuple[Edit, ...]:
    """Return the edits for all of these; of one kind together: they are carried out together."""
    edits = [edit for each, ranges in found for edit in _edits_of(comparison, each, ranges)]
    kinds = (Split, Fuse, Transpose)
    return tuple(sorted(edits, key=lambda edit: kinds.index(type(edit))))


def _edits_of(comparison: Comparison, found: Fused, ranges: dict[str, Ranges]) -> Iterator[Edit]:
    names = dict(zip("qkv", found.parts, strict=True))
    here = comparison.renamed.here
    if found.here:
        yield Split(here[found.key].path, split_parts(ranges, names), found.axis)
        if found.axis == 1:  # inputs × outputs, the way of Conv1D
            yield from (Transpose(_beside(here[found.key].path, part)) for part in found.parts)
        return
    yield Fuse(tuple([here[part].path for part in found.parts]), found.key, 0, fuse_order(ranges))
    if found.axis == 1:
        yield Transpose(_beside(here[found.parts[0]].path, found.key))


def _beside(path: KeyPath, key: str) -> KeyPath:
    return (*path[:-1], key)


# S507: fused projections of attention of which the code that owns them is known, and so the order of their rows.
#
# A name such as ``qkv`` says no order by itself: GPT-NeoX has each head's query, key and value together under the same
# name. What stands around it says whose it is, and in both of these all queries come first, then all keys, then all
# values:
#
# - ``in_proj_weight`` beside ``out_proj``: ``torch.nn.MultiheadAttention`` (torch 2.13, nn/functional.py,
#   ``_in_projection_packed``: ``q, k, v = proj.chunk(3)``);
# - ``attn.qkv`` beside ``attn.proj`` in blocks with ``norm1`` and ``norm2``, behind ``patch_embed.proj``: the vision
#   transformers of timm (1.0.31, layers/attention.py: ``qkv(x).reshape(B, N, 3, heads, size)``), and those of DeiT,
#   MAE, DINO, DINOv2, Swin and SAM, which have it from there.
#
# GPT-2's ``c_attn`` is not among them: GPTBigCode has head by head under the same names.

# rows of these may be permuted for rotary embeddings of Meta's kind, which neither of the two has
_PERMUTED = frozenset({"wq", "wk"})
_OF_TORCH, _TIMM = "torch.nn.MultiheadAttention", "timm's vision transformers"


def _owners(comparison: Comparison, found: Sequence[Fused]) -> dict[str, str]:
    """Return the fused tensors whose owner is known → the owner; none where another tensor of the same module is not.

    None, either, where two of them would have the same parts: which one these belong to nobody knows.
    """
    uses = Counter([part for each in found for part in each.parts])
    alone = [each for each in found if all(uses[part] == 1 for part in each.parts)]
    told = {each.key: "" for each in found} | {each.key: _owner(comparison, each) for each in alone}
    unknown = {_module(key) for key, said in told.items() if not said}
    return {key: said for key, said in told.items() if said and _module(key) not in unknown}


def _owner(comparison: Comparison, found: Fused) -> str:
    """Return whose module the fused tensor belongs to, or "" where nothing says so."""
    keys: Collection[str] = comparison.renamed.here if found.here else comparison.reference.tensors
    if found.axis or len(set(found.part_shapes)) != 1:
        return ""
    if any(_module(part).rpartition(".")[2] in _PERMUTED for part in found.parts):
        return ""
    module, leaf = _module(found.key), found.key.rpartition(".")[2]
    if leaf in ("in_proj_weight", "in_proj_bias"):
        return _OF_TORCH if _has(keys, module, "in_proj_weight", "out_proj.weight") else ""
    place, _, layer = module.rpartition(".")
    if layer == "qkv" and (place == "attn" or place.endswith(".attn")):
        whole = _has(keys, place, "qkv.weight", "proj.weight")
        whole = whole and _has(keys, _module(place), "norm1.weight", "norm2.weight")
        return _TIMM if whole and any(f".{key}".endswith(".patch_embed.proj.weight") for key in keys) else ""
    return ""


def _has(keys: Collection[str], module: str, *names: str) -> bool:
    return all((f"{module}.{name}" if module else name) in keys for name in names)


def _module(key: str) -> str:
    return key.rpartition(".")[0]
