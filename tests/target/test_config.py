"""References learnt from Hugging Face configs."""

from __future__ import annotations

import json
import os
import socket
import sys

import pytest
import safetensors.torch
import torch

from ckptdoctor.cli.main import run
from ckptdoctor.errors import UnreadableError, UsageError
from tests.libraries import real, transformers
from tests.target.asked import of_config, of_model

BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
    "dtype": "bfloat16",
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes config.json into the current directory; the network is out of reach."""
    monkeypatch.chdir(tmp_path)

    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)

    def write(config):
        (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))

    return write


@real
def test_the_architecture_is_built_by_transformers(write, tmp_path):
    """The keys and shapes are those of the class that the config names; a file and its folder are the same."""
    write(BERT)
    found = of_config("config.json")
    settings = {key: value for key, value in BERT.items() if key not in ("architectures", "model_type", "dtype")}
    net = transformers.BertForMaskedLM(transformers.BertConfig(**settings))
    assert {key: each.shape for key, each in found.tensors.items()} == {
        key: tuple(value.shape) for key, value in net.state_dict().items()
    }
    assert "cls.predictions.decoder.weight" in found.tensors
    assert all(each.dtype is None for each in found.tensors.values())
    assert found.source == "BertForMaskedLM (config.json)"
    assert found.option == "--config config.json"
    assert of_config(str(tmp_path)).tensors == found.tensors


@real
@pytest.mark.parametrize("known", [False, True])
def test_large_models_cost_nothing_and_the_environment_stays(write, monkeypatch, known):
    """A 70 B Llama is built on the meta device, offline, and the variables are as they were."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    if known:
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    write(
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        }
    )
    found = of_config("config.json")
    assert sum(torch.Size(each.shape).numel() for each in found.tensors.values()) > 70e9
    assert os.environ.get("HF_HUB_OFFLINE") == ("0" if known else None)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("nope", "config.json is not JSON: --config takes the config.json of a Hugging Face model"),
        ("[" * 100_000, "config.json is not JSON"),
        ("\ud800".encode("utf-8", "replace").decode(), "config.json is not JSON"),
        ([1], "config.json holds no settings"),
        ({"model_type": "bert"}, r'names no model class \("architectures"\)\. Add it'),
        ({"architectures": [3]}, r'names no model class \("architectures"\)'),
        ({"_class_name": "UNet2DConditionModel"}, "is of diffusers; --config reads those of transformers"),
        ({**BERT, "auto_map": {"AutoModel": "x.Y"}}, r"needs code that comes with the model \(auto_map\), which"),
        ({**BERT, "quantization_config": {"bits": 4}}, "is of a quantized model: its keys come about only while"),
        ({**BERT, "num_hidden_layers": 10**9}, r"cannot be right: its num_hidden_layers is 1e\+09"),
        ({**BERT, "text_config": {"depths": [1, 10**9]}}, r"cannot be right: its depths is 1e\+09"),
    ],
)
def test_what_cannot_be_built_says_why(write, config, sentence):
    """Files that are no configs, and configs that do not tell the keys, are refused without transformers."""
    write(config)
    with pytest.raises(UsageError, match=sentence):
        of_config("config.json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architectures": ["NoSuchModel"]}, r'transformers \S+ has no model class "NoSuchModel".* A newer one may'),
        ({"architectures": ["os"]}, 'has no model class "os"'),
        ({"architectures": ["BertConfig"]}, 'has no model class "BertConfig"'),
        ({"architectures": ["../x y"]}, 'has no model class "../x y"'),
        ({"hidden_size": 33}, r"cannot build the BertForMaskedLM of config\.json: ValueError: The hidden size \(33\)"),
        ({"hidden_size": "wide"}, r"cannot build the BertForMaskedLM of config\.json: \w+: .*hidden_size"),
        ({"num_hidden_layers": 99_999}, "describes a model of more than 1,000,000 tensors"),
    ],
)
@real
def test_what_transformers_says_is_one_sentence(write, monkeypatch, change, sentence):
    """Unknown classes and impossible settings are told in one line."""
    if "num_hidden_layers" in change:
        monkeypatch.setattr("ckptdoctor.target.config._MOST_TENSORS", 1000)
        sentence = sentence.replace("1,000,000", "1,000")
    write({**BERT, **change})
    with pytest.raises(UsageError, match=sentence) as caught:
        of_config("config.json")
    assert "\n" not in caught.value.message


def test_without_transformers(write, monkeypatch):
    """Where transformers is not installed the sentence says how to get it, and what does without."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    write(BERT)
    with pytest.raises(UsageError, match=r"which is not installed: pip install transformers\. Or use --model"):
        of_config("config.json")
    with pytest.raises(UsageError, match=r"^transformers:BertModel .* pip install transformers\. Or use --like"):
        of_model("transformers:BertModel")


def test_files_that_cannot_be_read(write):
    """A missing file and a folder without a config are errors that name the file."""
    os.mkdir("folder")
    for path, name in [("nowhere.json", "nowhere.json"), ("folder", "config.json")]:
        with pytest.raises(UnreadableError, match=f"{name} cannot be read: No such file"):
            of_config(path)


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TIED = {
    "GPT2LMHeadModel": {"vocab_size": 50, "n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2},
    "BertForMaskedLM": {"vocab_size": 50, **SIZES},
    "T5ForConditionalGeneration": {"vocab_size": 50, "d_model": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    "LlamaForCausalLM": {"vocab_size": 50, "tie_word_embeddings": True, **SIZES},
}


@real
@pytest.mark.parametrize("name", TIED)
def test_what_save_pretrained_leaves_out_is_not_missing(name, tmp_path, monkeypatch, capsys):
    """Tied keys: check says so in a clause, fix has nothing to do, and from_pretrained misses nothing."""
    monkeypatch.chdir(tmp_path)
    model_class = getattr(transformers, name)
    net = model_class(model_class.config_class(**TIED[name]))
    net.save_pretrained(".")
    left_out = len(net.state_dict()) - len(safetensors.torch.load_file("model.safetensors"))
    assert left_out
    assert run(["check", "model.safetensors", "--config", "."]) == 0
    total = len(net.state_dict())
    said = capsys.readouterr().out
    verb = "is" if left_out == 1 else "are"
    assert f"{total} of {total} keys as it is (100 % of parameters); {left_out} of them {verb} not in the file" in said
    assert "No findings." in said
    assert run(["fix", "model.safetensors", "--auto", "--config", "."]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert not model_class.from_pretrained(".", output_loading_info=True)[1]["missing_keys"]


@real
def test_a_base_model_becomes_one_with_a_tied_head(tmp_path, monkeypatch):
    """Only the prefix is missing: the head is the embedding, and from_pretrained knows."""
    monkeypatch.chdir(tmp_path)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**TIED["GPT2LMHeadModel"]))
    net.config.save_pretrained(".")
    (tmp_path / "config.json").write_text(
        json.dumps({**json.loads((tmp_path / "config.json").read_text()), "architectures": ["GPT2LMHeadModel"]})
    )
    torch.save(net.transformer.state_dict(), "base.pt")
    assert run(["fix", "base.pt", "--auto", "--config", ".", "-o", "pytorch_model.bin"]) == 0
    loaded, info = transformers.GPT2LMHeadModel.from_pretrained(".", output_loading_info=True)
    assert not info["missing_keys"]
    assert torch.equal(loaded.lm_head.weight, net.transformer.wte.weight)


@real
def test_what_is_wholly_missing_is_still_missing(tmp_path, monkeypatch, capsys):
    """Without the embedding and the head there is nothing to tie."""
    monkeypatch.chdir(tmp_path)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**TIED["GPT2LMHeadModel"]))
    net.save_pretrained(".")
    kept = {key: value for key, value in net.transformer.state_dict(prefix="transformer.").items() if "wte" not in key}
    torch.save(kept, "part.pt")
    assert run(["check", "part.pt", "--config", "."]) == 1
    assert 'Missing key(s) in state_dict: "transformer.wte.weight", "lm_head.weight".' in capsys.readouterr().out
