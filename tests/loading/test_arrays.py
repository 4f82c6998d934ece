"""ckptdoctor.load with NumPy: the values of torch bit for bit, and one sentence for what NumPy has not."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ckptdoctor.errors import DamagedError, MissingPackageError, UsageError
from ckptdoctor.loading import Inert, load
from tests.builders import moved
from tests.formats.safetensors.forge import entry, file
from tests.loading.test_load import PLAIN_DTYPES, raw

ADDED = [dtype for dtype in PLAIN_DTYPES if dtype is torch.bfloat16 or "float8" in str(dtype)]
OWN = [dtype for dtype in PLAIN_DTYPES if dtype not in ADDED]


def values_of(dtype):
    """Every pattern of bytes that a file may hold of a dtype."""
    if dtype is torch.bool:
        return torch.tensor([True, False, True])
    return torch.arange(256, dtype=torch.uint8).repeat(2).view(dtype).clone()


def assert_same(array, tensor):
    """The array has the dtype, shape, strides and bytes of the tensor."""
    assert isinstance(array, np.ndarray) and f"torch.{array.dtype.name}" == str(tensor.dtype)
    assert array.shape == tuple(tensor.shape)
    assert array.size == 0 or array.strides == tuple(step * array.itemsize for step in tensor.stride())
    assert array.tobytes() == raw(tensor)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("dtype", PLAIN_DTYPES, ids=str)
def test_every_dtype_has_the_bits_of_torch(tmp_path, dtype, legacy):
    """An array of any dtype holds what torch.save was given; bfloat16 and float8 are those of ml_dtypes."""
    if dtype in ADDED:
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: see CONTRIBUTING.md")
    values = values_of(dtype)
    torch.save({"x": values}, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    assert_same(load(tmp_path / "a.pt", framework="np")["x"], values)


@pytest.mark.parametrize("dtype", [dtype for dtype in OWN if dtype is not torch.complex128], ids=str)
def test_arrays_are_those_of_safe_open(tmp_path, dtype):
    """safetensors gives the same array for the same framework."""
    save_file({"x": values_of(dtype)}, tmp_path / "a.safetensors")
    mine = load(tmp_path / "a.safetensors", framework="np")["x"]
    with safe_open(tmp_path / "a.safetensors", framework="np") as opened:
        theirs = opened.get_tensor("x")
    assert (mine.dtype, mine.shape, mine.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


def test_views_and_ties_are_kept(tmp_path):
    """Strides and shared memory are those of the file; writing to an array never reaches it."""
    table = torch.arange(20.0).reshape(5, 4)
    views = {"t": table.t(), "row": table[1], "wide": table[0, 0].expand(3), "no": torch.empty(0, 3)}
    torch.save({"a": table, **views}, tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    mine = load(tmp_path / "a", framework="np")
    for key, theirs in torch.load(tmp_path / "a").items():
        assert_same(mine[key], theirs)
    mine["a"][1, 0] = 99.0
    assert (mine["t"][0, 1], mine["row"][0]) == (99.0, 99.0)
    assert (tmp_path / "a").read_bytes() == before


@pytest.mark.parametrize("saved_as", ["copy", "array"])
def test_values_in_the_pickle_are_arrays(tmp_path, saved_as):
    """Tensors of devices without storages are arrays, too."""
    values = torch.arange(6.0).reshape(2, 3)
    torch.save({"x": moved(values, saved_as=saved_as)}, tmp_path / "a.pt")
    assert_same(load(tmp_path / "a.pt", framework="np")["x"], values)


@pytest.mark.parametrize("dtype", [torch.int16, torch.float32, torch.complex64], ids=str)
def test_the_other_byte_order_is_turned_round(tmp_path, dtype):
    """A file of a big-endian machine has the values that torch reads of it, with either framework."""
    values = torch.arange(16, dtype=torch.uint8).view(dtype).clone()
    torch.save({"x": values}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as before, zipfile.ZipFile(tmp_path / "b.pt", "w") as after:
        for info in before.infolist():
            data = b"big" if info.filename.endswith("byteorder") else before.read(info)
            after.writestr(info.filename, data)
    theirs = torch.load(tmp_path / "b.pt")["x"]
    assert raw(theirs) != raw(values)
    assert raw(load(tmp_path / "b.pt")["x"]) == load(tmp_path / "b.pt", framework="np")["x"].tobytes() == raw(theirs)


def test_conjugates_are_computed(tmp_path):
    """The conj and neg bits, which NumPy has not, are in the values."""
    number = torch.tensor([1 + 2j, 3 - 4j])
    torch.save({"conj": number.conj(), "neg": torch._neg_view(torch.tensor([2.0, -4.0]))}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt", framework="np")
    assert mine["conj"].tolist() == [1 - 2j, 3 + 4j]
    assert mine["neg"].tolist() == [-2.0, 4.0]


@pytest.mark.filterwarnings("ignore")
def test_what_only_torch_has_is_inert_with_its_parts(tmp_path):
    """Sparse and quantized tensors show their parts as arrays; dtypes, devices and meta tensors what they are."""
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    saved = {
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "codes": torch.quantize_per_tensor(dense, 0.5, 3, torch.qint8),
        "meta": torch.empty(2, 3, device="meta"),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:1"),
    }
    torch.save(saved, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt", framework="np")
    assert all(isinstance(each, Inert) for each in mine.values())
    assert [each.tolist() for each in mine["coo"].items] == [[[0, 1], [1, 0]], [1.0, 2.0]]
    assert mine["coo"].state["shape"] == (2, 2)
    assert [each.tolist() for each in mine["csr"].items] == [[0, 1, 2], [1, 0], [1.0, 2.0]]
    assert np.array_equal(mine["codes"].items[0], saved["codes"].int_repr().numpy())
    assert (mine["codes"].state["scale"], mine["codes"].state["zero_point"]) == (0.5, 3)
    assert mine["meta"].state["shape"] == (2, 3)
    assert (mine["dtype"].class_name, mine["device"].arguments) == ("torch.bfloat16", ["cuda", 1])


def test_plain_contents_are_equal(tmp_path):
    """All that is no tensor is as torch gives it; a torch.Size is a tuple, and a Parameter an array."""
    saved = {"epoch": 3, "pair": (1, [2.5]), "size": torch.Size([2, 3]), "p": torch.nn.Parameter(torch.ones(2))}
    torch.save(saved, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt", framework="np")
    assert mine.pop("p").tolist() == [1.0, 1.0]
    assert mine == {"epoch": 3, "pair": (1, [2.5]), "size": (2, 3)}


def test_without_ml_dtypes_the_way_out_is_named(tmp_path, monkeypatch):
    """The error has the key, the dtype, the command and the other framework."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    save_file({"x": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    with pytest.raises(MissingPackageError, match=r'^x has the dtype bfloat16, .* ml_dtypes; .* framework="pt"\.$'):
        load(tmp_path / "a.safetensors", framework="np")


def test_what_neither_has_comes_as_its_bytes(tmp_path):
    """4-bit floats have no array: the tensor is Inert, leniently or not."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(file({"a": entry(0, 8, "F4", [2, 8])}, bytes(range(8))))
    for strict in (True, False):
        found = load(path, framework="np", strict=strict)["a"]
        assert isinstance(found, Inert) and found.state["dtype"] == "float4_e2m1fn_x2"
        assert found.items[0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_damage_names_its_key(tmp_path):
    """A view past the end of its storage, and bytes that are missing, are DamagedError as with torch."""
    save_file({"weight": torch.zeros(1000)}, tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(data[:-100])
    with pytest.raises(DamagedError, match=r"Storage weight .* should have 4,000 bytes, but the file has 3,900"):
        load(tmp_path / "a.safetensors", framework="np")


def test_other_frameworks_are_refused(tmp_path):
    """The two that there are are named."""
    with pytest.raises(UsageError, match=r'^framework=.tf. is neither "pt" \(torch\) nor "np" \(NumPy\)\.$'):
        load(tmp_path / "a.pt", framework="tf")


def test_no_torch_is_imported(tmp_path):
    """Arrays come from a process that has not loaded torch."""
    torch.save({"a": torch.arange(3.0)}, tmp_path / "m.pt")
    code = "import sys, ckptdoctor\nprint(repr(ckptdoctor.load('m.pt', framework='np')), 'torch' in sys.modules)\n"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "{'a': array([0., 1., 2.], dtype=float32)} False\n"


def test_complex_numbers_come_as_they_were_saved(tmp_path):
    """As torch.load gives them, in either framework; a class of this name with other arguments does not."""
    saved = {"a": 3 + 4j, "b": [complex(0.0, -0.0), complex("nan+infj")]}
    torch.save(saved, tmp_path / "m.pt")
    for framework in ("pt", "np"):
        assert repr(load(tmp_path / "m.pt", framework=framework)) == repr(saved)
    (tmp_path / "odd.pkl").write_bytes(b"\x80\x02cbuiltins\ncomplex\nX\x01\x00\x00\x001\x85R.")
    assert isinstance(load(tmp_path / "odd.pkl"), Inert)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("strict", [True, False])
def test_what_only_torch_has_a_dtype_for_is_inert_with_its_bytes(tmp_path, strict):
    """A healthy file is not called damaged; the values of a complex number are halves, of 4-bit floats bytes."""
    half = torch.arange(12, dtype=torch.float16).reshape(2, 3, 2)
    packed = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    torch.save({"c": torch.view_as_complex(half).T, "f": packed.view(torch.float4_e2m1fn_x2)}, tmp_path / "m.pt")
    found = load(tmp_path / "m.pt", framework="np", strict=strict)
    assert (found["c"].state["dtype"], found["c"].state["shape"]) == ("complex32", (3, 2))
    assert found["c"].items[0].tolist() == half.transpose(0, 1).tolist()
    assert found["f"].state["dtype"] == "float4_e2m1fn_x2"
    assert found["f"].items[0].tolist() == packed.tolist()
