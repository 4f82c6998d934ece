"""What is left of names and facts for which there is no room."""

from __future__ import annotations

from ckptdoctor.tui.widgets.line_view import fit_apart, fit_middle, fit_renaming, hanging


def test_what_tells_layers_apart_is_left():
    """Words are left out before numbers, and the end is never."""
    name = "model.layers.219.mlp.down_proj.weight"
    assert fit_middle(name, 34) == "model…219.mlp.down_proj.weight    "
    assert fit_middle(name, 24) == "…219…down_proj.weight   "
    assert fit_middle("post_attention_layernorm.weight", 24) == "post_att…ayernorm.weight"


def test_what_two_names_have_in_common_is_there_once():
    """And goes first where there is no room: the steps that differ are what somebody looks for."""
    old, new = "encoder.layers.10.self_attn.q_proj.weight", "encoder.layers.10.attention.query.weight"
    assert fit_renaming("a.x", "b.x", 12) == "a.x → b.x   "
    assert fit_renaming(old, new, 72).rstrip() == "encoder.layers.10.{self_attn.q_proj → attention.query}.weight"
    assert fit_renaming(old, new, 50).rstrip() == "…{self_attn.q_proj → attention.query}.weight"
    assert fit_renaming("module.conv1.weight", "conv1.weight", 30).rstrip() == "{module. → }conv1.weight"
    assert fit_renaming(old, new, 30).rstrip() == "self_….q_proj → attent….query"
    assert fit_apart(old, new, 30).rstrip() == "…self_attn.q_proj.weight"
    assert fit_apart(old, new, 18).rstrip() == "…self_attn.q_proj…"
    assert fit_apart(old, old, 24) == fit_middle(old, 24)


def test_what_goes_on_below_a_label_begins_beside_it():
    """Pieces are kept whole where they can be."""
    assert (
        hanging("float32 [8, 8] · 64 elements · 256 bytes", 40, 8)
        == f"float32 [8, 8] · 64 elements\n{' ' * 8}256 bytes"
    )
    assert hanging("short", 40, 8) == "short"
