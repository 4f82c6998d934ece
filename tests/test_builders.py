"""The builders make what real torch and safetensors make."""

from __future__ import annotations

import argparse
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ckptdoctor.rules.examples import Example, Obj, Odict, T
from tests.builders import build, build_like, saving_tags, tagged


def load(path):
    return torch.load(path, weights_only=False, map_location=lambda storage, location: storage)


def test_tensors_have_the_described_shape_dtype_and_stride(tmp_path):
    """Shape, dtype, stride, offset and value of a T are those of the loaded tensor."""
    example = Example("a", {"w": T((2, 3), "float16", stride=(1, 2)), "b": T((4,), "int64", value=7, offset=2)})
    loaded = load(build(example, tmp_path))
    assert (loaded["w"].dtype, loaded["w"].shape, loaded["w"].stride()) == (torch.float16, (2, 3), (1, 2))
    assert loaded["b"].tolist() == [7, 7, 7, 7]
    assert loaded["b"].storage_offset() == 2


def test_tensors_share_a_named_storage(tmp_path):
    """Two Ts with one storage name are views of one storage, as long as the longest needs."""
    example = Example("a", {"x": T((4,), storage="s"), "y": T((4,), storage="s", offset=4, storage_size=100)})
    with zipfile.ZipFile(build(example, tmp_path)) as archive:
        sizes = [entry.file_size for entry in archive.infolist() if "/data/" in entry.filename]
    assert sizes == [400]


@pytest.mark.parametrize("dtype", ["bool", "complex64", "float8_e4m3fn", "float4_e2m1fn_x2", "uint16", "bits8"])
def test_every_dtype_can_be_saved(tmp_path, dtype):
    """Dtypes without arithmetic in torch are saved too."""
    assert load(build(Example("a", {"w": T((4,), dtype)}), tmp_path))["w"].dtype == getattr(torch, dtype)


@pytest.mark.parametrize("container", ["torch zip", "torch legacy"])
def test_device_tags_are_written_as_torch_writes_them(tmp_path, container):
    """The tag stands in the file, once for each storage, because torch makes a new string for each."""
    example = Example("a", {"x": T((2,), device="cuda:1"), "y": T((2,), device="cuda:1")}, container=container)
    path = build(example, tmp_path)
    data = path.read_bytes()
    assert data.count(b"X\x06\x00\x00\x00cuda:1") == 2
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path)


def test_without_tags_nothing_differs_from_torch(tmp_path):
    """saving_tags leaves untagged tensors and the archive byte for byte alone."""
    value = {"w": torch.arange(4.0)}
    torch.save(value, tmp_path / "a.pt")
    plain = (tmp_path / "a.pt").read_bytes()
    with saving_tags():
        torch.save(value, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").read_bytes() == plain


def test_a_tagged_tensor_keeps_its_tag_through_views(tmp_path):
    """The tag belongs to the storage, not to the tensor object."""
    with saving_tags():
        torch.save(tagged(torch.zeros(4), "mps")[1:], tmp_path / "a.pt")
    assert b"X\x03\x00\x00\x00mps" in (tmp_path / "a.pt").read_bytes()


def test_importable_classes_are_used_for_real(tmp_path):
    """A Namespace, a path and a NumPy scalar come back as themselves."""
    contents = {
        "args": Obj("argparse.Namespace", {"lr": 0.1}),
        "path": Obj("pathlib.PurePosixPath", arguments=("runs", "a.pt")),
        "best": Obj("numpy.float64", arguments=(0.5,)),
    }
    loaded = load(build(Example("a", contents), tmp_path))
    assert loaded["args"] == argparse.Namespace(lr=0.1)
    assert str(loaded["path"]) == "runs/a.pt"
    assert isinstance(loaded["best"], np.float64)


def test_missing_classes_exist_only_while_saving(tmp_path):
    """The file names a class that nobody can import afterwards."""
    path = build(Example("a", {"meter": Obj("models.yolo.Detect", {"stride": 8})}), tmp_path)
    assert b"cmodels.yolo\nDetect\n" in path.read_bytes()
    with pytest.raises(ModuleNotFoundError):
        load(path)


def test_dangerous_calls_are_saved_and_never_made(tmp_path, capfd):
    """A call with arguments goes into the file without being made here."""
    path = build(Example("a", {"x": Obj("os.system", arguments=("echo ran",))}), tmp_path)
    assert b"cposix\nsystem\n" in path.read_bytes()
    assert capfd.readouterr().out == ""


def test_state_dicts_carry_metadata(tmp_path):
    """An Odict is an OrderedDict with _metadata, as Module.state_dict() gives it."""
    loaded = load(build(Example("a", Odict({"w": T((1,))}, {"": {"version": 1}})), tmp_path))
    assert isinstance(loaded, OrderedDict)
    assert loaded._metadata == {"": {"version": 1}}


def test_parameters_are_parameters(tmp_path):
    """T(parameter=True) is an nn.Parameter; an integer one has no gradient."""
    loaded = load(build(Example("a", [T((1,), parameter=True), T((1,), "int8", parameter=True)]), tmp_path))
    assert [type(each) for each in loaded] == [torch.nn.Parameter, torch.nn.Parameter]
    assert [each.requires_grad for each in loaded] == [True, False]


def test_safetensors_and_reference(tmp_path):
    """safetensors files are written by safetensors, with the metadata asked for; so is the reference file."""
    example = Example(
        "a",
        {"w": T((2,))},
        container="safetensors",
        suffix=".safetensors",
        metadata={"format": "pt"},
        like={"v": T((3,))},
    )
    assert b'"__metadata__":{"format":"pt"}' in build(example, tmp_path).read_bytes()
    assert load_file(build_like(example, tmp_path))["v"].shape == (3,)


def test_raw_and_damage(tmp_path):
    """Raw bytes are the whole file, and damage changes the bytes last."""
    path = build(Example("Raw file!", raw=b"abc", damage=lambda data: data[:2], suffix=".pth"), tmp_path)
    assert (path.name, path.read_bytes()) == ("raw-file.pth", b"ab")
