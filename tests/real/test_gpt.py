"""GPT-2, whose projection has its inputs first, and networks that have queries, keys and values in layers of their own.

``Apart`` computes with linear layers what transformers computes with ``Conv1D``.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.libraries import real, transformers
from tests.real.test_published import fixed, logits, refused

WIDTH, HEADS = 8, 2
Q, K, V = "q_proj", "k_proj", "v_proj"


def gpt2(inner=4 * WIDTH):
    """That of transformers, with numbers of its own."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "n_positions": 16, "n_embd": WIDTH, "n_head": HEADS, "n_layer": 2, "n_inner": inner}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


class Block(nn.Module):
    """A block with three projections, all of its layers linear."""

    def __init__(self, names, inner):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp, self.names = nn.Module(), nn.Module(), names
        for name in (*names, "c_proj"):
            setattr(self.attn, name, nn.Linear(WIDTH, WIDTH))
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x):
        y = self.ln_1(x)
        parts = [getattr(self.attn, name)(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for name in self.names]
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.attn.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp.c_proj(nn.functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Apart(nn.Module):
    """GPT-2 as people write it who do without ``Conv1D``."""

    def __init__(self, names=(Q, K, V), inner=4 * WIDTH):
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte, self.transformer.wpe = nn.Embedding(16, WIDTH), nn.Embedding(16, WIDTH)
        self.transformer.h = nn.ModuleList([Block(names, inner) for _ in range(2)])
        self.transformer.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, 16, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe(torch.arange(tokens.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


def saved(folder, source, target):
    """Both, beside each other."""
    torch.save(source, folder / "m.pt")
    torch.save(target, folder / "like.pt")


@real
@pytest.mark.parametrize("back", [False, True], ids=["to linear layers", "to transformers"])
@pytest.mark.parametrize("names", [(Q, K, V), ("query", "key", "value")], ids="-".join)
def test_both_compute_the_same(tmp_path, names, back):
    """The columns of one matrix are the rows of three; that of the output is square, and turned as well."""
    hugging, apart = gpt2(), Apart(names).eval()
    for parameter in apart.parameters():
        nn.init.normal_(parameter, std=0.5)
    source, target = (apart, hugging) if back else (hugging, apart)
    saved(tmp_path, source.state_dict(), target.state_dict())
    target.load_state_dict(fixed(tmp_path, "m.pt", "--like", "like.pt"))
    assert torch.allclose(logits(hugging), logits(apart), atol=1e-4)


@real
def test_the_body_alone_goes_into_the_body_alone(tmp_path):
    """GPT2Model has no prefix, and no head."""
    source, target = gpt2().transformer.state_dict(), Apart().transformer.state_dict()
    saved(tmp_path, source, target)
    made = fixed(tmp_path, "m.pt", "--like", "like.pt")
    assert torch.equal(made["h.1.attn.k_proj.weight"], source["h.1.attn.c_attn.weight"][:, WIDTH : 2 * WIDTH].T)


CHANGES = (
    "all square",
    "Conv1D on both sides",
    "linear on both sides",
    "one average",
    "codes",
    "unequal",
    "a square beside it",
)


@real
@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_nothing_shows_is_refused(tmp_path, change, unsafe):
    """No matrix shows that it is turned, or none is; a linear ``c_attn``, of which nobody knows; other parts."""
    inner = WIDTH if change == "all square" else 4 * WIDTH
    source, target = gpt2(inner).state_dict(), Apart(inner=inner).state_dict()
    turned = [key for key in source if ".c_" in key and source[key].dim() == 2]
    if change == "Conv1D on both sides":
        target |= {key: target[key].T.contiguous() for key in turned if key in target}
    elif change == "linear on both sides":
        source |= {key: source[key].T.contiguous() for key in turned}
    elif change == "one average":
        target["transformer.h.0.attn.k_proj_ema.weight"] = target.pop("transformer.h.0.attn.k_proj.weight")
    elif change == "codes":
        key = "transformer.h.0.attn.c_attn.weight"
        source[key] = torch.arange(source[key].numel()).remainder(100).view_as(source[key]).to(torch.int8)
    elif change == "a square beside it":  # such as that of cross-attention, which Conv1D has the other way round
        for state in (source, target):
            state["transformer.h.0.crossattention.c_proj.weight"] = torch.rand(WIDTH, WIDTH)
    elif change == "unequal":
        target["transformer.h.1.attn.q_proj.weight"] = torch.rand(2 * WIDTH, WIDTH)
    saved(tmp_path, source, target)
    refused(tmp_path, "m.pt", "--like", "like.pt", *unsafe)


@real
@pytest.mark.parametrize("back", [False, True], ids=["split", "fused"])
def test_projections_with_their_inputs_first_are_not_turned_by_a_word_about_their_order(tmp_path, back):
    """``--qkv-layout`` says in which order they lie; a layer beside them shows by its bias which way round they are."""
    source, target = gpt2().state_dict(), Apart().state_dict()
    target |= {key: source[key].clone() for key in target if key in source}
    source, target = (target, source) if back else (source, target)
    saved(tmp_path, source, target)
    said = refused(tmp_path, "m.pt", "--like", "like.pt", "--qkv-layout", "q-k-v")
    assert "its inputs first" in said
    assert "no command can finish" in said
