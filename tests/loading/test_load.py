"""ckptdoctor.load against torch.load: the same values, dtypes, shapes, strides and sharing, always on the CPU."""

from __future__ import annotations

import argparse
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ckptdoctor.errors import DamagedError
from ckptdoctor.loading import Inert, load
from tests import broken_shards
from tests.builders import moved, saving_tags, tagged

PLAIN_DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def raw(tensor):
    """The bytes of a tensor's elements in C order."""
    return bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())


def assert_same(mine, theirs):
    """Both tensors have the same dtype, shape, stride and bytes."""
    assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    assert raw(mine) == raw(theirs)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("dtype", PLAIN_DTYPES, ids=str)
def test_every_dtype_comes_back(tmp_path, dtype, legacy):
    """A tensor of any dtype has the values that were saved."""
    values = (
        torch.arange(24, dtype=torch.uint8).repeat(16).view(dtype).clone()
        if dtype != torch.bool
        else torch.ones(24, dtype=dtype)
    )
    torch.save({"x": values}, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    assert_same(load(tmp_path / "a.pt")["x"], values)  # torch itself cannot read all dtypes in the legacy format


def test_strides_and_offsets_are_kept(tmp_path):
    """Transposed, sliced and channels-last tensors keep their strides and values."""
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    saved = {"t": base[0, 0].t(), "slice": base[:, 1, ::2], "last": base.to(memory_format=torch.channels_last)}
    torch.save(saved, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    for key, theirs in torch.load(tmp_path / "a.pt").items():
        assert_same(mine[key], theirs)


def test_shared_storages_stay_shared(tmp_path):
    """Tied tensors and views of one storage share memory after loading."""
    table = torch.arange(20.0).reshape(5, 4)
    torch.save({"a": table, "b": table, "row": table[1]}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    mine["a"][1, 0] = 99.0
    assert mine["b"][1, 0] == 99.0
    assert mine["row"][0] == 99.0


def test_writing_to_a_tensor_leaves_the_file_alone(tmp_path):
    """The map of the file is private: a change in memory never reaches the disk."""
    torch.save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    before = (tmp_path / "a.pt").read_bytes()
    load(tmp_path / "a.pt")["a"].fill_(7.0)
    assert (tmp_path / "a.pt").read_bytes() == before


@pytest.mark.parametrize("device", ["cuda:0", "cuda:7", "mps", "xla:0", "npu:1"])
def test_any_device_tag_loads_on_the_cpu(tmp_path, device):
    """Tensors come back on the CPU whatever device they were saved from."""
    with saving_tags():
        torch.save({"a": tagged(torch.arange(3.0), device)}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")["a"]
    assert mine.device.type == "cpu"
    assert torch.equal(mine, torch.arange(3.0))


def test_plain_contents_are_equal(tmp_path):
    """Dicts, lists, tuples, sets, numbers, text and bytes come back as they were saved."""
    saved = {"epoch": 3, "pair": (1, [2.5, None]), "names": {"a", "b"}, 7: b"\x00", "size": torch.Size([2, 3])}
    torch.save(saved, tmp_path / "a.pt")
    assert load(tmp_path / "a.pt") == saved


def test_a_state_dict_keeps_its_metadata(tmp_path):
    """An OrderedDict comes back as one, with the _metadata that torch put on it."""
    state = nn.BatchNorm1d(3).state_dict()
    torch.save(state, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    assert isinstance(mine, OrderedDict)
    assert mine._metadata == state._metadata
    nn.BatchNorm1d(3).load_state_dict(mine)


def test_parameters_come_back_as_parameters(tmp_path):
    """A Parameter is a Parameter again, with its requires_grad."""
    torch.save({"p": nn.Parameter(torch.ones(2), requires_grad=False)}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")["p"]
    assert isinstance(mine, nn.Parameter)
    assert not mine.requires_grad


@pytest.mark.filterwarnings("ignore")
def test_sparse_tensors_come_back(tmp_path):
    """COO and CSR tensors have torch's values and layout."""
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    torch.save({"coo": dense.to_sparse(), "csr": dense.to_sparse_csr()}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    assert mine["coo"].layout == torch.sparse_coo
    assert mine["csr"].layout == torch.sparse_csr
    assert torch.equal(mine["coo"].to_dense(), dense)
    assert torch.equal(mine["csr"].to_dense(), dense)


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_come_back(tmp_path):
    """Per-tensor and per-channel quantized tensors have torch's integers and scales."""
    values = torch.randn(3, 4)
    saved = {
        "tensor": torch.quantize_per_tensor(values, 0.1, 3, torch.qint8),
        "channel": torch.quantize_per_channel(values, torch.rand(3) + 0.1, torch.zeros(3), 0, torch.qint8),
    }
    torch.save(saved, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    for key, theirs in saved.items():
        assert torch.equal(mine[key].int_repr(), theirs.int_repr())
        assert torch.equal(mine[key].dequantize(), theirs.dequantize())


def test_lazy_bits_of_complex_tensors_are_kept(tmp_path):
    """A conjugate view is a conjugate view again."""
    torch.save({"c": torch.tensor([1 + 2j]).conj()}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")["c"]
    assert mine.is_conj()
    assert torch.equal(mine, torch.tensor([1 - 2j]))


def test_meta_tensors_stay_without_values(tmp_path):
    """A tensor saved on the meta device has shape and dtype, and no values."""
    torch.save({"m": torch.empty(2, 3, device="meta")}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")["m"]
    assert mine.is_meta
    assert mine.shape == (2, 3)


def test_unknown_objects_are_inert(tmp_path):
    """An object of any other class comes back as a record that shows its class and state."""
    torch.save({"args": argparse.Namespace(lr=0.1), "net": nn.Linear(2, 3)}, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    assert isinstance(mine["args"], Inert)
    assert mine["args"].class_name == "argparse.Namespace"
    assert mine["args"].state == {"lr": 0.1}
    assert torch.is_tensor(mine["net"].state["_parameters"]["weight"])


def test_dtypes_and_devices_are_themselves(tmp_path):
    """torch.float16 and torch.device("cuda:1") in the contents are those values again."""
    saved = {"dtype": torch.float16, "device": torch.device("cuda:1")}
    torch.save(saved, tmp_path / "a.pt")
    assert load(tmp_path / "a.pt") == saved


def test_a_cycle_is_a_cycle(tmp_path):
    """A dict that holds itself does so again."""
    saved: dict = {"x": 1}
    saved["self"] = saved
    torch.save(saved, tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    assert mine["self"] is mine


def test_safetensors_load(tmp_path):
    """A safetensors file gives its tensors under their names."""
    saved = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}
    save_file(saved, tmp_path / "a.safetensors")
    mine = load(tmp_path / "a.safetensors")
    for key, theirs in saved.items():
        assert_same(mine[key], theirs)


def test_missing_bytes_are_one_clear_sentence(tmp_path):
    """A storage whose bytes are not in the file raises DamagedError that names it."""
    save_file({"weight": torch.zeros(1000)}, tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(data[:-100])
    with pytest.raises(DamagedError, match=r"Storage weight .* should have 4,000 bytes, but the file has 3,900"):
        load(tmp_path / "a.safetensors")


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("saved_as", ["copy", "array"])
def test_tensors_of_devices_without_storages_come_back(tmp_path, saved_as, legacy):
    """Parameters and tensors of a TPU are CPU tensors, whichever way torch saved them; what was one tensor is one."""
    values = {
        "p": nn.Parameter(torch.randn(2, 3)),
        "half": torch.randn(5).bfloat16(),
        "turned": torch.arange(6.0).reshape(2, 3).t(),
        "empty": torch.empty(0, 3),
    }
    contents = {key: moved(value, saved_as=saved_as) for key, value in values.items()}
    contents.update(again=contents["half"], scalar=moved(torch.tensor(3), saved_as=saved_as))
    torch.save(contents, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    mine = load(tmp_path / "a.pt")
    for key, value in values.items():
        wanted = value if saved_as == "array" else value.contiguous()
        assert_same(mine[key].detach(), wanted.detach())
        assert (type(mine[key]), mine[key].requires_grad) == (type(value), value.requires_grad)
    assert mine["scalar"] == 3
    mine["half"][0] = 7
    assert mine["again"][0] == 7


def test_arrays_that_would_be_rounded_stay_inert(tmp_path):
    """No value is guessed."""

    class Call:
        def __reduce__(self):
            array = torch.tensor([0.1]).numpy()
            return torch._utils._rebuild_device_tensor_from_numpy, (array, torch.bfloat16, "xla:0", False)

    torch.save({"x": Call()}, tmp_path / "a.pt")
    assert isinstance(load(tmp_path / "a.pt")["x"], Inert)


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
@pytest.mark.parametrize("damage", ["missing", "page"])
def test_a_folder_without_a_shard_is_not_loaded_as_the_whole(tmp_path, suffix, damage):
    """The error names the file, how many tensors it has, and what to do; a whole file of it loads by its own name."""
    broken_shards.folder(tmp_path / "m", suffix, damage)
    name = broken_shards.name(2, suffix)
    with pytest.raises(DamagedError, match=f"{name}.* with 8 tensors of the index.*ckptdoctor salvage"):
        load(tmp_path / "m")
    assert len(load(tmp_path / "m" / broken_shards.name(1, suffix))) == 8
