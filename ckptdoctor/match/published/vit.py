"""Describes vision transformers of timm (and DeiT and DINOv2, which began with it), and of transformers.

timm keeps queries, keys and values in one projection, all queries first, then all keys, then all values. transformers
has other names in the files of its Hub than in its models since version 5.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.match.published.table import ROWS, SAME, Published, Row, below, layer, row

_SOURCE = "transformers (0ea0108), models/{}/convert_{}.py"
# what a block is called, then its projections, what follows them, and the two layers behind
_Dialect = tuple[str, tuple[str, str, str], str, str, str]
_MODELS: _Dialect = ("layers", ("q_proj", "k_proj", "v_proj"), "attention.o_proj", "mlp.fc1", "mlp.fc2")
_HUB: _Dialect = (
    *("encoder.layer", ("attention.query", "attention.key", "attention.value"), "attention.output.dense"),
    *("intermediate.dense", "output.dense"),
)
_DINO_MODELS: _Dialect = ("encoder.layer", *_MODELS[1:])
_DINO_HUB: _Dialect = (*_HUB[:3], "mlp.fc1", "mlp.fc2")
_NORMS = ("norm1", "norm2")


def _body(dialect: _Dialect, norms: tuple[str, str] = ("layernorm_before", "layernorm_after")) -> tuple[Row, ...]:
    block, projections, out, first, second = dialect
    at, there = "blocks.{}.", f"{block}.{{}}."
    fused = [
        row(f"{at}attn.qkv.{leaf}", tuple([f"{there}attention.{each}.{leaf}" for each in projections]), ROWS)
        for leaf in ("weight", "bias")
    ]
    return (
        row("cls_token", "embeddings.cls_token"),
        row("pos_embed", "embeddings.position_embeddings"),
        *layer("patch_embed.proj", "embeddings.patch_embeddings.projection"),
        *fused,
        *layer(at + "attn.proj", there + out),
        *layer(at + "norm1", there + norms[0]),
        *layer(at + "norm2", there + norms[1]),
        *layer(at + "mlp.fc1", there + first),
        *layer(at + "mlp.fc2", there + second),
        *layer("norm", "layernorm"),
    )


def _scaled(block: str, gated: tuple[str, ...], down: str) -> tuple[Row, ...]:
    """Return what DINOv2 has more: a factor for each channel, a token for what is masked, registers, and gated layers.

    The gate is the first half of ``w12`` (facebookresearch/dinov2 at b8931f7, layers/swiglu_ffn.py).
    """
    at, there = "blocks.{}.", f"{block}.{{}}."
    halves = [
        row(f"{at}mlp.w12.{leaf}", tuple([f"{there}mlp.{each}.{leaf}" for each in gated]), ROWS if gated[1:] else SAME)
        for leaf in ("weight", "bias")
    ]
    return (
        *halves,
        *layer(at + "mlp.w3", f"{there}mlp.{down}"),
        row("register_tokens", "embeddings.register_tokens"),
        row(at + "ls1.gamma", there + "layer_scale1.lambda1"),
        row(at + "ls2.gamma", there + "layer_scale2.lambda1"),
        row("mask_token", "embeddings.mask_token"),
    )


def _of(one: str, other: str, name: str, script: str, rows: Iterable[Row], heads: tuple[Row, ...]) -> list[Published]:
    """Return the layout with a head, and without one, where no prefix is before the rest."""
    rows, source = tuple(rows), _SOURCE.format(name, script)
    return [
        Published(one, f"transformers' {other}", source, (*below(f"{name}.", rows), *heads)),
        Published(one, f"transformers' {other} without its head", source, rows),
    ]


_TOKEN = row("dist_token", "embeddings.distillation_token")
_HEADS = (*layer("head", "cls_classifier"), *layer("head_dist", "distillation_classifier"))

_DINO_REST = _scaled(_DINO_MODELS[0], ("gate_proj", "up_proj"), "down_proj")
_DINO_HUB_REST = _scaled(_DINO_HUB[0], ("weights_in",), "weights_out")
_CLASSIFIER = layer("head", "classifier")

VIT = (
    *_of("timm's ViT", "ViT", "vit", "vit_timm_to_pytorch", _body(_MODELS), _CLASSIFIER),
    *_of("timm's ViT", "ViT", "vit", "vit_timm_to_pytorch", _body(_HUB), _CLASSIFIER),
    *_of("timm's DeiT", "DeiT", "deit", "deit_timm_to_pytorch", (*_body(_MODELS), _TOKEN), _HEADS),
    *_of("timm's DeiT", "DeiT", "deit", "deit_timm_to_pytorch", (*_body(_HUB), _TOKEN), _HEADS),
    *_of("DINOv2", "DINOv2", "dinov2", "dinov2_to_hf", (*_body(_DINO_MODELS, _NORMS), *_DINO_REST), ()),
    *_of("DINOv2", "DINOv2", "dinov2", "dinov2_to_hf", (*_body(_DINO_HUB, _NORMS), *_DINO_HUB_REST), ()),
)
