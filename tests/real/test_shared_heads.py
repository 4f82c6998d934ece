"""Phi-3 whose heads share keys and values: its one projection, and the three of a Llama, which are not of one size."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real, transformers
from tests.real.test_published import LLAMA, fixed, logits, refused

QKV = "model.layers.0.self_attn.qkv_proj.weight"


def pair(shared, tied=False):
    """A Phi-3 and a Llama of four heads, with so many keys and values."""
    sizes = {key: value for key, value in LLAMA.items() if key != "architectures"}
    sizes |= {"num_key_value_heads": shared, "tie_word_embeddings": tied}
    torch.manual_seed(6)
    phi = transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes)).eval()
    config = transformers.LlamaConfig(**sizes, rms_norm_eps=phi.config.rms_norm_eps)
    return phi, transformers.LlamaForCausalLM(config).eval()


@real
@pytest.mark.parametrize("back", [False, True], ids=["to Llama", "to Phi-3"])
@pytest.mark.parametrize(("shared", "tied"), [(1, False), (2, False), (2, True)])
def test_both_compute_the_same(tmp_path, shared, tied, back):
    """As many rows of queries, keys and values as the target's shapes say."""
    phi, llama = pair(shared, tied)
    source, target = (llama, phi) if back else (phi, llama)
    torch.save(source.state_dict(), tmp_path / "m.pt")
    torch.save(target.state_dict(), tmp_path / "like.pt")
    target.load_state_dict(fixed(tmp_path, "m.pt", "--like", "like.pt"))
    assert torch.allclose(logits(phi), logits(llama), atol=1e-5)


CHANGES = {
    "more keys than values": {"k": 12, "v": 4},
    "keys for queries": {"q": 4, "k": 16},
    "no whole number of groups": {"q": 12, "k": 6, "v": 6},
    "another sum": {"k": 4, "v": 4},
}


@real
@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("change", CHANGES)
def test_parts_that_cannot_be_queries_keys_and_values_are_refused(tmp_path, change, unsafe):
    """The target's shapes do not add up, or are not those of heads that share keys and values."""
    phi, llama = pair(2)
    like = llama.state_dict()
    for part, rows in CHANGES[change].items():
        like[f"model.layers.0.self_attn.{part}_proj.weight"] = torch.rand(rows, 16)
    torch.save(phi.state_dict(), tmp_path / "m.pt")
    torch.save(like, tmp_path / "like.pt")
    refused(tmp_path, "m.pt", "--like", "like.pt", *unsafe)


@real
@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("part", ["q", "k"])
def test_a_part_of_the_projection_that_is_not_there_is_refused(tmp_path, part, unsafe):
    """Two of three are no projection of Phi-3, nor is one with a part that is not called like it."""
    phi, llama = pair(2)
    state = llama.state_dict()
    state[f"model.layers.1.self_attn.{part}_ema.weight"] = state.pop(f"model.layers.1.self_attn.{part}_proj.weight")
    torch.save(state, tmp_path / "m.pt")
    torch.save(phi.state_dict(), tmp_path / "like.pt")
    refused(tmp_path, "m.pt", "--like", "like.pt", *unsafe)


@real
def test_layers_that_the_target_has_not_are_cut_like_the_others(tmp_path):
    """No shape is said of a layer that is not wanted, which goes only when asked for."""
    phi, llama = pair(2)
    like = {key: value for key, value in llama.state_dict().items() if ".layers.1." not in key}
    torch.save(phi.state_dict(), tmp_path / "m.pt")
    torch.save(like, tmp_path / "like.pt")
    assert "--unsafe-fixes" in refused(tmp_path, "m.pt", "--like", "like.pt")
    made = fixed(tmp_path, "m.pt", "--like", "like.pt", "--unsafe-fixes")
    assert made.keys() == like.keys()
    parts = [made[f"model.layers.0.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(torch.cat(parts), phi.state_dict()[QKV])
