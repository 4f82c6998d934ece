"""Which program wrote an adapter, told by the keys alone."""

from __future__ import annotations

import pytest

from ckptdoctor.rules.adapter.layouts import lora_layout
from tests.work import growth

Q = "base_model.model.layers.0.q_proj"
U = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
LAYOUTS = {
    "kohya's sd-scripts": [f"{U}.lora_down.weight", f"{U}.lora_up.weight", f"{U}.alpha"],
    "LyCORIS": [f"{U}.hada_w1_a", f"{U}.hada_w1_b", f"{U}.hada_w2_a", f"{U}.hada_w2_b", f"{U}.alpha"],
    "diffusers' attention processors": [
        "unet.mid_block.attentions.0.transformer_blocks.0.attn1.processor.to_q_lora.down.weight",
        "unet.mid_block.attentions.0.transformer_blocks.0.attn1.processor.to_q_lora.up.weight",
    ],
    "diffusers before peft": [
        "unet.mid_block.attentions.0.attn1.to_q.lora.down.weight",
        "text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_linear_layer.up.weight",
    ],
    "peft": [f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"],
    None: ["conv.weight", "lora_scale", "a.lora_B.c.d.weight"],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_programs_are_told_by_their_keys(name: str | None) -> None:
    """More than half of the keys must be written so."""
    found = lora_layout(LAYOUTS[name])
    assert (found.name if found is not None else None) == name


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_keys() -> None:
    """And with the length of one: a million dots in the longer list."""

    def keys(layers: int) -> list[str]:
        return [f"base_model.model.layers.{n}.q_proj.lora_A.default.weight" for n in range(4 * layers)] + [
            "." * (80 * layers) + "lora_A.weight"
        ]

    given = {layers: keys(layers) for layers in (1_250, 12_500)}
    assert growth(lambda layers: lora_layout(given[layers]), 1_250, 12_500, runs=1) < 40
