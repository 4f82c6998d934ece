"""Keys and shapes of well-known models as two libraries call them, a few channels wide; written down as facts."""

from __future__ import annotations

import re

import torch


def _linear(name, rows, columns):
    return {f"{name}.weight": torch.rand(rows, columns), f"{name}.bias": torch.rand(rows)}


def _conv(name, *shape):
    return {f"{name}.weight": torch.rand(shape), f"{name}.bias": torch.rand(shape[0])}


def _norm(name, width):
    return {f"{name}.weight": torch.rand(width), f"{name}.bias": torch.rand(width)}


def _batch_norm(name, width):
    stats = {f"{name}.running_mean": torch.rand(width), f"{name}.running_var": torch.rand(width)}
    return {**_norm(name, width), **stats, f"{name}.num_batches_tracked": torch.tensor(7)}


def densenet(classes=10, growth=4, width=8, blocks=(6, 12, 24, 16)):
    """DenseNet-121 as torchvision calls its parts today."""
    found = {"features.conv0.weight": torch.rand(width, 3, 7, 7), **_batch_norm("features.norm0", width)}
    for block, layers in enumerate(blocks, 1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            found |= _batch_norm(f"{name}.norm1", width)
            found[f"{name}.conv1.weight"] = torch.rand(4 * growth, width, 1, 1)
            found |= _batch_norm(f"{name}.norm2", 4 * growth)
            found[f"{name}.conv2.weight"] = torch.rand(growth, 4 * growth, 3, 3)
            width += growth
        if block < len(blocks):
            found |= _batch_norm(f"features.transition{block}.norm", width)
            found[f"features.transition{block}.conv.weight"] = torch.rand(width // 2, width, 1, 1)
            width //= 2
    return {**found, **_batch_norm(f"features.norm{len(blocks) + 1}", width), **_linear("classifier", classes, width)}


def old_densenet(state_dict):
    """The same as its weights of 2017 are called: ``norm.1`` for ``norm1``, ``conv.2`` for ``conv2``, no counters."""
    kept = {key: value for key, value in state_dict.items() if not key.endswith("num_batches_tracked")}
    return {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", key): value for key, value in kept.items()}


def swin(classes=10, width=8, depths=(2, 2, 6, 2)):
    """Swin as its authors call its parts, without the buffers that follow from the window."""
    found = {**_conv("patch_embed.proj", width, 3, 4, 4), **_norm("patch_embed.norm", width)}
    for stage, depth in enumerate(depths):
        for block in range(depth):
            name = f"layers.{stage}.blocks.{block}"
            found |= _norm(f"{name}.norm1", width)
            found[f"{name}.attn.relative_position_bias_table"] = torch.rand(9, 2**stage)
            found |= {**_linear(f"{name}.attn.qkv", 3 * width, width), **_linear(f"{name}.attn.proj", width, width)}
            found |= _norm(f"{name}.norm2", width)
            found |= {**_linear(f"{name}.mlp.fc1", 4 * width, width), **_linear(f"{name}.mlp.fc2", width, 4 * width)}
        if stage + 1 < len(depths):
            found[f"layers.{stage}.downsample.reduction.weight"] = torch.rand(2 * width, 4 * width)
            found |= _norm(f"layers.{stage}.downsample.norm", 4 * width)
            width *= 2
    return {**found, **_norm("norm", width), **_linear("head", classes, width)}


def timm_swin(state_dict):
    """The same as timm calls its parts since 0.9: a stage begins with its downsampling, and the head has a pool."""
    return {_timm_swin(key): value for key, value in state_dict.items()}


def _timm_swin(key):
    key = re.sub(r"layers\.(\d+)\.downsample", lambda found: f"layers.{int(found[1]) + 1}.downsample", key)
    return re.sub(r"^head\.", "head.fc.", key)


def detection_swin(state_dict):
    """The same as a detection library calls its backbone: ``stages``, ``w_msa`` and ``ffn``."""
    kept = {key: value for key, value in state_dict.items() if not key.startswith(("head.", "norm."))}
    words = {
        "patch_embed.proj": "patch_embed.projection",
        "layers.": "stages.",
        "attn.": "attn.w_msa.",
        "mlp.fc1": "ffn.layers.0.0",
        "mlp.fc2": "ffn.layers.1",
    }
    for old, new in words.items():
        kept = {key.replace(old, new): value for key, value in kept.items()}
    return kept


def convnext(classes=10, widths=(4, 8, 16, 32), depths=(2, 2, 3, 2)):
    """ConvNeXt as its authors call its parts."""
    found = {}
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        name = f"downsample_layers.{stage}"
        if stage:
            found |= {**_norm(f"{name}.0", widths[stage - 1]), **_conv(f"{name}.1", width, widths[stage - 1], 2, 2)}
        else:
            found |= {**_conv(f"{name}.0", width, 3, 4, 4), **_norm(f"{name}.1", width)}
        for block in range(depth):
            name = f"stages.{stage}.{block}"
            found[f"{name}.gamma"] = torch.rand(width)
            found |= {**_conv(f"{name}.dwconv", width, 1, 7, 7), **_norm(f"{name}.norm", width)}
            found |= {**_linear(f"{name}.pwconv1", 4 * width, width), **_linear(f"{name}.pwconv2", width, 4 * width)}
    return {**found, **_norm("norm", widths[-1]), **_linear("head", classes, widths[-1])}


_TIMM_CONVNEXT = (
    (r"^downsample_layers\.0\.", "stem."),
    (r"^downsample_layers\.(\d+)\.", r"stages.\1.downsample."),
    (r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
    (r"\.dwconv\.", ".conv_dw."),
    (r"\.pwconv(\d)\.", r".mlp.fc\1."),
    (r"^head\.", "head.fc."),
    (r"^norm\.", "head.norm."),
)


def timm_convnext(state_dict):
    """The same as timm calls its parts."""
    for old, new in _TIMM_CONVNEXT:
        state_dict = {re.sub(old, new, key): value for key, value in state_dict.items()}
    return state_dict
