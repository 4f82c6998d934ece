"""The contents of ``training.pt``, and the device tags: the bytes that torch writes on other devices."""

from __future__ import annotations

import pickletools
import zipfile
from collections import OrderedDict

import pytest
import torch
from torch import nn

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.checks import require_tag
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.save import save
from ckptdoctor.trainer.snapshot.training import KEYS, saving_with_tag, tag_of
from tests.trainer.snapshot.toy import ALONE, Toy, train

PLAIN = (dict, OrderedDict, list, tuple, str, int, float, bool, type(None), torch.Tensor)


@pytest.fixture
def saved(tmp_path):
    """What torch reads, with its safe reader, of a run that has everything."""
    config = RunConfig(out=str(tmp_path), data_dir=str(tmp_path), amp="fp16", ema=True, optimizer="adamw", lr=0.25)
    strategy = Toy(config)
    train(strategy, 2)
    folder = save(config, strategy, ALONE, Position(4, 2, 0.5))
    return strategy, torch.load(folder / "training.pt", weights_only=True)


def test_only_plain_data(saved):
    """Everything is plain data and tensors, all the way down."""
    todo = [saved[1]]
    while todo:
        value = todo.pop()
        assert type(value) in PLAIN
        if isinstance(value, dict):
            todo += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            todo += value


def test_contents(saved):
    """Position, network, weights under bare keys, optimizer, schedule, scaler and average are there."""
    strategy, contents = saved
    assert tuple(contents) == KEYS
    assert [contents[key] for key in KEYS[:6]] == [4, 2, 0.5, "lenet", "single", 1]
    assert list(contents["state_dict"]) == list(strategy.model.state_dict())
    assert set(contents["optimizer"]["state"]) == set(range(6))
    assert contents["scheduler"] == {"last_epoch": 4, "base_lr": 0.25}
    assert contents["scaler"]["scale"] == 1024.0
    assert contents["ema"]["n_averaged"] == 2
    assert list(contents["ema"]["state_dict"]) == list(contents["state_dict"])


def test_every_choice_is_written_down(saved):
    """One that is left open, too: only what is about the place is left out, and a schedule that is the usual one."""
    from dataclasses import fields

    kept = {field.name for field in fields(RunConfig)} - {"out", "data_dir", "resume", "show_work", "schedule"}
    assert set(saved[1]["config"]) == kept


def test_config_without_the_place(saved):
    """The choices of the run are there, but not where it ran."""
    config = saved[1]["config"]
    assert (config["network"], config["optimizer"], config["save"]) == ("lenet", "adamw", ["plain"])
    assert not {"out", "data_dir", "resume"} & set(config)


def test_rng(saved):
    """Each rank's generators are there."""
    (state,) = saved[1]["rng"]
    assert (state["cpu"].dtype, state["cpu"].shape, state["cuda"], state["mps"]) == (torch.uint8, (5056,), None, None)
    assert len(state["python"][1]) == 625


def test_what_stays_on_the_cpu(tmp_path):
    """In a run tagged for a GPU generators and step counters keep the tag of the CPU, everything else has the GPU's."""
    config = RunConfig(out=str(tmp_path), ema=True, optimizer="adamw", tag_device="cuda:0")
    strategy = Toy(config)
    train(strategy, 1)
    path = save(config, strategy, ALONE, Position(1)) / "training.pt"
    tags = []
    loaded = torch.load(path, map_location=lambda storage, tag: (tags.append(tag), storage)[1])
    steps = len(loaded["optimizer"]["state"])
    tensors = 2 * len(loaded["state_dict"]) + 2 * steps
    assert (tags.count("cpu"), tags.count("cuda:0"), len(tags)) == (steps + 1, tensors, steps + 1 + tensors)


def test_bare_tensors_have_no_metadata(tmp_path):
    """A run without a module saves a plain dict: there are no module versions to write down."""
    config = RunConfig(out=str(tmp_path), strategy="manual", save=("plain", "wrapped", "safetensors", "dcp"))
    strategy = Toy(config)
    strategy.model_of_the_test, strategy.model, strategy.wrapped = strategy.model, None, None
    strategy.state_dict = strategy.wrapped_state_dict = lambda: {"w": torch.ones(2)}
    folder = save(config, strategy, ALONE, Position(1))
    assert type(torch.load(folder / "model.pt")) is dict
    assert type(torch.load(folder / "training.pt")["state_dict"]) is dict


def written(path, contents, tag, stays=()):
    """The opcodes of the pickle that torch.save writes for this tag."""
    with saving_with_tag(tag, stays):
        torch.save(contents, path)
    with zipfile.ZipFile(path) as archive:
        pickle = archive.read(f"{path.stem}/data.pkl")
    return [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(pickle)]


def strings(opcodes, text):
    """How often a text is spelt out, rather than fetched from the memo."""
    return sum(argument == text for name, argument in opcodes if name == "BINUNICODE")


@pytest.mark.parametrize(
    "tag", ["cpu", "mps", "cuda", "cuda:0", "cuda:15", "xla:0", "npu:0", "hpu", "hpu:1", "xpu:0", "privateuseone:0"]
)
def test_valid_tags(tag):
    """Tags that torch and its plug-ins write are taken."""
    require_tag(tag)


@pytest.mark.parametrize(
    "tag",
    ["", "gpu", "gpu:0", "cuda0", "cuda:", "cuda:-1", "cuda:01", "CUDA:0", "cpu:0", "mps:0", "xla", "meta", "cuda:0 "],
)
def test_malformed_tags(tag):
    """A tag that nobody writes is refused with a sentence that says what there is."""
    with pytest.raises(UsageError, match=r"--tag-device: torch\.save never writes the device .*\. Use cpu, cuda"):
        require_tag(tag)


@pytest.mark.parametrize(
    ("device", "tag"),
    [("cpu", "cpu"), ("mps:0", "mps"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3"), ("xla:0", "xla:0")],
)
def test_tag_of_a_device(device, tag):
    """A device has the tag that torch writes for it."""
    assert tag_of(torch.device(device)) == tag


def test_cpu_changes_nothing(tmp_path):
    """Tagging for the CPU gives, byte for byte, the file that torch.save writes without it."""
    state = nn.Linear(3, 2).state_dict()
    torch.save(state, tmp_path / "plain.pt")
    plain = (tmp_path / "plain.pt").read_bytes()
    written(tmp_path / "plain.pt", state, "cpu")
    assert (tmp_path / "plain.pt").read_bytes() == plain


@pytest.mark.parametrize(("tag", "times"), [("cuda:0", 2), ("npu:1", 2), ("mps", 1), ("cpu", 1)])
def test_fresh_strings(tmp_path, tag, times):
    """A tag with an index is spelt out for each storage, as torch builds it anew; the others are memoized."""
    opcodes = written(tmp_path / "a.pt", nn.Linear(3, 2).state_dict(), tag)
    assert strings(opcodes, tag) == times


def test_like_a_tensor_on_the_device(tmp_path):
    """The pickle is the one that torch itself writes for tensors whose device is another, here without their values."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        there = {name: torch.empty(3, device="cuda:1") for name in ("a", "b")}
    with torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save(there, tmp_path / "fake.pt")
    with zipfile.ZipFile(tmp_path / "fake.pt") as archive:
        fake = archive.read("fake/data.pkl")
    written(tmp_path / "made.pt", {name: torch.empty(3) for name in ("a", "b")}, "cuda:1")
    with zipfile.ZipFile(tmp_path / "made.pt") as archive:
        assert archive.read("made/data.pkl") == fake


def test_some_stay_on_the_cpu(tmp_path):
    """Tensors that stay keep the tag of the CPU, views of them too."""
    stays = torch.arange(4.0)
    opcodes = written(
        tmp_path / "a.pt", {"w": torch.ones(3), "step": stays[2], "empty": torch.empty(0)}, "cuda:0", [stays]
    )
    assert (strings(opcodes, "cuda:0"), strings(opcodes, "cpu")) == (2, 1)


def test_torch_is_as_before(tmp_path):
    """After the block torch writes the truth again, also when saving failed."""
    before = torch.serialization.location_tag, torch.Tensor._reduce_ex_internal
    for tag in ("cuda:0", "xla:0"):
        with pytest.raises(ZeroDivisionError), saving_with_tag(tag):
            _ = 1 / 0
    assert (torch.serialization.location_tag, torch.Tensor._reduce_ex_internal) == before


def test_xla_is_rebuilt(tmp_path):
    """An XLA tensor is a call that moves a CPU copy there: each tensor has a storage of its own, tagged cpu."""
    weight = torch.arange(6.0).reshape(2, 3)
    stays = torch.ones(2)
    contents = {"w": weight, "t": weight.t(), "step": stays, "p": nn.Parameter(weight)}
    opcodes = written(tmp_path / "a.pt", contents, "xla:0", [stays])
    assert strings(opcodes, "xla:0") == 3
    with pytest.raises(NotImplementedError, match="XLA"):
        torch.load(tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt", map_location="cpu")
    assert all(torch.equal(loaded[key], contents[key]) for key in contents)
    assert isinstance(loaded["p"], nn.Parameter)
    assert loaded["w"].data_ptr() != loaded["t"].data_ptr()
    assert loaded["t"].is_contiguous()
