"""A comparison laid out by depth."""

from __future__ import annotations

import torch

import ckptdoctor
from ckptdoctor.rendering.depth import FROM_ZERO, in_columns, of_difference, short_kinds


def compared(folder, a, b):
    """The difference of two files with these weights, with their values."""
    for name, weights in (("a.pt", a), ("b.pt", b)):
        torch.save(weights, folder / name)
    return ckptdoctor.diff(folder / "a.pt", folder / "b.pt", values=True)


def weights(layers):
    """So many layers of two tensors each."""
    return {f"h.{layer}.{leaf}": torch.ones(2, 2) for layer in range(layers) for leaf in ("q.weight", "k.weight")}


def test_the_layers_that_differ(tmp_path):
    """Rows are kinds of tensors, columns layers in the order of their numbers; the headline names those that differ."""
    a, b = weights(12), weights(12)
    for layer in (10, 11):
        b[f"h.{layer}.q.weight"] = torch.full((2, 2), 1.5)
    found = of_difference(compared(tmp_path, a, b))
    assert found.layers == tuple(range(12)) and short_kinds(found.kinds) == ["q", "k"]
    assert found.cells[0][9:] == (0.0, 0.5, 0.5) and set(found.cells[1]) == {0.0}
    assert found.headline == "only layers 10–11 differ"


def test_another_name_is_no_change_of_a_layer(tmp_path):
    """The headline is about values, shapes and dtypes: where names alone differ, it says nothing."""
    renamed = {f"model.{name}": value for name, value in weights(12).items()}
    assert of_difference(compared(tmp_path, weights(12), renamed)).headline == ""
    renamed["model.h.3.q.weight"] = torch.full((2, 2), 1.5)
    assert of_difference(compared(tmp_path, weights(12), renamed)).headline == "only layer 3 differs"


def test_kinds_have_as_few_words_as_tell_them_apart():
    """A weight is called after its module, a bias after both."""
    kinds = ("attn.q_proj.weight", "attn.q_proj.bias", "attn.k_proj.weight", "attn.k_proj.bias", "norm.weight")
    assert short_kinds(kinds) == ["q_proj", "q_proj.bias", "k_proj", "k_proj.bias", "norm"]


def test_kinds_without_a_row_are_counted(tmp_path):
    """A picture has a dozen rows."""
    many = {f"h.{layer}.{leaf}.weight": torch.ones(1) for layer in range(4) for leaf in "abcdefghijklmn"}
    found = of_difference(compared(tmp_path, many, many))
    assert (len(found.kinds), found.more) == (12, 2)


def test_what_was_all_zeros_has_no_size(tmp_path):
    """A bias that was nothing but zeros before training is no change without bounds."""
    a, b = weights(4), weights(4)
    a["h.0.q.weight"] = torch.zeros(2, 2)
    assert of_difference(compared(tmp_path, a, b)).cells[0][0] == FROM_ZERO


def test_few_layers_have_no_picture(tmp_path):
    """Nor has what has none."""
    assert of_difference(compared(tmp_path, weights(3), weights(3))) is None


def test_neighbours_share_a_column_where_there_is_little_room():
    """The largest change shows, and what is not known is left out."""
    assert in_columns((0.0, 0.1, None, None, 0.3, 0.2), 3) == [0.1, None, 0.3]
