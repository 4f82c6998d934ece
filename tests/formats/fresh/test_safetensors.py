from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.converting.request import size_of
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.formats.fresh import safetensors
from ckptdoctor.formats.fresh.safetensors import Entry
from ckptdoctor.writing import publish
from tests.libraries import huggingface_hub

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "complex64"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    *("bool", "float4_e2m1fn_x2"),
)


def written(source: Path, output: Path, metadata: dict[str, str]) -> Path:
    """The tensors of a file in one of safetensors."""
    original = formats.open_checkpoint(source)
    entries = [Entry(tensor.key, tensor) for tensor in original.tensors]
    publish(formats.write(safetensors.arranged(entries, metadata, original, str(source)), None), str(output))
    return output


NOTHING = Checkpoint("", "", 0, None, (), (), ())


def tensors() -> dict[str, torch.Tensor]:
    made = {name: torch.arange(6, dtype=torch.uint8).view(torch.uint8) for name in DTYPES}
    for name in DTYPES:
        dtype = getattr(torch, name)
        width = max(1, dtype.itemsize)
        raw = torch.arange(6 * width, dtype=torch.uint8) % 2
        made[name] = raw.view(dtype) if dtype is not torch.uint8 else raw
    return {**made, 'ä "\\\n\x01': torch.ones(2, 3), "empty": torch.zeros(0, 3), "scalar": torch.tensor(1.0)}


def test_a_file_is_what_save_file_writes(tmp_path: Path):
    """Byte for byte: order, header and padding, for every dtype that both have and for odd names."""
    torch.save(tensors(), tmp_path / "model.pt")
    save_file(tensors(), tmp_path / "wanted.safetensors", {"format": "pt"})
    got = written(tmp_path / "model.pt", tmp_path / "got.safetensors", {"format": "pt"})
    assert got.read_bytes() == (tmp_path / "wanted.safetensors").read_bytes()


def test_every_dtype_of_safetensors_has_its_place():
    """None is forgotten in the order of dtypes."""
    named = {dtype.safetensors for dtype in BY_NAME.values() if dtype.safetensors}
    assert named == set(safetensors._ORDER)


def test_names_that_safetensors_cannot_have_are_refused():
    """Its own, and lone halves of characters."""
    tensor = Tensor((), BY_NAME["float32"], (0,), (1,), None)
    for name in ("__metadata__", "\ud800"):
        with pytest.raises(RefusedError):
            formats.write(safetensors.arranged([Entry(name, tensor)], {}, NOTHING, "x"), None)


def of_sizes(*sizes: int) -> list[Entry]:
    return [Entry(f"t{at}", Tensor((), BY_NAME["uint8"], (size,), (1,), None)) for at, size in enumerate(sizes)]


def test_shards_hold_as_much_as_they_may():
    """In the order of the file; a tensor that is too large alone has a shard of its own."""
    split = safetensors.split(of_sizes(4, 4, 3, 20, 2, 8), 10)
    assert [[entry.name for entry in shard.entries] for shard in split] == [
        ["t0", "t1"],
        ["t2", "t4"],
        ["t3"],
        ["t5"],
    ] or [[entry.nbytes for entry in shard.entries] for shard in split] == [[4, 4], [3, 2], [20], [8]]
    assert split[0].name == "model-00001-of-00004.safetensors"
    assert sum(len(shard.entries) for shard in split) == 6


@pytest.mark.slow
def test_shards_are_those_of_huggingface_hub():
    """The same tensors lie together."""
    found = of_sizes(4, 4, 3, 20, 2, 8, 1, 9, 10, 11)
    state = {entry.name: torch.zeros(entry.nbytes, dtype=torch.uint8) for entry in found}
    wanted = huggingface_hub.split_torch_state_dict_into_shards(state, max_shard_size=10)
    split = safetensors.split(found, 10)
    got = {shard.name: [entry.name for entry in shard.entries] for shard in split}
    assert sorted(got.values()) == sorted(wanted.filename_to_tensors.values())
    assert json.loads(safetensors.index_of(split))["metadata"]["total_size"] == wanted.metadata["total_size"]


def test_one_shard_needs_no_number():
    """It is called what a single file is called."""
    assert [shard.name for shard in safetensors.split(of_sizes(1, 2), 10)] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("text", "size"), [("5GB", 5 * 10**9), ("1.5 MiB", 3 << 19), ("10", 10), ("2k", 2000), ("7B", 7)]
)
def test_sizes_are_read(text: str, size: int):
    """As people write them."""
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "5XB", "0", "5GBs"])
def test_sizes_that_are_none_are_refused(text: str):
    """With what is wanted instead."""
    with pytest.raises(UsageError):
        size_of(text)


def test_what_is_written_loads(tmp_path: Path):
    """With the values that torch saved, transposed ones in C order."""
    wanted = {"t": torch.arange(6.0).reshape(2, 3).t(), "slice": torch.arange(24.0).reshape(4, 6)[1:3, ::2]}
    torch.save(wanted, tmp_path / "model.pt")
    got = load_file(written(tmp_path / "model.pt", tmp_path / "got.safetensors", {}))
    assert all(torch.equal(got[key], tensor) for key, tensor in wanted.items())
