"""Describes ConvNeXt and V2 as they were published, and of timm: other names, and dimensions of size 1."""

from __future__ import annotations

from ckptdoctor.match.published.table import Published, layer, row

_AT, _THERE = "stages.{}.{}.", "stages.{}.blocks.{}."

CONVNEXT = (
    Published(
        "the first ConvNeXt",
        "timm's ConvNeXt",
        "timm 1.0.31, models/convnext.py, checkpoint_filter_fn()",
        (
            *layer("downsample_layers.0.0", "stem.0"),
            *layer("downsample_layers.0.1", "stem.1"),
            *layer("downsample_layers.{}.0", "stages.{}.downsample.0"),
            *layer("downsample_layers.{}.1", "stages.{}.downsample.1"),
            *layer(_AT + "dwconv", _THERE + "conv_dw"),
            *layer(_AT + "norm", _THERE + "norm"),
            *layer(_AT + "pwconv1", _THERE + "mlp.fc1"),
            *layer(_AT + "pwconv2", _THERE + "mlp.fc2"),
            row(_AT + "gamma", _THERE + "gamma"),
            row(_AT + "grn.gamma", _THERE + "mlp.grn.weight"),
            row(_AT + "grn.beta", _THERE + "mlp.grn.bias"),
            *layer("norm", "head.norm"),
            *layer("head", "head.fc"),
        ),
    ),
)
