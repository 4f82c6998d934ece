"""What well-known models are called by two code bases, written down as facts: keys and shapes, and each key's name.

The names are those of the publishers' checkpoints and of timm, mmpretrain, detectron2 and transformers, which hold
tables like these in their own converters. ``None`` stands for a key that the other code base has not got.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Shapes = dict[str, tuple[int, ...]]
Rules = tuple[tuple[str, str], ...]


def _linear(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _conv(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _batch_norm(name: str, width: int) -> Shapes:
    stats = {f"{name}.running_mean": (width,), f"{name}.running_var": (width,), f"{name}.num_batches_tracked": ()}
    return {**_norm(name, width), **stats}


def convnext(widths: tuple[int, ...] = (96, 192, 384, 768), depths: tuple[int, ...] = (3, 3, 9, 3)) -> Shapes:
    """ConvNeXt-T as its authors call its parts."""
    found: Shapes = {}
    for stage, width in enumerate(widths):
        name = f"downsample_layers.{stage}"
        if stage:
            found |= {**_norm(f"{name}.0", widths[stage - 1]), **_conv(f"{name}.1", width, widths[stage - 1], 2, 2)}
        else:
            found |= {**_conv(f"{name}.0", width, 3, 4, 4), **_norm(f"{name}.1", width)}
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for block in range(depth):
            name = f"stages.{stage}.{block}"
            found[f"{name}.gamma"] = (width,)
            found |= {**_conv(f"{name}.dwconv", width, 1, 7, 7), **_norm(f"{name}.norm", width)}
            found |= {**_linear(f"{name}.pwconv1", 4 * width, width), **_linear(f"{name}.pwconv2", width, 4 * width)}
    return {**found, **_norm("norm", widths[-1]), **_linear("head", 1000, widths[-1])}


def swin(width: int = 96, depths: tuple[int, ...] = (2, 2, 6, 2), window: int = 7) -> Shapes:
    """Swin-T as its authors save it, with the buffers that follow from the window."""
    found = {**_conv("patch_embed.proj", width, 3, 4, 4), **_norm("patch_embed.norm", width)}
    for stage, depth in enumerate(depths):
        for block in range(depth):
            name = f"layers.{stage}.blocks.{block}"
            if block % 2 and stage < 3:
                found[f"{name}.attn_mask"] = (64 >> 2 * stage, window**2, window**2)
            found |= _norm(f"{name}.norm1", width)
            found[f"{name}.attn.relative_position_bias_table"] = ((2 * window - 1) ** 2, 3 << stage)
            found[f"{name}.attn.relative_position_index"] = (window**2, window**2)
            found |= {**_linear(f"{name}.attn.qkv", 3 * width, width), **_linear(f"{name}.attn.proj", width, width)}
            found |= _norm(f"{name}.norm2", width)
            found |= {**_linear(f"{name}.mlp.fc1", 4 * width, width), **_linear(f"{name}.mlp.fc2", width, 4 * width)}
        if stage + 1 < len(depths):
            found[f"layers.{stage}.downsample.reduction.weight"] = (2 * width, 4 * width)
            found |= _norm(f"layers.{stage}.downsample.norm", 4 * width)
            width *= 2
    return {**found, **_norm("norm", width), **_linear("head", 1000, width)}


def vit(width: int = 768, depth: int = 12, *, scaled: bool = False, head: str = "head") -> Shapes:
    """ViT-B/16 as timm calls its parts; ``scaled``: with the layer scale of DeiT III."""
    found: Shapes = {"cls_token": (1, 1, width), "pos_embed": (1, 197, width)}
    found |= _conv("patch_embed.proj", width, 3, 16, 16)
    for block in range(depth):
        name = f"blocks.{block}"
        if scaled:
            found[f"{name}.gamma_1"] = found[f"{name}.gamma_2"] = (width,)
        found |= _norm(f"{name}.norm1", width)
        found |= {**_linear(f"{name}.attn.qkv", 3 * width, width), **_linear(f"{name}.attn.proj", width, width)}
        found |= _norm(f"{name}.norm2", width)
        found |= {**_linear(f"{name}.mlp.fc1", 4 * width, width), **_linear(f"{name}.mlp.fc2", width, 4 * width)}
    return {**found, **_norm("norm", width), **_linear(head, 1000, width)}


def resnet(depths: tuple[int, ...] = (3, 4, 6, 3)) -> Shapes:
    """ResNet-50 as torchvision calls its parts."""
    found: Shapes = {"conv1.weight": (64, 3, 7, 7), **_batch_norm("bn1", 64)}
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for block in range(depth):
            name = f"layer{stage + 1}.{block}"
            for number, shape in enumerate(((width, inputs, 1), (width, width, 3), (4 * width, width, 1)), start=1):
                found[f"{name}.conv{number}.weight"] = (*shape, shape[-1])
                found |= _batch_norm(f"{name}.bn{number}", shape[0])
            if block == 0:
                found[f"{name}.downsample.0.weight"] = (4 * width, inputs, 1, 1)
                found |= _batch_norm(f"{name}.downsample.1", 4 * width)
            inputs = 4 * width
    return {**found, **_linear("fc", 1000, inputs)}


_MOBILE = ((1, 16, 1, 3), (6, 24, 2, 3), (6, 40, 2, 5), (6, 80, 3, 3), (6, 112, 3, 5), (6, 192, 4, 5), (6, 320, 1, 3))


def efficientnet() -> Shapes:
    """EfficientNet-B0 as the first port to torch calls its parts."""
    found: Shapes = {"_conv_stem.weight": (32, 3, 3, 3), **_batch_norm("_bn0", 32)}
    inputs, at = 32, 0
    for expansion, outputs, depth, kernel in _MOBILE:
        for _ in range(depth):
            name, inner = f"_blocks.{at}", inputs * expansion
            if expansion > 1:
                found[f"{name}._expand_conv.weight"] = (inner, inputs, 1, 1)
                found |= _batch_norm(f"{name}._bn0", inner)
            found[f"{name}._depthwise_conv.weight"] = (inner, 1, kernel, kernel)
            found |= _batch_norm(f"{name}._bn1", inner)
            found |= _conv(f"{name}._se_reduce", inputs // 4, inner, 1, 1)
            found |= _conv(f"{name}._se_expand", inner, inputs // 4, 1, 1)
            found[f"{name}._project_conv.weight"] = (outputs, inner, 1, 1)
            found |= _batch_norm(f"{name}._bn2", outputs)
            inputs, at = outputs, at + 1
    found |= {"_conv_head.weight": (1280, inputs, 1, 1), **_batch_norm("_bn1", 1280)}
    return {**found, **_linear("_fc", 1000, 1280)}


def timm_efficientnet(key: str) -> str:
    """Stages of blocks instead of one list; a first norm only where something is expanded."""
    stages = [(stage, index) for stage, (*_, depth, _) in enumerate(_MOBILE) for index in range(depth)]
    found = re.match(r"_blocks\.(\d+)\.(.*)", key)
    if found is None:
        return renamed(key, _TIMM_EFFICIENTNET)
    stage, index = stages[int(found[1])]
    return f"blocks.{stage}.{index}.{renamed(found[2], _TIMM_PLAIN_BLOCK if stage == 0 else _TIMM_BLOCK)}"


_TIMM_EFFICIENTNET = (("^_conv_(.*)", r"conv_\1"), ("^_bn1", "bn2"), ("^_bn0", "bn1"), ("^_fc", "classifier"))
_TIMM_BLOCK = (
    ("_expand_conv", "conv_pw"),
    ("_depthwise_conv", "conv_dw"),
    ("_project_conv", "conv_pwl"),
    ("_se_", "se.conv_"),
    ("_bn2", "bn3"),
    ("_bn1", "bn2"),
    ("_bn0", "bn1"),
)
_TIMM_PLAIN_BLOCK = (("_depthwise_conv", "conv_dw"), ("_project_conv", "conv_pw"), ("_se_", "se.conv_"), ("_bn", "bn"))


_INVERTED = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))


def mobilenet() -> Shapes:
    """MobileNetV2 as torchvision calls its parts."""
    found: Shapes = {"features.0.0.weight": (32, 3, 3, 3), **_batch_norm("features.0.1", 32)}
    inputs, at = 32, 1
    for expansion, outputs, depth in _INVERTED:
        for _ in range(depth):
            name, inner, place = f"features.{at}.conv", inputs * expansion, 0
            if expansion > 1:
                found |= {f"{name}.0.0.weight": (inner, inputs, 1, 1), **_batch_norm(f"{name}.0.1", inner)}
                place = 1
            found |= {f"{name}.{place}.0.weight": (inner, 1, 3, 3), **_batch_norm(f"{name}.{place}.1", inner)}
            found[f"{name}.{place + 1}.weight"] = (outputs, inner, 1, 1)
            found |= _batch_norm(f"{name}.{place + 2}", outputs)
            inputs, at = outputs, at + 1
    found |= {f"features.{at}.0.weight": (1280, inputs, 1, 1), **_batch_norm(f"features.{at}.1", 1280)}
    return {**found, **_linear("classifier.1", 1000, 1280)}


def timm_mobilenet(key: str) -> str:
    """Names for what torchvision only counts."""
    stages = [(stage, index) for stage, (*_, depth) in enumerate(_INVERTED) for index in range(depth)]
    found = re.match(r"features\.(\d+)\.(.*)", key)
    if found is None:
        return key.replace("classifier.1", "classifier")
    at, rest = int(found[1]), found[2]
    if at in (0, len(stages) + 1):
        names = ("conv_stem", "bn1") if at == 0 else ("conv_head", "bn2")
        return names[int(rest[0])] + rest[1:]
    stage, index = stages[at - 1]
    plain = (("conv.0.0", "conv_dw"), ("conv.0.1", "bn1"), ("conv.1", "conv_pw"), ("conv.2", "bn2"))
    whole = (("conv.0.0", "conv_pw"), ("conv.0.1", "bn1"), ("conv.1.0", "conv_dw"), ("conv.1.1", "bn2"))
    rest = renamed(rest, plain if stage == 0 else (*whole, ("conv.2", "conv_pwl"), ("conv.3", "bn3")))
    return f"blocks.{stage}.{index}.{rest}"


_VGG = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
_MM_VGG = (0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 14, 15, 16)


def vgg() -> Shapes:
    """VGG-16 as torchvision counts its layers."""
    widths = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    found: Shapes = {}
    for at, (inputs, outputs) in zip(_VGG, itertools.pairwise(widths), strict=True):
        found |= _conv(f"features.{at}", outputs, inputs, 3, 3)
    for at, rows, columns in ((0, 4096, 25088), (3, 4096, 4096), (6, 1000, 4096)):
        found |= _linear(f"classifier.{at}", rows, columns)
    return found


def mm_vgg(key: str) -> str:
    """Layers without the activations between them."""
    places = {str(old): str(new) for old, new in zip(_VGG, _MM_VGG, strict=True)}
    return "backbone." + re.sub(r"features\.(\d+)\.", lambda found: f"features.{places[found[1]]}.conv.", key)


def pvt() -> Shapes:
    """PVTv2-B1 as its authors call its parts."""
    found: Shapes = {}
    widths, before, reductions = (64, 128, 320, 512), 3, (8, 4, 2, 1)
    for stage, (width, reduction) in enumerate(zip(widths, reductions, strict=True), start=1):
        kernel, inner = 7 if stage == 1 else 3, width * (8 if stage < 3 else 4)
        found |= _conv(f"patch_embed{stage}.proj", width, before, kernel, kernel)
        found |= _norm(f"patch_embed{stage}.norm", width)
        for block in range(2):
            name = f"block{stage}.{block}"
            found |= {**_norm(f"{name}.norm1", width), **_linear(f"{name}.attn.q", width, width)}
            found |= {**_linear(f"{name}.attn.kv", 2 * width, width), **_linear(f"{name}.attn.proj", width, width)}
            if reduction > 1:
                found |= _conv(f"{name}.attn.sr", width, width, reduction, reduction)
                found |= _norm(f"{name}.attn.norm", width)
            found |= {**_norm(f"{name}.norm2", width), **_linear(f"{name}.mlp.fc1", inner, width)}
            found |= {**_conv(f"{name}.mlp.dwconv.dwconv", inner, 1, 3, 3), **_linear(f"{name}.mlp.fc2", width, inner)}
        found |= _norm(f"norm{stage}", width)
        before = width
    return {**found, **_linear("head", 1000, widths[-1])}


def timm_pvt(key: str) -> str:
    """Stages that begin with their patches."""
    key = re.sub(r"^patch_embed([2-4])", lambda found: f"stages.{int(found[1]) - 1}.downsample", key)
    key = re.sub(r"^block(\d)", lambda found: f"stages.{int(found[1]) - 1}.blocks", key)
    key = re.sub(r"^norm(\d)", lambda found: f"stages.{int(found[1]) - 1}.norm", key)
    return key.replace("patch_embed1", "patch_embed").replace("dwconv.dwconv", "dwconv")


def mvit(width: int = 96, depths: tuple[int, ...] = (1, 2, 5, 2)) -> Shapes:
    """MViTv2-T as its authors save it: one list of blocks."""
    found = _conv("patch_embed.proj", width, 3, 7, 7)
    at = 0
    for stage, depth in enumerate(depths):
        for block in range(depth):
            name, before = f"blocks.{at}", width if block or not stage else width // 2
            found |= {**_norm(f"{name}.norm1", before), **_linear(f"{name}.attn.qkv", 3 * width, before)}
            found |= _linear(f"{name}.attn.proj", width, width)
            found |= {**_norm(f"{name}.norm2", width), **_linear(f"{name}.mlp.fc1", 4 * width, width)}
            found |= _linear(f"{name}.mlp.fc2", width, 4 * width)
            if before != width:
                found |= _linear(f"{name}.proj", width, before)
            at += 1
        width *= 2
    return {**found, **_norm("norm", width // 2), **_linear("head.projection", 1000, width // 2)}


def timm_mvit(key: str) -> str:
    """Stages of blocks."""
    stages = [(stage, index) for stage, depth in enumerate((1, 2, 5, 2)) for index in range(depth)]
    key = re.sub(r"^blocks\.(\d+)", lambda found: "stages.{}.blocks.{}".format(*stages[int(found[1])]), key)
    key = re.sub(r"(blocks\.\d+)\.proj", r"\1.shortcut_proj_attn", key)
    return key.replace("head.projection", "head.fc")


def renamed(key: str, rules: Iterable[tuple[str, str]]) -> str:
    """The key with the first rule applied that changes it."""
    return next((new for old, to in rules if (new := re.sub(old, to, key, count=1)) != key), key)


def through(key: str, rules: Iterable[tuple[str, str]]) -> str:
    """The key with all rules applied, one after another."""
    for old, new in rules:
        key = re.sub(old, new, key)
    return key


_TIMM_CONVNEXT: Rules = (
    (r"^downsample_layers\.0\.", "stem."),
    (r"^downsample_layers\.(\d+)\.", r"stages.\1.downsample."),
    (r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
    (r"\.dwconv\.", ".conv_dw."),
    (r"\.pwconv(\d)\.", r".mlp.fc\1."),
    (r"^head\.", "head.fc."),
    (r"^norm\.", "head.norm."),
)
_MM_CONVNEXT: Rules = (
    ("dwconv", "depthwise_conv"),
    ("pwconv", "pointwise_conv"),
    ("^norm", "norm3"),
    ("^(?!head)", "backbone."),
    (r"^head\.", "head.fc."),
)
_MM_VIT: Rules = (
    (r"^head\.", "head.layers.head."),
    (r"^patch_embed\.proj", "patch_embed.projection"),
    (r"^blocks\.", "layers."),
    (r"^norm\.", "ln1."),
    (r"\.norm(\d)\.", r".ln\1."),
    (r"\.mlp\.fc1", ".ffn.layers.0.0"),
    (r"\.mlp\.fc2", ".ffn.layers.1"),
    (r"\.gamma_1", ".attn.gamma1.weight"),
    (r"\.gamma_2", ".ffn.gamma2.weight"),
    ("^(?!head)", "backbone."),
)
_DETECTRON: Rules = (
    (r"^(conv1|bn1)\.", r"stem.\1."),
    (r"^layer1\.", "res2."),
    (r"^layer2\.", "res3."),
    (r"^layer3\.", "res4."),
    (r"^layer4\.", "res5."),
    (r"\.bn(\d)\.", r".conv\1.norm."),
    (r"\.downsample\.0\.", ".shortcut."),
    (r"\.downsample\.1\.", ".shortcut.norm."),
    ("^(stem|res)", r"backbone.bottom_up.\1"),
)
_TRANSFORMERS: Rules = (
    (r"^conv1\.", "embedder.embedder.convolution."),
    (r"^bn1\.", "embedder.embedder.normalization."),
    (r"\.downsample\.0\.", ".shortcut.convolution."),
    (r"\.downsample\.1\.", ".shortcut.normalization."),
    (r"\.conv1\.", ".layer.0.convolution."),
    (r"\.conv2\.", ".layer.1.convolution."),
    (r"\.conv3\.", ".layer.2.convolution."),
    (r"\.bn1\.", ".layer.0.normalization."),
    (r"\.bn2\.", ".layer.1.normalization."),
    (r"\.bn3\.", ".layer.2.normalization."),
    (r"^layer1\.", "encoder.stages.0.layers."),
    (r"^layer2\.", "encoder.stages.1.layers."),
    (r"^layer3\.", "encoder.stages.2.layers."),
    (r"^layer4\.", "encoder.stages.3.layers."),
    ("^(encoder|embedder)", r"resnet.\1"),
    (r"^fc\.", "classifier.1."),
)


@dataclass(frozen=True)
class Renaming:
    """One model, and what another code base calls each of its keys."""

    shapes: Shapes
    name: Callable[[str], str | None]

    @property
    def names(self) -> dict[str, str]:
        """Each key's other name, of those that have one."""
        return {key: new for key in self.shapes if (new := self.name(key)) is not None}


def _by(rules: Rules) -> Callable[[str], str | None]:
    return lambda key: through(key, rules)


def _timm_swin(key: str) -> str | None:
    if key.endswith(("attn_mask", "relative_position_index")):
        return None
    key = re.sub(r"layers\.(\d+)\.downsample", lambda found: f"layers.{int(found[1]) + 1}.downsample", key)
    return re.sub(r"^head\.", "head.fc.", key)


def _detectron(key: str) -> str | None:
    return None if key.startswith("fc.") or key.endswith("num_batches_tracked") else through(key, _DETECTRON)


RENAMINGS = {
    "ConvNeXt for timm": Renaming(convnext(), _by(_TIMM_CONVNEXT)),
    "ConvNeXt for mmpretrain": Renaming(convnext(), _by(_MM_CONVNEXT)),
    "Swin for timm": Renaming(swin(), _timm_swin),
    "ViT for mmpretrain": Renaming(vit(), _by(_MM_VIT)),
    "DeiT III for mmpretrain": Renaming(vit(scaled=True), _by(_MM_VIT)),
    "ResNet for detectron2": Renaming(resnet(), _detectron),
    "ResNet for transformers": Renaming(resnet(), _by(_TRANSFORMERS)),
    "EfficientNet for timm": Renaming(efficientnet(), timm_efficientnet),
    "MobileNetV2 for timm": Renaming(mobilenet(), timm_mobilenet),
    "VGG for mmpretrain": Renaming(vgg(), mm_vgg),
    "PVTv2 for timm": Renaming(pvt(), timm_pvt),
    "MViTv2 for timm": Renaming(mvit(), timm_mvit),
}
