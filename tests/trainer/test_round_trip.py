"""Trainer → check → fix → load: what every strategy leaves behind in every style, and how it is repaired."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from ckptdoctor.cli.main import run as ckptdoctor
from ckptdoctor.trainer.config import SAVES, RunConfig
from ckptdoctor.trainer.data.load import load as load_data
from ckptdoctor.trainer.networks import build
from tests.trainer.runs import carried_out

NAMES = {
    "plain": "model.pt",
    "wrapped": "wrapped.pt",
    "whole": "whole.pt",
    "legacy": "legacy.pt",
    "safetensors": "model.safetensors",
    "dcp": "dcp",
}

SMALL = {"images": 64, "epochs": 1, "batch_size": 16, "width": 4, "save": SAVES, "timeout": 60.0}
NO_MODULE = tuple(style for style in SAVES if style != "whole")

RUNS = {
    "single": {},
    "single-cuda": {"tag_device": "cuda:0", "network": "resnet"},
    "single-cuda-1": {"tag_device": "cuda:1"},
    "single-mps": {"tag_device": "mps"},
    "single-xla": {"tag_device": "xla:0"},
    "dp": {"strategy": "dp", "world_size": 2},
    "dp-cuda": {"strategy": "dp", "world_size": 2, "network": "resnet", "tag_device": "cuda:0", "ema": True},
    "dp-foonet": {"strategy": "dp", "world_size": 2, "network": "foonet", "data": "points"},
    "functional": {"strategy": "functional", "world_size": 2, "network": "vgg", "amp": "bf16"},
    "manual": {"strategy": "manual", "world_size": 2, "save": NO_MODULE},
    "ddp": {"strategy": "ddp", "world_size": 2, "network": "resnet", "ema": True, "optimizer": "adamw", "lr": 0.001},
    "fsdp": {"strategy": "fsdp", "world_size": 2, "network": "resnet"},
    "exact": {"strategy": "exact", "world_size": 2},
}

CASES = [
    (name, style)
    for name, choices in RUNS.items()
    for style in choices.get("save", SAVES)
    if not (style == "whole" and name == "manual")
]

# runs that differ from another one by the device in a tag, or by the network
ONCE_MORE = {"single-cuda-1", "single-mps", "single-xla", "dp"}


def each(cases):
    """Each of these by its name, and where it may take long those of runs that are much like another one."""
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(*case, id="-".join(case), marks=marks[case[0] in ONCE_MORE]) for case in cases]


CUDA = "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """The checkpoint folder of a run, which is made when it is asked for the first time."""

    @cache
    def made(name):
        out = tmp_path_factory.mktemp(name)
        carried_out(config_of(name, out))
        (folder,) = out.glob("epoch-*")
        return folder

    return made


def config_of(name, out="run"):
    """The configuration of a run by name."""
    return RunConfig(**{**SMALL, **RUNS[name], "out": str(out)})


@cache
def sizes_of(data):
    """The shape of an input and the number of classes."""
    found = load_data(RunConfig(data=data, images=1))
    return found.shape, len(found.classes)


def bare_model(name):
    """A network like the one that was trained, with other weights."""
    config = config_of(name)
    model = build(config, *sizes_of(config.data))
    with torch.no_grad():
        for value in model.state_dict().values():
            value.zero_()
    return model


def load(path):
    """What a user does with the file."""
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return torch.load(path, weights_only=True)


def report_of(path, capsys):
    """The findings of check, as its JSON says."""
    capsys.readouterr()
    ckptdoctor(["check", "--format", "json", str(path)])
    return json.loads(capsys.readouterr().out)["files"][0]["findings"]


def repaired(path, capsys):
    """The file after every repair that check proposes of its errors and warnings, and the codes it had first."""
    codes = []
    for _ in range(5):
        findings = [each for each in report_of(path, capsys) if each["severity"] != "info"]
        codes += [each["code"] for each in findings if each["code"] not in codes]
        if not findings:
            return path, codes
        words = shlex.split(findings[0]["fix"]["command"])
        assert words[:2] == ["ckptdoctor", "fix"]
        output = path.with_name(f"repaired-{len(codes)}-{path.name}")
        status = ckptdoctor([*words[1:], "-o", str(output), "--force"])
        blocked = [each for each in report_of(output, capsys) if each["severity"] == "error"]
        assert status == (1 if blocked else 0), "a repair that leaves something in the way of loading says so"
        path = output
    raise AssertionError(f"{path} is not well after five repairs")


@pytest.mark.parametrize(("name", "style"), each(CASES))
def test_what_a_run_leaves_behind_loads_after_the_proposed_repair(name, style, folder_of, capsys):
    """Every file that check complains of fails in torch as truth.json says, and loads after the repairs."""
    path = folder_of(name) / NAMES[style]
    truth = json.loads((path.parent / "truth.json").read_text(encoding="utf-8"))["files"][path.name]
    model, trained = bare_model(name), load_trained(folder_of(name))
    assert list(trained) == truth["keys"] == list(model.state_dict())
    if style == "dcp":
        loaded = from_dcp(path)
    else:
        assert sorted({each["code"] for each in report_of(path, capsys)}) == sorted(truth["check"])
        assert_it_fails_as_it_says(path, truth, bare_model(name))
        path, _ = repaired(path, capsys)
        loaded = load(path)
    model.load_state_dict(loaded)
    assert all(torch.equal(value, trained[key]) for key, value in model.state_dict().items())


def load_trained(folder):
    """The weights that the run ended with."""
    return torch.load(folder / "training.pt", map_location="cpu", weights_only=True)["state_dict"]


def from_dcp(path):
    """What torch's own tool makes of a distributed checkpoint."""
    output = path.parent / "from-dcp.pt"
    dcp_to_torch_save(path, output)
    return torch.load(output, weights_only=True)


def assert_it_fails_as_it_says(path, truth, model):
    """Loading ends with the very message, or well if the truth is "yes"."""
    try:
        model.load_state_dict(load(path))
    except Exception as error:
        assert str(error).startswith(truth["loads"])
    else:
        assert truth["loads"] == "yes"


def test_dataparallel_fails_as_its_tutorial_says(folder_of):
    """FooNet out of DataParallel: missing keys without module., unexpected ones with it."""
    with pytest.raises(RuntimeError) as error:
        bare_model("dp-foonet").load_state_dict(load(folder_of("dp-foonet") / "wrapped.pt"))
    assert str(error.value) == (
        "Error(s) in loading state_dict for FooNet:\n"
        '\tMissing key(s) in state_dict: "linears.0.weight", "linears.1.weight", "linears.2.weight". \n'
        '\tUnexpected key(s) in state_dict: "module.linears.0.weight", "module.linears.1.weight", '
        '"module.linears.2.weight". '
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU says")
@pytest.mark.parametrize("file", ["model.pt", "wrapped.pt", "training.pt"])
def test_a_cuda_tag_fails_as_its_tutorial_says(file, folder_of):
    """Saved on a GPU, loaded without one."""
    with pytest.raises(RuntimeError, match=re.escape(CUDA)):
        torch.load(folder_of("dp-cuda") / file, weights_only=True)


def test_one_command_repairs_prefix_and_tag_together(folder_of, capsys, tmp_path):
    """A DataParallel checkpoint from a GPU has two diseases, and fix with nothing named heals both."""
    sick, well = folder_of("dp-cuda") / "wrapped.pt", tmp_path / "well.pt"
    assert sorted({each["code"] for each in report_of(sick, capsys)}) == ["D601", "N401"]
    assert ckptdoctor(["fix", str(sick), "-o", str(well)]) == 0
    bare_model("dp-cuda").load_state_dict(load(well))
    assert report_of(well, capsys) == []


def test_healthy_files_are_called_healthy(folder_of, capsys):
    """The plain checkpoint of a plain run has no finding, and its training.pt none that fails a CI job."""
    assert report_of(folder_of("single") / "model.pt", capsys) == []
    assert ckptdoctor(["check", str(folder_of("single") / "training.pt")]) == 0


@pytest.mark.parametrize("name", each((name,) for name in RUNS))
def test_training_checkpoints_are_as_their_truth_says(name, folder_of, capsys):
    """Codes of training.pt, tags and averages included."""
    path = Path(folder_of(name)) / "training.pt"
    truth = json.loads((path.parent / "truth.json").read_text(encoding="utf-8"))["files"]["training.pt"]
    assert sorted({each["code"] for each in report_of(path, capsys)}) == sorted(truth["check"])
