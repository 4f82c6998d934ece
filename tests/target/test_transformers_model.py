"""``--model transformers:CLASS``: classes of transformers, with the settings beside the file or by default."""

from __future__ import annotations

import json
import socket

import pytest
import torch

from ckptdoctor.cli.main import run
from ckptdoctor.errors import UsageError
from tests.libraries import real, transformers
from tests.target.asked import of_model

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}

pytestmark = real


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory; the network is out of reach."""
    monkeypatch.chdir(tmp_path)

    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tmp_path


def bert():
    """A small one."""
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=100, **SIZES))


def as_torch_says(module):
    """Key → shape of a module's own state dict."""
    return {key: tuple(value.shape) for key, value in module.state_dict().items()}


def shapes(reference):
    """Key → shape."""
    return {key: each.shape for key, each in reference.tensors.items()}


def test_the_settings_are_those_beside_the_file(folder, capsys):
    """What save_pretrained wrote is compared with the class that was named, which need not be the one in it."""
    net = bert()
    net.save_pretrained("bert")
    found = of_model("transformers:BertForMaskedLM", "bert/model.safetensors")
    assert shapes(found) == as_torch_says(net)
    assert (found.told, found.option) == ("", "--model transformers:BertForMaskedLM")
    assert found.source == "BertForMaskedLM (bert/config.json)"
    assert shapes(of_model("transformers:BertForMaskedLM", "bert")) == shapes(found)
    classes = of_model("transformers:BertForSequenceClassification(num_labels=7)", "bert/model.safetensors")
    assert classes.tensors["classifier.weight"].shape == (7, 32)
    assert run(["check", "bert/model.safetensors", "--model", "transformers:BertForMaskedLM"]) == 0
    assert "Not examined" in capsys.readouterr().out


def test_without_a_config_the_defaults_are_said_to_be_used(folder, capsys):
    """And what is given in parentheses changes some of them."""
    torch.save(bert().state_dict(), "bert.pt")
    found = of_model("transformers:BertForMaskedLM", "bert.pt")
    with torch.device("meta"):
        assert shapes(found) == as_torch_says(transformers.BertForMaskedLM(transformers.BertConfig()))
    given = ", ".join([f"{name}={value}" for name, value in SIZES.items()])
    run(["check", "bert.pt", "--model", f"transformers:BertForMaskedLM(vocab_size=100, {given})", "--format", "json"])
    fit = json.loads(capsys.readouterr().out)["files"][0]["coverage"]
    assert fit["keys"] == fit["total_keys"] > 0
    assert fit["told"] == (
        "there is no config.json next to bert.pt: settings of transformers:BertForMaskedLM that you do not give have "
        "the defaults of BertConfig"
    )


def test_a_base_model_is_repaired_towards_a_class(folder):
    """``from_pretrained`` loads what comes out, with the class's own names."""
    net = bert()
    net.config.save_pretrained(".")
    torch.save({f"module.{key}": value for key, value in net.state_dict().items()}, "sick.pt")
    assert run(["fix", "sick.pt", "--model", "transformers:BertForMaskedLM", "-o", "pytorch_model.bin"]) == 0
    loaded, info = transformers.BertForMaskedLM.from_pretrained(".", output_loading_info=True)
    assert not info["missing_keys"]
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in loaded.state_dict().items())


def test_an_auto_class_stands_for_the_class_of_its_config(folder):
    """As transformers itself chooses it by model_type; where nothing says it, the sentence names what would do."""
    net = bert()
    net.config.save_pretrained(".")
    assert shapes(of_model("transformers:AutoModelForMaskedLM", "x.pt")) == as_torch_says(net)
    (folder / "config.json").unlink()
    with pytest.raises(
        UsageError, match=r"chooses its class by the model_type .* such as transformers:BertForMaskedLM"
    ):
        of_model("transformers:AutoModelForMaskedLM", "x.pt")


def test_a_tower_takes_its_part_of_the_config(folder):
    """A text model of CLIP reads text_config, as from_pretrained does."""
    text = {**SIZES, "vocab_size": 50}
    whole = transformers.CLIPConfig(text_config=text, vision_config={**SIZES, "image_size": 32, "patch_size": 8})
    whole.save_pretrained(".")
    net = transformers.CLIPTextModel(transformers.CLIPTextConfig(**text))
    assert shapes(of_model("transformers:CLIPTextModel", "x.pt")) == as_torch_says(net)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("transformers:NoSuchModel", r'transformers \S+ has no model class "NoSuchModel"\. A newer one may'),
        ("transformers:BertConfig", 'has no model class "BertConfig"'),
        ("transformers:BertModel(3)", r"takes its settings by name, such as transformers:BertModel\(num_hidden"),
        ("transformers:BertModel(hidden_size=33)", "cannot build the BertModel of .*: ValueError: The hidden size"),
        (
            "transformers:GPT2Model",
            r"config\.json describes a model of the type bert, and transformers:GPT2Model accepts",
        ),
    ],
)
def test_what_cannot_be_built_is_one_sentence(folder, text, sentence):
    """Another class, other arguments, and a config of another model."""
    transformers.BertConfig(**SIZES).save_pretrained(".")
    with pytest.raises(UsageError, match=sentence) as caught:
        of_model(text, "x.pt")
    assert "\n" not in caught.value.message
