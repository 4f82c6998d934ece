"""The trainer's word about its files, compared with ``ckptdoctor check`` and ``fix`` and with torch."""

from __future__ import annotations

import hashlib
import json
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.cli.main import run
from ckptdoctor.trainer.config import SAVES, RunConfig
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.save import save
from ckptdoctor.trainer.snapshot.seeding import seed_everything
from ckptdoctor.trainer.snapshot.truth import command
from tests.trainer.snapshot.toy import ALONE, Net, Toy, train


def compiled(model):
    """torch.compile's wrapper, without the compiler."""
    return torch.compile(model, backend="eager")


WRAPPERS = {
    "": None,
    "module.": nn.DataParallel,
    "_orig_mod.": compiled,
    "module._orig_mod.": lambda model: nn.DataParallel(compiled(model)),
    "_orig_mod.module.": lambda model: compiled(nn.DataParallel(model)),
}
TAGS = (None, "cpu", "cuda", "cuda:0", "cuda:1", "mps", "npu:0", "hpu", "xla:0")
CASES = [
    *[(prefix, tag) for prefix in WRAPPERS for tag in (None, "cuda:1")],
    *[("module.", tag) for tag in TAGS if tag not in (None, "cuda:1")],
    ("", "cuda:0"),
    ("_orig_mod.", "mps"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[tuple[str, str | None], Path]:
    """A checkpoint folder with every file for each wrapper and each tag."""
    made = {}
    for prefix, tag in CASES:
        out = tmp_path_factory.mktemp("run")
        config = RunConfig(out=str(out), save=SAVES, ema=True, optimizer="adamw", tag_device=tag)
        strategy = Toy(config, ALONE, WRAPPERS[prefix], prefix)
        train(strategy, 1)
        made[prefix, tag] = save(config, strategy, ALONE, Position(1, best_accuracy=0.5))
    return made


def truth_of(folder: Path) -> dict:
    return json.loads((folder / "truth.json").read_text())


def files_of(folder: Path) -> dict:
    """The truth of each file but the folder of dcp."""
    return {folder / name: truth for name, truth in truth_of(folder)["files"].items() if name != "dcp"}


def checked(capsys, *paths):
    """The exit status of ``ckptdoctor check``, and what it says of each file."""
    capsys.readouterr()
    status = run(["check", "--format", "json", *paths])
    return status, json.loads(capsys.readouterr().out)["files"]


def test_check_agrees(runs, capsys):
    """``ckptdoctor check`` finds in every file what the trainer says it must: the same container and the same codes."""
    truths = {str(path): truth for folder in runs.values() for path, truth in files_of(folder).items()}
    found = {each["path"]: each for each in checked(capsys, *truths)[1]}
    said = {path: (truth["format"], truth["check"]) for path, truth in truths.items()}
    got = {path: (each["format"], sorted(one["code"] for one in each["findings"])) for path, each in found.items()}
    assert got == said
    assert len(truths) == len(CASES) * 7


def test_training_is_healthy(runs, capsys):
    """In ``training.pt`` of a run on the CPU ``check`` finds nothing above information, whatever the wrapper."""
    paths = [str(runs[prefix, None] / "training.pt") for prefix in WRAPPERS]
    status, files = checked(capsys, *paths)
    assert (status, {each["severity"] for file in files for each in file["findings"]}) == (0, {"info"})


@pytest.mark.parametrize(("prefix", "tag"), CASES)
def test_torch_agrees(runs, prefix, tag):
    """torch says of each file what the truth quotes, on a machine without a GPU and with map_location."""
    for path, truth in files_of(runs[prefix, tag]).items():
        if truth["style"] == "safetensors":
            assert truth["loads"] == truth["loads_on_cpu"] == "yes"
            continue
        assert tried(path, truth, None) == truth["loads"]
        assert tried(path, truth, "cpu") == truth["loads_on_cpu"]


def tried(path: Path, truth: dict, map_location: str | None) -> str:
    """What happens to somebody who loads the file into the bare model."""
    try:
        loaded = torch.load(path, map_location=map_location, weights_only=True)
        Net().load_state_dict(loaded["state_dict"] if truth["style"] == "training" else loaded)
    except Exception as error:
        text = str(error)
        return text.partition("\n\n")[0] if isinstance(error, NotImplementedError) else text
    finally:
        torch.serialization._serialization_tls.map_location = None
    return "yes"


def test_the_errors_of_the_tutorials(runs):
    """DataParallel on a GPU leaves the two errors that everybody knows, one after the other."""
    truth = truth_of(runs["module.", "cuda:0"])["files"]["wrapped.pt"]
    assert truth["loads"].startswith(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."
    )
    assert truth["loads_on_cpu"].startswith("Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict:")
    assert 'Unexpected key(s) in state_dict: "module.conv.weight"' in truth["loads_on_cpu"]
    assert truth["check"] == ["D601", "N401"]
    assert truth["repair"] == "ckptdoctor fix wrapped.pt --strip-module --to-cpu"


def test_repairs_repair(runs, tmp_path, monkeypatch):
    """The command in the truth is run as it stands, and what it writes loads into the bare model, values and all."""
    cases = [("module.", "cuda:0"), ("_orig_mod.module.", "cuda:1"), ("_orig_mod.", "mps"), ("module.", None)]
    repaired = 0
    for case in cases:
        weights = torch.load(runs[case] / "model.pt", map_location="cpu")
        averages = torch.load(runs[case] / "training.pt", map_location="cpu")["ema"]["state_dict"]
        for path, truth in files_of(runs[case]).items():
            assert (truth["repair"] is None) == (truth["loads"] == "yes")
            if truth["repair"] is None:
                continue
            output = tmp_path / f"{repaired}.pt"
            words = shlex.split(truth["repair"])[1:]
            monkeypatch.chdir(path.parent)
            assert run([*words, "-o", str(output)]) == 0
            loaded = torch.load(output)
            loaded = loaded["state_dict"] if truth["style"] == "training" else loaded
            model = Net()
            model.load_state_dict(loaded)
            expected = averages if truth["style"] == "ema" else weights
            assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())
            repaired += 1
    assert repaired == 3 * 6 + 3  # on the CPU only wrapped.pt, whole.pt and ema.pt need it


def test_dcp_repair(runs, tmp_path, monkeypatch):
    """torch's own converter makes of the dcp folder what model.pt is."""
    folder = runs["module.", None]
    truth = truth_of(folder)["files"]["dcp"]
    assert (truth["loads"], truth["check"], truth["tag"]) == ("yes", ["X809"], None)
    python, option, module, *words = shlex.split(truth["repair"])
    assert (python, option, words) == ("python", "-m", ["dcp_to_torch", "dcp", "model.pt"])
    monkeypatch.setattr(sys, "argv", [module, "dcp_to_torch", str(folder / "dcp"), str(tmp_path / "model.pt")])
    monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_module(module, run_name="__main__")
    made, plain = torch.load(tmp_path / "model.pt"), torch.load(folder / "model.pt")
    assert made.keys() == plain.keys()
    assert all(torch.equal(made[key], plain[key]) for key in plain)


def test_keys_shapes_dtypes_and_checksums(runs):
    """The truth names the bare keys, what stands before them, their shapes and dtypes, and the bytes of the file."""
    state = Net().state_dict()
    for (prefix, _), folder in runs.items():
        for path, truth in files_of(folder).items():
            assert truth["keys"] == list(state)
            assert truth["shapes"] == {key: list(value.shape) for key, value in state.items()}
            assert truth["dtypes"]["norm.num_batches_tracked"] == "int64"
            assert truth["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            if truth["style"] in ("plain", "wrapped", "ema", "legacy") and truth["tag"] != "xla:0":
                there = [key for key in torch.load(path, map_location="cpu") if key != "n_averaged"]
                assert there == [truth["prefix"] + key for key in truth["keys"]]
        assert truth_of(folder)["files"]["wrapped.pt"]["prefix"] == prefix


def test_tags_where_there_are_tags(runs):
    """Safetensors and dcp have no device tags, and the truth says so; a run on the CPU is tagged cpu."""
    tags = {truth["style"]: truth["tag"] for truth in truth_of(runs["", "cuda:0"])["files"].values()}
    assert tags.pop("safetensors") is None
    assert tags.pop("dcp") is None
    assert set(tags.values()) == {"cuda:0"}
    assert truth_of(runs["", None])["made"]["tag"] == "cpu"


def test_whole_is_what_tutorials_pickle(runs):
    """A whole model is the DataParallel where there is one, and else the bare network, never compiled code."""
    kinds = {
        prefix: type(torch.load(runs[prefix, "cuda:1"] / "whole.pt", map_location="cpu", weights_only=False))
        for prefix in WRAPPERS
    }
    assert kinds == {
        "": Net,
        "module.": nn.DataParallel,
        "_orig_mod.": Net,
        "module._orig_mod.": nn.DataParallel,
        "_orig_mod.module.": Net,
    }


def test_files_say_their_versions(runs):
    """The state dicts are of the kind that torch saves, with the versions of the modules in ``_metadata``."""
    folder = runs["module.", None]
    assert torch.load(folder / "model.pt")._metadata["norm"] == {"version": 2}
    assert torch.load(folder / "wrapped.pt")._metadata["module.norm"] == {"version": 2}
    assert torch.load(folder / "ema.pt")._metadata["module.norm"] == {"version": 2}


def test_made(runs):
    """The truth says how the checkpoint was made, and never where."""
    made = truth_of(runs["module.", "cuda:0"])["made"]
    assert made["epoch"] == 1
    assert made["best_accuracy"] == 0.5
    assert made["torch"] == torch.__version__
    assert made["command"].startswith("ckptdoctor train lenet --device cpu --optimizer adamw --ema --save plain")
    assert str(runs["module.", "cuda:0"].parent) not in (runs["module.", "cuda:0"] / "truth.json").read_text()


def test_command():
    """Options with their default are left out, and so is the place."""
    assert command(RunConfig(out="/somewhere", resume=True)) == "ckptdoctor train lenet --device cpu"
    config = RunConfig(
        "vgg", "ddp", 2, "cuda", batch_size=32, compile=True, save=("wrapped", "dcp"), tag_device="cuda:0"
    )
    assert command(config) == (
        "ckptdoctor train vgg --strategy ddp --world-size 2 --device cuda --batch-size 32 --compile"
        " --save wrapped --save dcp --tag-device cuda:0"
    )


def test_the_same_run_writes_the_same_bytes(tmp_path):
    """Two runs in different places write the same files, the old format with its memory addresses included."""
    digests = []
    for name in ("one", "two"):
        config = RunConfig(out=str(tmp_path / name), save=("plain", "whole", "legacy", "safetensors"), ema=True)
        strategy = Toy(config, ALONE, nn.DataParallel, "module.")
        seed_everything(3)
        train(strategy, 2)
        digests.append(truth_of(save(config, strategy, ALONE, Position(1))))
    assert digests[0] == digests[1]
