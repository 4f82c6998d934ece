"""Recognises code bases that hold the same networks under other names and in other layouts, by the names they use."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.noun import noun


@noun
class Layout:
    """One code base: what it is called, and names that all of its checkpoints hold."""

    name: str
    marks: tuple[str, ...]


@noun
class LayoutFamily:
    """Layouts of the same networks, and what converts one into the other; renaming alone never does."""

    layouts: tuple[Layout, ...]
    converter: str
    why: str


FAMILIES = (
    LayoutFamily(
        (
            Layout("Meta's Llama", ("tok_embeddings.", ".attention.wq.", ".feed_forward.w1.")),
            Layout("torchtune's Llama", (".attn.q_proj.", ".attn.output_proj.", ".sa_norm.scale")),
            Layout("transformers' Llama", ("embed_tokens.", ".self_attn.q_proj.", ".mlp.gate_proj.")),
        ),
        "transformers/models/llama/convert_llama_weights_to_hf.py",
        "the rows of queries and keys may be in another order (rotary halves)",
    ),
    LayoutFamily(
        (
            Layout("latent diffusion", ("model.diffusion_model.", "first_stage_model.")),
            Layout("diffusers' UNet", ("down_blocks.", "mid_block.", "up_blocks.")),
        ),
        "diffusers' from_single_file() or scripts/convert_original_stable_diffusion_to_diffusers.py",
        "blocks are numbered and attention is shaped differently",
    ),
    LayoutFamily(
        (
            Layout("OpenAI's CLIP", ("visual.transformer.resblocks.", "transformer.resblocks.", "token_embedding.")),
            Layout("transformers' CLIP", ("vision_model.encoder.layers.", "text_model.encoder.layers.")),
        ),
        "transformers/models/clip/convert_clip_original_pytorch_to_hf.py",
        "query, key and value are one matrix in one and three in the other",
    ),
    LayoutFamily(
        (
            Layout("Megatron", (".query_key_value.", ".dense_h_to_4h.", ".dense_4h_to_h.")),
            Layout("transformers' GPT-2", (".attn.c_attn.", ".mlp.c_fc.", ".mlp.c_proj.")),
        ),
        "Megatron's own tools/checkpoint/convert.py",
        "query, key and value are in another order",
    ),
    LayoutFamily(
        (
            Layout("Swin", (".attn.relative_position_bias_table", ".mlp.fc1.", ".downsample.reduction.")),
            Layout(
                "OpenMMLab's Swin",
                (".attn.w_msa.relative_position_bias_table", ".ffn.layers.0.0.", ".downsample.reduction."),
            ),
        ),
        "OpenMMLab's convert_weights=True or its model_converters",
        "downsampling takes its four neighbours in a different order",
    ),
)


def layout(keys: Iterable[str]) -> Layout | None:
    """Return the layout whose marks are all somewhere in the keys, if there is one."""
    text = "\n".join(keys)
    found = [each for family in FAMILIES for each in family.layouts if all(mark in text for mark in each.marks)]
    return found[0] if len(found) == 1 else None


def family_of(one: Layout | None, other: Layout | None) -> LayoutFamily | None:
    """Return the family that two different layouts belong to."""
    if one is None or other is None or one is other:
        return None
    return next((family for family in FAMILIES if one in family.layouts and other in family.layouts), None)
