"""Models that have nothing to do with each other: --auto refuses every pair, and even so when guesses are allowed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.libraries import real, transformers

pytestmark = [real, pytest.mark.filterwarnings("ignore")]

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {"vocab_size": 50, **SIZES}
PICTURES = {"image_size": 16, "patch_size": 8, **SIZES}

# name in transformers, and the sizes, in the words of each
BUILT = {
    "BertModel": ("BertConfig", {"max_position_embeddings": 20, **WORDS}),
    "GPT2LMHeadModel": ("GPT2Config", {"vocab_size": 50, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "LlamaForCausalLM": ("LlamaConfig", WORDS),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", WORDS),
    "T5Model": ("T5Config", {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}),
    "ViTModel": ("ViTConfig", PICTURES),
    "CLIPVisionModel": ("CLIPVisionConfig", PICTURES),
    "AlbertModel": ("AlbertConfig", {"embedding_size": 16, **WORDS}),
    "ConvNextModel": ("ConvNextConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
    "ResNetModel": ("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
}
PLAIN = {
    "Transformer": lambda: nn.Transformer(16, 2, 2, 2, 32),
    "LSTM": lambda: nn.LSTM(16, 16, 2),
    "perceptron": lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)),
    "generator": lambda: nn.Sequential(nn.ConvTranspose2d(16, 8, 4), nn.BatchNorm2d(8), nn.Conv2d(8, 3, 1)),
}
NAMES = (*BUILT, *PLAIN)


def built(name):
    """A model by its name."""
    if name in PLAIN:
        return PLAIN[name]()
    config, sizes = BUILT[name]
    return getattr(transformers, name)(getattr(transformers, config)(**sizes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The state dict of each model in a file."""
    found = tmp_path_factory.mktemp("unrelated")
    for name in NAMES:
        torch.save(built(name).state_dict(), found / f"{name}.pt")
    return found


@pytest.mark.parametrize("options", [(), ("--unsafe-fixes",)], ids=["as it is", "with guesses"])
@pytest.mark.parametrize("how_many", [2, pytest.param(len(NAMES) - 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_model_is_refused(name, how_many, options, folder, bench):
    """None of the others' files is made to fit this model, be it the next two of the list or all of them."""
    at = NAMES.index(name)
    for other in [*NAMES, *NAMES][at + 1 : at + 1 + how_many]:
        status, said = bench.fix(str(folder / f"{other}.pt"), str(folder / f"{name}.pt"), *options)
        assert (status, said[:10]) == (1, "refused · "), f"{other} for {name}: {said}"
    assert not (bench.folder / "well.pt").exists()


@pytest.mark.parametrize(
    ("other", "extra"),
    [("Qwen2ForCausalLM", "q_proj.bias"), ("Qwen3ForCausalLM", "q_norm.weight")],
)
def test_a_relative_that_computes_something_else_is_refused(other, extra, bench):
    """All keys of a Llama are there, but the parameters that are left over would change what it computes."""
    config = other.replace("ForCausalLM", "Config")
    sizes = {"num_key_value_heads": 2, **WORDS}
    model = getattr(transformers, other)(getattr(transformers, config)(**sizes, head_dim=8))
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    said = bench.refuse(model.state_dict(), llama)
    assert "every key of target.pt fits, but " in said
    assert f"left over: model.layers.0.self_attn.{extra}" in said
    assert "missing: model.layers.0.self_attn." in bench.refuse(llama.state_dict(), model)
