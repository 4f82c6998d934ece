"""S507 fused-qkv, S508 fused-gate-up and S509 moe-stacked-experts."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.edits import Safety
from ckptdoctor.rules.examples import T
from tests.match.architectures import Contents, llama, mixtral
from tests.match.test_shapes import foreign
from tests.rules import nouns


class _Attention(torch.nn.Module):
    """Attention with three projections of its own, beside a feed-forward layer."""

    def __init__(self, width: int, *, split: bool) -> None:
        super().__init__()
        if split:
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                self.add_module(name, torch.nn.Linear(width, width))
        else:
            inner = torch.nn.MultiheadAttention(width, 2)
            self.in_proj_weight, self.in_proj_bias, self.out_proj = (
                inner.in_proj_weight,
                inner.in_proj_bias,
                inner.out_proj,
            )


def _model(*, split: bool) -> torch.nn.Module:
    layers = [_Attention(8, split=split), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)]
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("split", [False, True])
def test_the_attention_of_torch_is_known(split: bool) -> None:
    """in_proj_weight against three modules, both ways round, in torch's words."""
    model, saved = _model(split=not split), _model(split=split).state_dict()
    here, there = nouns.described(saved), nouns.described(model.state_dict())
    [found] = nouns.findings("S507", here, there)
    error = nouns.torch_error(model, saved)
    assert all(line.split(",")[0].rstrip(".") in error for line in found.torch_says)
    assert nouns.findings("R001", here, there) == []
    assert nouns.findings("R002", here, there) == []


def test_no_layout_is_guessed_and_all_are_named() -> None:
    """A wrong order loads without a word, so there is no repair, only the layouts that it could be."""
    [found] = nouns.findings("S507", llama(2, 64, 160, 320, qkv=True), llama(2, 64, 160, 320))
    assert found.fix is None
    assert all(layout in found.advice for layout in ("q-k-v", "k-v-q", "per-head", "grouped"))


def test_a_transposed_tensor_is_known_for_one() -> None:
    """GPT-2's c_attn holds inputs × outputs."""
    body: Contents = {f"h.{at}.ln.weight": T((4,)) for at in range(4)}
    apart = {f"h.0.attn.{name}_proj.weight": T((4, 4)) for name in "qkv"}
    [found] = nouns.findings("S507", {**body, "h.0.attn.c_attn.weight": T((4, 12))}, {**body, **apart})
    assert "transposed" in found.cause


def test_cross_attention_is_not_confused_with_self_attention() -> None:
    """A block with two attentions is matched by the names of the modules only."""
    body: Contents = {f"layers.{at}.norm.weight": T((4,)) for at in range(9)}
    apart = {f"layers.0.{kind}.{name}.weight": T((4, 4)) for kind in ("self", "cross") for name in ("q", "k", "v")}
    assert nouns.findings("S507", {**body, "layers.0.attn.qkv.weight": T((12, 4))}, {**body, **apart}) == []
    [found] = nouns.findings("S507", {**body, "layers.0.cross.qkv.weight": T((12, 4))}, {**body, **apart})
    assert found.message.startswith("layers.0.cross.qkv.weight [12, 4] here, q.weight, k.weight and v.weight [4, 4]")


@pytest.mark.parametrize("here", [True, False])
def test_gates_are_counted_over_all_layers(here: bool) -> None:
    """One finding for the model, not one for each layer."""
    sides = llama(5, 64, 160, 320, gate_up=here), llama(5, 64, 160, 320, gate_up=not here)
    [found] = nouns.findings("S508", *sides)
    assert found.message.endswith("; 4 more tensors likewise")
    assert len(found.keys) == (5 if here else 10)
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert len(found.fix.edits) == 5


@pytest.mark.parametrize(
    ("fused", "parts", "known"),
    [
        ("gate_up_proj", ("gate_proj", "up_proj"), True),
        ("w13", ("w1", "w3"), True),
        ("w12", ("w1", "w2"), True),
        ("gate_up_proj", ("w1", "w3"), False),
        ("w13", ("w1", "w2"), False),
        ("wi", ("wi_0", "wi_1"), False),
        ("linear_fc1", ("gate_proj", "up_proj"), False),
    ],
)
def test_only_a_name_that_spells_its_parts_tells_their_order(fused: str, parts: tuple[str, ...], known: bool) -> None:
    """Where the fused name does not say what comes first, it is asked for."""
    body: Contents = {f"layers.{at}.norm.weight": T((4,)) for at in range(4)}
    whole = {f"layers.0.mlp.{fused}.weight": T((12, 4))}
    apart = {f"layers.0.mlp.{part}.weight": T((6, 4)) for part in parts}
    for here, there in ((whole, apart), (apart, whole)):
        [found] = nouns.findings("S508", {**body, **here}, {**body, **there})
        assert (found.fix is not None) is known
        assert ("Look it up" in found.advice) is not known


def test_a_transposed_gate_is_not_split() -> None:
    """Inputs × outputs: which of both is meant by the name's order is not known."""
    body: Contents = {f"layers.{at}.norm.weight": T((4,)) for at in range(4)}
    apart = {f"layers.0.mlp.{part}_proj.weight": T((6, 4)) for part in ("gate", "up")}
    [found] = nouns.findings("S508", {**body, "layers.0.mlp.gate_up_proj.weight": T((4, 12))}, {**body, **apart})
    assert found.fix is None


_BODY: Contents = {f"layers.{at}.norm.weight": T((4,)) for at in range(9)}


def _experts(slices: dict[str, tuple[int, ...]]) -> Contents:
    return {f"layers.0.experts.{at}.{name}.weight": T(shape) for at in range(3) for name, shape in slices.items()}


@pytest.mark.parametrize(
    ("stacked", "slices", "safety"),
    [
        ({"w1": (3, 6, 4), "w2": (3, 4, 6)}, {"w1": (6, 4), "w2": (4, 6)}, Safety.CONFIRMED),
        ({"w1.weight": (3, 6, 4), "w2_weight": (3, 4, 6)}, {"w1": (6, 4), "w2": (4, 6)}, Safety.CONFIRMED),
        ({"w1": (3, 4, 4)}, {"w1": (4, 4)}, None),
        ({"w1": (3, 4, 6), "w2": (3, 6, 4)}, {"w1": (6, 4), "w2": (4, 6)}, Safety.CONFIRMED),
        ({"w1": (3, 4, 6), "w2": (3, 4, 4)}, {"w1": (6, 4), "w2": (4, 4)}, None),
        ({"w13": (3, 12, 4)}, {"w1": (6, 4), "w3": (6, 4)}, None),
        ({"w1": (3, 24)}, {"w1": (6, 4)}, None),
    ],
)
def test_shapes_and_names_tell_which_slice_is_whose(
    stacked: dict[str, tuple[int, ...]], slices: dict[str, tuple[int, ...]], safety: Safety | None
) -> None:
    """Confirmed where no other way is left, also where slices are transposed; nothing where they may be."""
    whole: Contents = {f"layers.0.experts.{name}": T(shape) for name, shape in stacked.items()}
    for here, there in ((whole, _experts(slices)), (_experts(slices), whole)):
        [found] = nouns.findings("S509", {**_BODY, **here}, {**_BODY, **there})
        assert (found.fix.safety if found.fix is not None else None) is safety


@pytest.mark.parametrize("here", [True, False])
def test_experts_are_matched_by_their_elements(here: bool) -> None:
    """The names of modules and projections may differ, the number of experts and elements may not."""
    [found] = nouns.findings("S509", *[foreign(mixtral(stacked=each)) for each in (here, not here)])
    assert found.message.startswith(f"8 experts are {'stacked here and apart' if here else 'apart here and stacked'}")
    assert found.message.endswith("; 1 more layer likewise")


def test_experts_of_another_size_are_not_the_same() -> None:
    """A row more, and nothing is said."""
    changed = {**mixtral(stacked=True), "model.layers.0.mlp.experts.down_proj": T((8, 64, 161))}
    [found] = nouns.findings("S509", changed, mixtral(stacked=False))
    assert "more layer" not in found.message
