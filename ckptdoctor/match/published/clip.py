"""Describes CLIP of OpenAI and OpenCLIP, and of transformers: fused projections, and two matrices transposed.

OpenCLIP multiplies by ``text_projection`` and ``visual.proj`` from the right, which transformers has as linear layers.
"""

from __future__ import annotations

from ckptdoctor.match.published.table import ROWS, TURNED, Published, Row, layer, row


def _blocks(one: str, other: str) -> tuple[Row, ...]:
    at, there = f"{one}.resblocks.{{}}.", f"{other}.encoder.layers.{{}}."
    fused = [
        row(f"{at}attn.in_proj_{leaf}", (*[f"{there}self_attn.{part}_proj.{leaf}" for part in "qkv"],), ROWS)
        for leaf in ("weight", "bias")
    ]
    return (
        *fused,
        *layer(at + "attn.out_proj", there + "self_attn.out_proj"),
        *layer(at + "ln_1", there + "layer_norm1"),
        *layer(at + "ln_2", there + "layer_norm2"),
        *layer(at + "mlp.c_fc", there + "mlp.fc1"),
        *layer(at + "mlp.c_proj", there + "mlp.fc2"),
    )


_TEXT = (
    *layer("token_embedding", "text_model.embeddings.token_embedding", ("weight",)),
    row("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    *_blocks("transformer", "text_model"),
    *layer("ln_final", "text_model.final_layer_norm"),
    row("text_projection", "text_projection.weight", TURNED),
)
_VISION = (
    *layer("visual.conv1", "vision_model.embeddings.patch_embedding", ("weight",)),
    row("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    row("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    *layer("visual.ln_pre", "vision_model.pre_layrnorm"),
    *_blocks("visual.transformer", "vision_model"),
    *layer("visual.ln_post", "vision_model.post_layernorm"),
    row("visual.proj", "visual_projection.weight", TURNED),
)

CLIP = (
    Published(
        "OpenCLIP's CLIP",
        "transformers' CLIP",
        "transformers (0ea0108), models/clip/convert_clip_original_pytorch_to_hf.py",
        (*_TEXT, *_VISION, row("logit_scale", "logit_scale")),
        # OpenAI's clip/model.py, build_model(), takes the sizes out of its own files
        (
            *("input_resolution", "context_length", "vocab_size"),
            *("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
        ),
    ),
)
