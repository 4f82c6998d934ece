"""S507: fused projections of attention of which the code that owns them is known, and so the order of their rows.

A name such as ``qkv`` says no order by itself: GPT-NeoX has each head's query, key and value together under the same
name. What stands around it says whose it is, and in both of these all queries come first, then all keys, then all
values:

- ``in_proj_weight`` beside ``out_proj``: ``torch.nn.MultiheadAttention`` (torch 2.13, nn/functional.py,
  ``_in_projection_packed``: ``q, k, v = proj.chunk(3)``);
- ``attn.qkv`` beside ``attn.proj`` in blocks with ``norm1`` and ``norm2``, behind ``patch_embed.proj``: the vision
  transformers of timm (1.0.31, layers/attention.py: ``qkv(x).reshape(B, N, 3, heads, size)``), and those of DeiT, MAE,
  DINO, DINOv2, Swin and SAM, which have it from there.

GPT-2's ``c_attn`` is not among them: GPTBigCode has head by head under the same names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.shapes.fused import Fused

# rows of these may be permuted for rotary embeddings of Meta's kind, which neither of the two has
_PERMUTED = frozenset({"wq", "wk"})
TORCH, TIMM = "torch.nn.MultiheadAttention", "timm's vision transformers"


def owners(comparison: Comparison, found: Sequence[Fused]) -> dict[str, str]:
    """The fused tensors whose owner is known → the owner; none where another tensor of the same module is not.

    None, either, where two of them would have the same parts: which one these belong to nobody knows.
    """
    uses = Counter([part for each in found for part in each.parts])
    alone = [each for each in found if all(uses[part] == 1 for part in each.parts)]
    told = {each.key: "" for each in found} | {each.key: _owner(comparison, each) for each in alone}
    unknown = {_module(key) for key, said in told.items() if not said}
    return {key: said for key, said in told.items() if said and _module(key) not in unknown}


def _owner(comparison: Comparison, found: Fused) -> str:
    """Whose module the fused tensor belongs to; "" where nothing says so."""
    keys: Collection[str] = comparison.cured.here if found.here else comparison.reference.tensors
    if found.axis or len(set(found.part_shapes)) != 1:
        return ""
    if any(_module(part).rpartition(".")[2] in _PERMUTED for part in found.parts):
        return ""
    module, leaf = _module(found.key), found.key.rpartition(".")[2]
    if leaf in ("in_proj_weight", "in_proj_bias"):
        return TORCH if _has(keys, module, "in_proj_weight", "out_proj.weight") else ""
    place, _, layer = module.rpartition(".")
    if layer == "qkv" and (place == "attn" or place.endswith(".attn")):
        whole = _has(keys, place, "qkv.weight", "proj.weight")
        whole = whole and _has(keys, _module(place), "norm1.weight", "norm2.weight")
        return TIMM if whole and any(f".{key}".endswith(".patch_embed.proj.weight") for key in keys) else ""
    return ""


def _has(keys: Collection[str], module: str, *names: str) -> bool:
    return all((f"{module}.{name}" if module else name) in keys for name in names)


def _module(key: str) -> str:
    return key.rpartition(".")[0]
