"""M974 and M975: a config of transformers is held against the weights that transformers saved with it."""

from __future__ import annotations

import json

import pytest
import torch

from tests.libraries import real, transformers
from tests.rules.examined import found

pytestmark = real

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 50}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SMALL, num_key_value_heads=2),
    "bert": lambda: transformers.BertConfig(**SMALL),
    "gpt2": lambda: transformers.GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=50, n_positions=32),
    "t5": lambda: transformers.T5Config(d_model=16, d_ff=32, d_kv=8, num_layers=3, num_heads=2, vocab_size=50),
    "albert": lambda: transformers.AlbertConfig(**SMALL, embedding_size=8),
    "opt": lambda: transformers.OPTConfig(
        hidden_size=16, ffn_dim=32, num_hidden_layers=3, num_attention_heads=2, vocab_size=50, word_embed_proj_dim=8
    ),
    "vit": lambda: transformers.ViTConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, image_size=32
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SMALL),
}


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def saved(request, tmp_path_factory):
    """A folder with a small model as ``save_pretrained`` writes it."""
    config = CONFIGS[request.param]()
    kinds = (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_MAPPING)
    kind = next(mapping[type(config)] for mapping in kinds if type(config) in mapping)
    folder = tmp_path_factory.mktemp(request.param)
    kind(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def told(folder, code):
    """What the rule says of the weights in a folder."""
    return found(folder / "model.safetensors", code)


def changed(folder, code, **fields):
    """What the rule says once the config's fields that are there already have other values."""
    path = folder / "config.json"
    before = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(before), **fields}, indent=2))
        return told(folder, code)
    finally:
        path.write_text(before)


def test_a_model_that_was_saved_agrees_with_its_config(saved):
    """Nothing is said of any of them."""
    assert told(saved, "M974") == told(saved, "M975") == []


def test_another_vocabulary_is_seen(saved):
    """In the models that have one, also where the embeddings have a width of their own."""
    if "vocab_size" not in json.loads((saved / "config.json").read_text()):
        pytest.skip("no vocabulary")
    (finding,) = changed(saved, "M974", vocab_size=51)
    assert finding.message.startswith("config.json has vocab_size 51, but ")
    assert finding.advice.startswith('If the weights are right, write "vocab_size": 50 in line ')


def test_another_dtype_is_seen(saved):
    """Whatever the field is called."""
    name = next(each for each in ("dtype", "torch_dtype") if each in json.loads((saved / "config.json").read_text()))
    (finding,) = changed(saved, "M975", **{name: "float32"})
    assert finding.message == f"config.json has {name} float32, but the tensors are bfloat16"


def test_other_layers_are_seen(tmp_path):
    """And the line to change is named; transformers fills the missing layer with random numbers."""
    transformers.LlamaForCausalLM(CONFIGS["llama"]()).save_pretrained(tmp_path)
    (finding,) = changed(tmp_path, "M974", num_hidden_layers=4)
    assert finding.message == "config.json has num_hidden_layers 4, but there are 3 layers"
    lines = (tmp_path / "config.json").read_text().splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if '"num_hidden_layers"' in text]
    assert f'write "num_hidden_layers": 3 in line {line} of {tmp_path / "config.json"}' in finding.advice


def test_a_head_that_is_not_tied_must_be_there(tmp_path):
    """Tied weights are saved once; a config that says otherwise asks for what is not there."""
    config = CONFIGS["llama"]()
    config.tie_word_embeddings = True
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert told(tmp_path, "M974") == []
    (finding,) = changed(tmp_path, "M974", tie_word_embeddings=False)
    assert finding.message.startswith("config.json has tie_word_embeddings false, but there is no output layer")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10_000, '{"vocab_size": "50"}', '{"text_config": {}}', "\xff"])
def test_configs_that_make_no_sense(tmp_path, text):
    """They are taken for none, or say nothing."""
    torch.save({"model.embed_tokens.weight": torch.zeros(4, 2)}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    assert found(tmp_path / "pytorch_model.bin", "M974") == []


def test_a_config_beside_another_file_is_not_its_own(tmp_path):
    """An optimizer, or a checkpoint of another name, is not what the config speaks of."""
    (tmp_path / "config.json").write_text('{"vocab_size": 5}')
    for name, findings in (("best.pt", 0), ("pytorch_model.bin", 1)):
        torch.save({"model.embed_tokens.weight": torch.zeros(4, 2)}, tmp_path / name)
        assert len(found(tmp_path / name, "M974")) == findings
