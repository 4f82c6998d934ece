"""N419 derived-buffer."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.edits import Safety
from ckptdoctor.rules.examples import T
from tests.rules import nouns


class Attention(torch.nn.Module):
    """GPT-2's attention layer, whose mask older versions of libraries saved and newer ones do not."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.c_attn = torch.nn.Linear(4, 12)
        mask = torch.tril(torch.ones(8, 8, dtype=torch.bool)).view(1, 1, 8, 8)
        self.register_buffer("bias", mask, persistent=persistent)
        self.register_buffer("masked_bias", torch.tensor(-1e4), persistent=persistent)


class Model(torch.nn.Module):
    """A small transformer with every kind of buffer that follows from its sizes."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 4)
        self.register_buffer("position_ids", torch.arange(8).expand((1, -1)), persistent=persistent)
        self.register_buffer("inv_freq", 1 / 10000 ** (torch.arange(0, 4, 2) / 4), persistent=persistent)
        self.h = torch.nn.ModuleList([torch.nn.ModuleDict({"attn": Attention(persistent)}) for _ in range(12)])


def test_buffers_that_the_target_makes_itself_go() -> None:
    """A few patterns drop all of them, the reference confirms it, and the rest loads."""
    saved, target = Model(persistent=True).state_dict(), Model(persistent=False)
    [found] = nouns.findings("N419", nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0].removesuffix(", …") in nouns.torch_error(target, saved)
    assert found.message == "26 of 51 keys follow from the model's sizes, and like.pt does not load them"
    assert found.fix is not None
    assert found.fix.safety is Safety.CONFIRMED
    assert found.fix.option == ("--drop position_ids --drop inv_freq --drop '*.attn.bias' --drop '*.masked_bias'")
    left = nouns.repaired(nouns.described(saved), found.fix).state_dicts[0].keys
    target.load_state_dict({key: saved[key] for key in left})
    assert nouns.findings("R002", nouns.described(saved), nouns.described(target.state_dict())) == []


def test_buffers_that_the_target_wants_it_has_already() -> None:
    """Nothing is made up: ``strict=False`` leaves them as they are."""
    saved, target = Model(persistent=False).state_dict(), Model(persistent=True)
    [found] = nouns.findings("N419", nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0].removesuffix(", …") in nouns.torch_error(target, saved)
    assert found.fix is None
    assert "strict=False" in found.advice
    assert not target.load_state_dict(saved, strict=False).unexpected_keys
    assert nouns.findings("R001", nouns.described(saved), nouns.described(target.state_dict())) == []


@pytest.mark.parametrize(
    ("key", "tensor"),
    [
        ("rope.freqs", T((64,))),
        ("freqs_cos", T((8, 24))),
        ("freqs_cis", T((8, 24), "complex64")),
        ("layers.0.rotary_emb.cos_cached", T((1, 1, 8, 4))),
        ("h.0.attn.mask", T((1, 1, 8, 8))),
        ("gpt_neox.layers.0.attention.bias", T((1, 1, 8, 8), "uint8")),
        ("blocks.0.attn.relative_position_index", T((49, 49), "int64")),
        ("features.1.0.attn.relative_position_index", T((2401,), "int64")),
        ("blocks.0.attn.relative_coords_table", T((1, 15, 15, 2))),
        ("blocks.1.attn_mask", T((4, 49, 49))),
        ("h.0.attn.causal_mask", T((1, 1, 8, 8), "bool")),
    ],
)
def test_known_buffers_are_told_by_name_dtype_and_shape(key: str, tensor: T) -> None:
    """What known libraries call them, in the shapes that these give them."""
    body = {f"layer{number}.weight": T((4, 4)) for number in range(3)}
    assert len(nouns.findings("N419", {**body, key: tensor}, body)) == 1


@pytest.mark.parametrize(
    ("key", "tensor"),
    [
        ("h.0.attn.bias", T((12,))),
        ("h.0.attn.bias", T((1, 4, 8, 8))),
        ("h.0.mlp.bias", T((1, 1, 8, 8))),
        ("h.0.attn.bias.weight", T((1, 1, 8, 8))),
        ("position_ids", T((8, 4))),
        ("position_ids", T((1, 8))),
        ("my_position_ids", T((1, 8), "int64")),
        ("inv_freq", T((4, 4))),
        ("rotary_emb.freqs", T((4,))),
        ("relative_position_index", T((49, 48), "int64")),
        ("relative_position_bias_table", T((169, 3))),
        ("attn_mask", T((49, 48))),
        ("masked_bias", T(())),
    ],
)
def test_near_misses_are_left_alone(key: str, tensor: T) -> None:
    """Another dtype, another shape, another parent, or a name that only holds a known one: it may be learnt."""
    body = {f"layer{number}.weight": T((4, 4)) for number in range(3)}
    assert nouns.findings("N419", {**body, key: tensor}, body) == []
    assert nouns.findings("N419", body, {**body, key: tensor}) == []


def test_a_reference_that_tells_no_dtypes_is_believed() -> None:
    """The text of torch's error tells no dtypes; the name and the shape have to do."""
    body = nouns.checkpoint({f"layer{number}.weight": T((4, 4)) for number in range(3)})
    for shape, derived in (((1, 8), True), ((8, 4), False)):
        told = {key: Expected((4, 4), None) for key in body.state_dicts[0].keys}
        like = Reference("the error", {**told, "embeddings.position_ids": Expected(shape, None)})
        assert bool(nouns.findings_in("N419", body, like)) is derived
