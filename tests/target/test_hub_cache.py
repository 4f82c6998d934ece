"""Names of the Hugging Face Hub, looked up in the cache on this machine and nowhere else."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from ckptdoctor.cli.main import run
from ckptdoctor.errors import UsageError
from ckptdoctor.target import hub_cache
from tests.commands import PATIENCE
from tests.libraries import huggingface_hub, real, transformers
from tests.target.asked import of_checkpoint, of_config, of_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache as huggingface_hub lays it out: blobs, links to them by commit, and what a revision stands for."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    hub = tmp_path / "home" / "hub"

    def put(name, files, revision="main"):
        model = hub / f"models--{name.replace('/', '--')}"
        snapshot = model / "snapshots" / COMMIT
        for folder in (model / "blobs", model / "refs", snapshot):
            folder.mkdir(parents=True, exist_ok=True)
        (model / "refs" / revision).write_text(COMMIT)
        for file, contents in files.items():
            (model / "blobs" / f"blob-{file}").write_bytes(contents)
            os.symlink(os.path.join("..", "..", "blobs", f"blob-{file}"), snapshot / file)
        return hub

    return put


def weights(**shapes):
    """A safetensors file in bytes."""
    return safetensors.torch.save({key: torch.ones(shape) for key, shape in shapes.items()})


def config():
    """The settings of a small model, as save_pretrained writes them, and the model."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    net = transformers.BertModel(transformers.BertConfig(vocab_size=50, **sizes))
    net.config.architectures = ["BertModel"]
    return net.config.to_json_string().encode(), net


@pytest.mark.slow
def test_the_place_is_the_one_that_the_library_finds(cache):
    """The oracle: ``try_to_load_from_cache`` gives the same file."""
    hub = cache("org/net", {"config.json": b"{}"})
    found = hub_cache.file_of("org/net", "config.json")
    assert found == huggingface_hub.try_to_load_from_cache("org/net", "config.json", cache_dir=hub)
    assert hub_cache.file_of(f"org/net@{COMMIT}", "config.json") == found


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HOME": "/a"}, "/a/hub"),
        ({"HF_HOME": "/a", "HF_HUB_CACHE": "/b"}, "/b"),
        ({"HF_HOME": "/a", "HUGGINGFACE_HUB_CACHE": "/c"}, "/c"),
        ({"HF_HUB_CACHE": "/b", "HUGGINGFACE_HUB_CACHE": "/c"}, "/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
    ],
)
def test_the_environment_says_where_the_cache_is(monkeypatch, variables, place):
    """The variables of huggingface_hub, in its order."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_cache.root() == place


@real
@pytest.mark.parametrize("name", ["org/net", "tiny-bert"])
def test_a_model_of_the_cache_is_a_target(cache, name, capsys):
    """By its config for --config and --model, by its weights for --like; a name without an owner too."""
    settings, net = config()
    net.save_pretrained("here")
    cache(name, {"config.json": settings, "model.safetensors": Path("here/model.safetensors").read_bytes()})
    expected = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    torch.save(net.state_dict(), "m.pt")
    for option in (f"--config {name}", f"--model transformers:{name}", f"--like {name}"):
        assert run(["check", "m.pt", *option.split()]) == 0, capsys.readouterr()
        assert f"{len(expected)} of {len(expected)} keys as it is" in capsys.readouterr().out
    assert of_config(name).option == f"--config {name}"
    assert of_model(f"transformers:{name}").option == f"--model transformers:{name}"
    if "/" in name:
        assert of_model(name).option == f"--model {name}"


def test_what_is_not_in_the_cache_has_the_command_that_brings_it(cache, capsys):
    """Nothing is downloaded; the same words work once the file is there."""
    hub = cache("org/other", {"tokenizer.json": b"{}"})
    torch.save({"w": torch.ones(2)}, "m.pt")
    for option in ("--config", "--model", "--like"):
        assert run(["check", "m.pt", option, "org/net"]) == 2
        said = capsys.readouterr().err
        assert f"org/net is neither an existing path nor in the Hugging Face cache ({hub})." in said
        assert "ckptdoctor downloads nothing; download it once: hf download org/net" in said
    for option in ("--config", "--model"):
        assert run(["check", "m.pt", option, "org/other"]) == 2
        said = capsys.readouterr().err
        assert "org/other is in the Hugging Face cache without its config.json. ckptdoctor downloads nothing" in said
        assert "hf download org/other config.json" in said
    assert run(["check", "m.pt", "--like", "org/other"]) == 2
    assert "org/other is in the Hugging Face cache without weights." in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"hf download org/net --revision v1\.0$"):
        of_checkpoint("org/net@v1.0")


@pytest.mark.slow
def test_the_printed_command_brings_what_is_asked_for(cache):
    """The Hub's own command line takes its words, and knows that it is offline here."""
    with pytest.raises(UsageError) as caught:
        of_checkpoint("org/net@v1.0")
    words = shlex.split(caught.value.message.rpartition(": ")[2])
    assert words == ["hf", "download", "org/net", "--revision", "v1.0"]
    line = [sys.executable, "-c", "from huggingface_hub.cli.hf import main; main()", *words[1:]]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(line, capture_output=True, timeout=PATIENCE, env=offline, check=False)
    assert b"No such option" not in done.stderr + done.stdout
    assert b"offline" in (done.stderr + done.stdout).lower()


def test_a_path_that_is_here_is_no_name(cache):
    """A folder of that name is taken before the cache is looked at, and files that are missing stay files."""
    cache("org/net", {"model.safetensors": weights(w=(3,))})
    os.makedirs("org/net")
    with open("org/net/model.safetensors", "wb") as file:
        file.write(weights(w=(2,)))
    assert of_checkpoint("org/net").tensors["w"].shape == (2,)
    assert not hub_cache.is_name("runs/best.pt")
    assert hub_cache.folder_of("../org/net") is None
    assert hub_cache.folder_of("gpt2") is None


def test_a_folder_with_one_file_of_weights_needs_no_config(cache, capsys):
    """``--like`` and ``show`` take model.safetensors in it; beside another checkpoint nothing says which is meant."""
    os.mkdir("net")
    with open("net/model.safetensors", "wb") as file:
        file.write(weights(w=(2,)))
    torch.save({"w": torch.ones(2)}, "m.pt")
    torch.save({"module.w": torch.ones(2)}, "sick.pt")
    assert run(["check", "m.pt", "--like", "net"]) == 0
    assert run(["fix", "sick.pt", "--like", "net", "-o", "well.pt"]) == 0
    assert list(torch.load("well.pt")) == ["w"]
    assert run(["show", "net"]) == 0
    torch.save({"w": torch.ones(2)}, "net/best.pt")
    capsys.readouterr()
    assert run(["check", "m.pt", "--like", "net"]) == 2
    assert "Choose one in the browser: ckptdoctor browse net," in capsys.readouterr().err
