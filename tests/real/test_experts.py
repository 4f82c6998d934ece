"""Gated layers and mixtures of experts, as one code base keeps them and as another wants them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.libraries import real, transformers

TOKENS = torch.rand(5, 8)


def mlps():
    """The gated layer of Llama, apart, and that of Phi-3, fused."""
    llama, phi3 = transformers.models.llama.modeling_llama, transformers.models.phi3.modeling_phi3
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2}
    apart, fused = transformers.LlamaConfig(**sizes), transformers.Phi3Config(**sizes, pad_token_id=0)
    made = (llama.LlamaMLP(apart), phi3.Phi3MLP(fused))
    return [nn.ModuleDict({"mlp": mlp, "norm": nn.LayerNorm(8)}) for mlp in made]


@real
@pytest.mark.parametrize("back", [False, True], ids=["fused", "split"])
def test_the_gated_layers_of_llama_and_phi3(back, bench):
    """Each computes what the other did, and the order is told by the name only: without a word nothing is done."""
    model, target = mlps()[::-1] if back else mlps()
    said = bench.refuse(model.state_dict(), target)
    assert "ckptdoctor fix sick.pt --unsafe-fixes --auto --like target.pt" in said
    assert bench.repair(model.state_dict(), target, "--unsafe-fixes") == ["S508"]
    assert torch.allclose(target["mlp"](TOKENS), model["mlp"](TOKENS), atol=1e-6)


class Apart(nn.Module):
    """A mixture whose experts are modules."""

    def __init__(self, count=4, width=8, inner=12):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            [nn.ModuleDict({"w1": nn.Linear(width, inner), "w2": nn.Linear(inner, width)}) for _ in range(count)]
        )

    def forward(self, tokens):
        each = [expert["w2"](expert["w1"](tokens).relu()) for expert in self.experts]
        return (torch.stack(each, -1) * self.gate(tokens).softmax(-1)[:, None]).sum(-1)


class Stacked(nn.Module):
    """The same with all experts in one tensor each; ``turned``: with inputs × outputs in each slice."""

    def __init__(self, count=4, width=8, inner=12, turned=False):
        super().__init__()
        self.turned = turned
        self.gate = nn.Linear(width, count)
        self.experts = nn.ParameterDict()
        for name, rows, columns in (("w1", inner, width), ("w2", width, inner)):
            shape = (columns, rows) if turned else (rows, columns)
            self.experts[name] = nn.Parameter(torch.rand(count, *shape))
            self.experts[f"{name}_bias"] = nn.Parameter(torch.rand(count, rows))

    def forward(self, tokens):
        first, second = (self.experts[name].mT if self.turned else self.experts[name] for name in ("w1", "w2"))
        inner = (torch.einsum("erc,tc->ter", first, tokens) + self.experts["w1_bias"]).relu()
        each = torch.einsum("erc,tec->ter", second, inner) + self.experts["w2_bias"]
        return (each * self.gate(tokens).softmax(-1)[..., None]).sum(1)


@pytest.mark.parametrize("back", [False, True], ids=["stack", "unbind"])
def test_experts_are_stacked_and_unbound(back, bench):
    """No value changes, and names and shapes leave no other way: done without asking."""
    torch.manual_seed(0)
    model, target = (Stacked(), Apart()) if back else (Apart(), Stacked())
    assert bench.repair(model.state_dict(), target) == ["S509"]
    assert torch.allclose(target(TOKENS), model(TOKENS), atol=1e-5)


@pytest.mark.parametrize("back", [False, True], ids=["stack", "unbind"])
def test_transposed_slices_are_turned(back, bench):
    """Their shapes show which side is which."""
    torch.manual_seed(0)
    model, target = (Stacked(turned=True), Apart()) if back else (Apart(), Stacked(turned=True))
    assert bench.repair(model.state_dict(), target) == ["S509"]
    assert torch.allclose(target(TOKENS), model(TOKENS), atol=1e-5)


def test_square_slices_are_refused(bench):
    """A transposed square would fit as well, and a guess is written in no mode."""
    model, target = Apart(inner=8), Stacked(inner=8)
    bench.refuse(model.state_dict(), target)
    assert "S509" in bench.findings()
    bench.refuse(model.state_dict(), target, "--unsafe-fixes")


def test_many_experts(bench):
    """128 experts of four layers: one after another, and in no time that grows with their square."""
    model = nn.ModuleDict({"layers": nn.ModuleList([Apart(128, 4, 6) for _ in range(4)])})
    target = nn.ModuleDict({"layers": nn.ModuleList([Stacked(128, 4, 6) for _ in range(4)])})
    assert bench.repair(model.state_dict(), target) == ["S509"]
    assert torch.equal(target["layers"][3].experts["w1"][127], model["layers"][3].experts[127]["w1"].weight)
