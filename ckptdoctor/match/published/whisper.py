"""Describes Whisper of OpenAI and of transformers. OpenAI's head is its embedding (``TextDecoder.forward``)."""

from __future__ import annotations

from ckptdoctor.match.published.table import Published, Row, below, layer, row

_W = ("weight",)


def _attention(one: str, other: str) -> tuple[Row, ...]:
    return (
        *layer(f"{one}.query", f"{other}.q_proj"),
        *layer(f"{one}.key", f"{other}.k_proj", _W),
        *layer(f"{one}.value", f"{other}.v_proj"),
        *layer(f"{one}.out", f"{other}.out_proj"),
        *layer(f"{one}_ln", f"{other}_layer_norm"),
    )


def _blocks(side: str) -> tuple[Row, ...]:
    one, other = f"{side}.blocks.{{}}.", f"{side}.layers.{{}}."
    return (
        *_attention(one + "attn", other + "self_attn"),
        *layer(one + "mlp.0", other + "fc1"),
        *layer(one + "mlp.2", other + "fc2"),
        *layer(one + "mlp_ln", other + "final_layer_norm"),
    )


_BODY = (
    *layer("decoder.token_embedding", "decoder.embed_tokens", _W),
    row("decoder.positional_embedding", "decoder.embed_positions.weight"),
    *_blocks("decoder"),
    *_attention("decoder.blocks.{}.cross_attn", "decoder.layers.{}.encoder_attn"),
    *layer("decoder.ln", "decoder.layer_norm"),
    row("encoder.positional_embedding", "encoder.embed_positions.weight"),
    *layer("encoder.conv1", "encoder.conv1"),
    *layer("encoder.conv2", "encoder.conv2"),
    *_blocks("encoder"),
    *layer("encoder.ln_post", "encoder.layer_norm"),
)
_SCRIPT = "transformers (01080c6), models/whisper/convert_openai_to_hf.py"

WHISPER = (
    Published(
        "OpenAI's Whisper",
        "transformers' Whisper",
        _SCRIPT,
        below("model.", _BODY),
        tied=(("proj_out.weight", "model.decoder.embed_tokens.weight"),),
    ),
    Published("OpenAI's Whisper", "transformers' Whisper without its head", _SCRIPT, _BODY),
)
