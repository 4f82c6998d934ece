"""Well-known models by the sizes that their weights give away: facts from their published configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptdoctor.facts.shapes.pairs import Shape
from ckptdoctor.facts.shapes.stacks import Profile, Stack
from ckptdoctor.noun import noun

# blocks in the four stages of torchvision's ResNets → the name with basic blocks, and with bottlenecks
_RESNETS = {
    (2, 2, 2, 2): ("resnet18", None),
    (3, 4, 6, 3): ("resnet34", "resnet50"),
    (3, 4, 23, 3): (None, "resnet101"),
    (3, 8, 36, 3): (None, "resnet152"),
}
# what the first block of a family has → (depth, width) → name
_BY_WIDTH: Mapping[str, Mapping[tuple[int, int], str]] = {
    "attention.self.query.weight": {
        (2, 128): "BERT tiny",
        (4, 512): "BERT small",
        (12, 768): "BERT base",
        (24, 1024): "BERT large",
    },
    "attention.q_lin.weight": {(6, 768): "DistilBERT"},
    "attn.c_attn.weight": {
        (6, 768): "DistilGPT-2",
        (12, 768): "GPT-2",
        (24, 1024): "GPT-2 medium",
        (36, 1280): "GPT-2 large",
        (48, 1600): "GPT-2 XL",
    },
    "layer.0.SelfAttention.q.weight": {(6, 512): "T5 small", (12, 768): "T5 base", (24, 1024): "T5 large"},
    "attn.qkv.weight": {
        (12, 192): "ViT-Ti",
        (12, 384): "ViT-S",
        (12, 768): "ViT-B",
        (24, 1024): "ViT-L",
        (32, 1280): "ViT-H",
    },
}
# (depth, width, width of the feed-forward layers) of decoders with gated feed-forward layers
_GATED = {
    (16, 2048, 8192): "Llama 3.2 1B",
    (28, 3072, 8192): "Llama 3.2 3B",
    (22, 2048, 5632): "TinyLlama 1.1B",
    (32, 4096, 11008): "Llama 7B",
    (32, 4096, 14336): "Llama 3 8B or Mistral 7B",
    (40, 5120, 13824): "Llama 13B",
    (60, 6656, 17920): "Llama 30B",
    (80, 8192, 22016): "Llama 65B",
    (80, 8192, 28672): "Llama 70B",
    (126, 16384, 53248): "Llama 3.1 405B",
    (24, 896, 4864): "Qwen2.5 0.5B",
    (28, 1536, 8960): "Qwen2.5 1.5B",
    (36, 2048, 11008): "Qwen2.5 3B",
    (28, 3584, 18944): "Qwen2.5 7B",
    (64, 5120, 27648): "Qwen2.5 32B",
}
_GATES = ("mlp.gate_proj.weight", "feed_forward.w1.weight")
_VGGS = {8: "vgg11", 10: "vgg13", 13: "vgg16", 16: "vgg19"}
_VGG_WIDTHS = {64, 128, 256, 512}


@noun
class Architecture:
    """A well-known model: its ``family`` (models that differ in size alone), and its name."""

    family: str
    name: str


def architecture(shapes: Mapping[str, Shape], found: Iterable[Stack], sizes: Profile) -> Architecture | None:
    """Which well-known model has these keys, stacks and sizes; None where none has."""
    by_stem = {each.stem.rpartition(".")[2]: each for each in found}
    return _resnet(by_stem) or _transformer(by_stem, sizes) or _vgg(shapes)


def _resnet(by_stem: Mapping[str, Stack]) -> Architecture | None:
    stages = [by_stem.get(f"layer{number}") for number in (1, 2, 3, 4)]
    depths = tuple([stage.depth for stage in stages if stage is not None])
    if depths not in _RESNETS or stages[0] is None:
        return None
    first = stages[0].blocks[0]
    basic, bottleneck = _RESNETS[depths]
    if first.get("conv2.weight") != (64, 64, 3, 3):  # wide and grouped ones have names of their own
        return None
    name = bottleneck if "conv3.weight" in first else basic
    return Architecture("ResNet", name) if name is not None else None


def _transformer(by_stem: Mapping[str, Stack], sizes: Profile) -> Architecture | None:
    depths = set(sizes.depths)
    if not by_stem or len(depths) != 1 or sizes.width is None:
        return None
    depth, first = depths.pop(), next(iter(by_stem.values())).blocks[0]
    if any(gate in first for gate in _GATES):
        name = _GATED.get((depth, sizes.width, sizes.inner or 0))
        return Architecture("gated decoder", name) if name is not None else None
    for marker, names in _BY_WIDTH.items():
        name = names.get((depth, sizes.width)) if marker in first else None
        if name is not None:
            return Architecture(marker, name)
    return None


def _vgg(shapes: Mapping[str, Shape]) -> Architecture | None:
    features = [shape for key, shape in shapes.items() if key.startswith("features.") and len(shape) == 4]
    if {shape[0] for shape in features} != _VGG_WIDTHS or {shape[2:] for shape in features} != {(3, 3)}:
        return None
    name = _VGGS.get(len(features)) if "classifier.6.weight" in shapes else None
    return Architecture("VGG", name) if name is not None else None
