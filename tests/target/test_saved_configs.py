"""Configurations of omegaconf among the arguments that a checkpoint keeps: inert, with what their references mean."""

from __future__ import annotations

import json
import sys
import types

import pytest
import torch

from ckptdoctor.cli.main import run

NETS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Linear(cfg.model.width, cfg["model"]["depth"])
        assert vars(cfg.model)["width"] == cfg.model.width and isinstance(cfg, dict)

class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        for number in range(depth):
            self.register_parameter(f"p{number}", nn.Parameter(nn.Linear(1, 1).weight))

class Two(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.net = nn.Linear(width, depth)
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Makes what omegaconf 2.3 pickles: its classes by their names, with the attributes that they keep."""
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("nets", None)
    (tmp_path / "nets.py").write_text(NETS)
    modules = {"omegaconf.dictconfig": "DictConfig", "omegaconf.listconfig": "ListConfig", "omegaconf.nodes": "AnyNode"}
    modules["omegaconf.base"] = "ContainerMetadata"
    for name in ("omegaconf", *modules):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    kinds = {name: type(name, (), {"__module__": module}) for module, name in modules.items()}
    for module, name in modules.items():
        setattr(sys.modules[module], name, kinds[name])

    def make(value, parent=None):
        kind = {dict: "DictConfig", list: "ListConfig"}.get(type(value), "AnyNode")
        made = kinds[kind]()
        made._metadata, made._parent = kinds["ContainerMetadata"](), parent
        if isinstance(value, dict):
            made._content = {key: make(each, made) for key, each in value.items()}
        elif isinstance(value, list):
            made._content = [make(each, made) for each in value]
        else:
            made._val = value
        return made

    yield make
    sys.modules.pop("nets", None)


def saved(settings, **more):
    """A file of Lightning's with these settings."""
    net = torch.nn.ModuleDict({"net": torch.nn.Linear(5, 3)})
    kept = {"pytorch-lightning_version": "2.6.0", "hyper_parameters": settings, **more}
    torch.save({"state_dict": net.state_dict(), **kept}, "epoch.ckpt")


def coverage(capsys, model):
    """What ``check`` says of the fit."""
    status = run(["check", "epoch.ckpt", "--model", model, "--format", "json"])
    out, err = capsys.readouterr()
    assert status < 2, err
    return json.loads(out)["files"][0]["coverage"]


def test_a_configuration_is_an_argument(config, capsys):
    """Entries are attributes, and references are what they refer to."""
    saved({"cfg": config({"model": {"width": 5, "depth": "${sizes.deep}"}, "sizes": {"deep": 3}, "list": [1, "a"]})})
    assert coverage(capsys, "nets:Net")["steps"][-1]["keys"] == 2


def test_all_settings_may_be_one_configuration(config, capsys):
    """As the one argument of that name, or name by name."""
    whole = config({"model": {"width": 5, "depth": 3}, "width": 5, "depth": "${model.depth}"})
    saved(whole, hparams_name="cfg")
    assert coverage(capsys, "nets:Net")["told"] == "cfg of nets:Net is hyper_parameters of epoch.ckpt"
    saved(whole, hparams_name="kwargs")
    assert coverage(capsys, "nets:Two")["reference"] == "nets:Two(width=5, depth=3)"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("${oc.env:HOME}", "it is computed from other settings: ${oc.env:HOME}"),
        ("???", "it was never set (???)"),
        ("${nowhere.at_all}", "it refers to nowhere.at_all, which is missing"),
        ("${width}", "its references never end"),
    ],
)
def test_what_is_computed_or_unset_is_not_taken(config, capsys, value, why):
    """No resolver runs and nothing is read from the environment: the argument is missing, and the reason is told."""
    saved(config({"width": value, "depth": 3}))
    assert run(["check", "epoch.ckpt", "--model", "nets:Two"]) == 2
    err = capsys.readouterr().err
    assert f"width is not read from there: {why}" in err
    assert "--model 'nets:Two(depth=3, width=…)'." in err


@pytest.mark.parametrize(
    "value",
    [
        {"_target_": "os.system", "command": "touch ran"},
        {"model": [{"class_path": "os.mkdir", "init_args": {}}]},
        {"unet_config": {"target": "os.mkdir", "params": {}}},
    ],
)
def test_settings_that_name_code_are_not_handed_on(config, capsys, value):
    """What Hydra, LightningCLI and latent-diffusion would import and call stays in the file; other words are words."""
    saved({"cfg": value})
    assert run(["check", "epoch.ckpt", "--model", "nets:Net"]) == 2
    err = capsys.readouterr().err
    assert "cfg is not read from there: it names a callable, os." in err
    saved({"cfg": config({"model": {"width": 5, "depth": 3, "target": "gpu", "cls": "cat"}, "file": "a.b"})})
    assert coverage(capsys, "nets:Net")["told"] == "cfg of nets:Net is from hyper_parameters of epoch.ckpt"


def test_a_model_without_end_is_not_built(config, capsys, monkeypatch):
    """Numbers of a file that no model has end in a sentence, not in an endless loop."""
    monkeypatch.setattr("ckptdoctor.target.model._MOST_TENSORS", 1000)
    saved({"depth": 10**9})
    assert run(["check", "epoch.ckpt", "--model", "nets:Deep"]) == 2
    err = capsys.readouterr().err
    assert "nets:Deep would have more than 1,000 tensors (depth of nets:Deep is from hyper_parameters of ep" in err


def test_references_that_multiply_end(config, capsys):
    """A file made to fill the memory by references to references is refused for this argument."""
    levels = {f"a{n}": [f"${{a{n + 1}}}"] * 10 for n in range(9)}
    saved(config({"width": "${a0}", "depth": 3, **levels, "a9": [1]}))
    assert run(["check", "epoch.ckpt", "--model", "nets:Two"]) == 2
    assert "width is not read from there: its references never end" in capsys.readouterr().err
