"""Device tags: the bytes that torch writes on other devices."""

from __future__ import annotations

import pickletools
import zipfile

import pytest
import torch
from torch import nn

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.snapshot.tagging import saving_with_tag, tag_of
from ckptdoctor.trainer.snapshot.tags import check_tag


def saved(path, contents, tag, stays=()):
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
    check_tag(tag)


@pytest.mark.parametrize(
    "tag",
    ["", "gpu", "gpu:0", "cuda0", "cuda:", "cuda:-1", "cuda:01", "CUDA:0", "cpu:0", "mps:0", "xla", "meta", "cuda:0 "],
)
def test_malformed_tags(tag):
    """A tag that nobody writes is refused with a sentence that says what there is."""
    with pytest.raises(UsageError, match=r"--tag-device .* is no device that torch\.save writes: use cpu, cuda"):
        check_tag(tag)


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
    saved(tmp_path / "plain.pt", state, "cpu")
    assert (tmp_path / "plain.pt").read_bytes() == plain


@pytest.mark.parametrize(("tag", "times"), [("cuda:0", 2), ("npu:1", 2), ("mps", 1), ("cpu", 1)])
def test_fresh_strings(tmp_path, tag, times):
    """A tag with an index is spelt out for each storage, as torch builds it anew; the others are memoized."""
    opcodes = saved(tmp_path / "a.pt", nn.Linear(3, 2).state_dict(), tag)
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
    saved(tmp_path / "made.pt", {name: torch.empty(3) for name in ("a", "b")}, "cuda:1")
    with zipfile.ZipFile(tmp_path / "made.pt") as archive:
        assert archive.read("made/data.pkl") == fake


def test_some_stay_on_the_cpu(tmp_path):
    """Tensors that stay keep the tag of the CPU, views of them too."""
    stays = torch.arange(4.0)
    opcodes = saved(
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
    opcodes = saved(tmp_path / "a.pt", contents, "xla:0", [stays])
    assert strings(opcodes, "xla:0") == 3
    with pytest.raises(NotImplementedError, match="XLA"):
        torch.load(tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt", map_location="cpu")
    assert all(torch.equal(loaded[key], contents[key]) for key in contents)
    assert isinstance(loaded["p"], nn.Parameter)
    assert loaded["w"].data_ptr() != loaded["t"].data_ptr()
    assert loaded["t"].is_contiguous()
