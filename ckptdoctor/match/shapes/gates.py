"""S508: which fused names of gate and up projection say themselves what lies in them in which order."""

from __future__ import annotations

from ckptdoctor.match.shapes.fused import Fused

# the fused layer's name → the parts that it spells out, in their order along the rows. Sources: transformers
# (Phi3MLP, Glm4MLP: gate, up = gate_up_proj(x).chunk(2)), vLLM (w13 is w1 above w3), xformers and DINOv2 (w12)
_SPELLED = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "gate_and_up_proj": ("gate_proj", "up_proj"),
    "gate_up": ("gate", "up"),
    "w13": ("w1", "w3"),
    "w12": ("w1", "w2"),
}


def spelled(found: Fused) -> bool:
    """Whether the name tells the order, and the rows are outputs."""
    return found.axis == 0 and _SPELLED.get(_layer(found.key)) == tuple([_layer(part) for part in found.parts])


def _layer(key: str) -> str:
    """The name of the layer that a weight or a bias belongs to."""
    path, _, leaf = key.rpartition(".")
    for end in ("_weight", "_bias"):
        if leaf.endswith(end):
            return leaf.removesuffix(end)
    return path.rpartition(".")[2]
