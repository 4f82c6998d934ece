"""What is left of names and facts for which there is no room."""

from __future__ import annotations

from ckptdoctor.tui.widgets.line_view import fit_middle, hanging


def test_what_tells_layers_apart_is_left():
    """Words are left out before numbers, and the end is never."""
    name = "model.layers.219.mlp.down_proj.weight"
    assert fit_middle(name, 34) == "model…219.mlp.down_proj.weight    "
    assert fit_middle(name, 24) == "…219…down_proj.weight   "
    assert fit_middle("post_attention_layernorm.weight", 24) == "post_att…ayernorm.weight"


def test_what_goes_on_below_a_label_begins_beside_it():
    """Pieces are kept whole where they can be."""
    assert (
        hanging("float32 [8, 8] · 64 elements · 256 bytes", 40, 8)
        == f"float32 [8, 8] · 64 elements\n{' ' * 8}256 bytes"
    )
    assert hanging("short", 40, 8) == "short"
