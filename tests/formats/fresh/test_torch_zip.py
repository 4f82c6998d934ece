from __future__ import annotations

import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptdoctor import formats
from ckptdoctor.checkpoint import Mapping, Opaque
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh import torch_zip
from ckptdoctor.formats.fresh.pickling import pickled, unsayable
from ckptdoctor.writing import publish

LOADS = ({}, {"mmap": True}, {"map_location": "meta"})


def again(source: Path, output: Path) -> Path:
    """The contents of an archive, laid out anew."""
    checkpoint = formats.open_checkpoint(source)
    wanted = torch_zip.arranged(checkpoint.tree, checkpoint, str(source), str(source))
    publish(formats.write(wanted, None), str(output), force=True)
    return output


def same_but_for_the_number(one: Path, other: Path) -> bool:
    """Whether two archives are the same bytes but for the number that torch only logs, and its checksum."""
    mine, its = zipfile.ZipFile(one), zipfile.ZipFile(other)
    pairs = list(zip(mine.infolist(), its.infolist(), strict=True))
    return all(
        (a.filename, a.header_offset, a.file_size) == (b.filename, b.header_offset, b.file_size)
        and (a.filename.endswith("serialization_id") or mine.read(a) == its.read(b))
        for a, b in pairs
    )


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def run() -> dict[str, object]:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def tied() -> OrderedDict:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4, bias=False))
    model[1].weight = model[0].weight
    return model.state_dict()


CONTENTS = {
    "a state dict": lambda: network().state_dict(),
    "a plain dict": lambda: dict(network().state_dict()),
    "a run": run,
    "tied weights": tied,
    "views": lambda: {"t": torch.arange(6.0).reshape(2, 3).t(), "part": torch.arange(10)[3:5], "e": torch.zeros(0, 3)},
    "dtypes": lambda: [
        torch.zeros(2, dtype=getattr(torch, name))
        for name in ("float64", "bfloat16", "float8_e4m3fn", "uint16", "uint64", "bool", "complex64", "complex128")
    ],
    "parameters": lambda: [torch.nn.Parameter(torch.ones(2)), torch.ones(1, requires_grad=True)],
    "values": lambda: {
        "bytes": b"ab\xff", "none": None, "nan": float("nan"), "big": 2**70, "negative": -1,
        "size": torch.Size([1]), "set": {1}, "tuples": ((), (1,), (1, 2, 3, 4)),
        "lists": [[], [1], list(range(2001))], "dtype": torch.float16,
        3: "int", (1, "a"): "tuple", None: "none", 0.5: "float", True: "bool", "empty": {}, "ordered": OrderedDict(),
    },
    "many in a dict": lambda: {f"k.{i}": i for i in range(2001)},
    "many in order": lambda: OrderedDict((f"k.{i}", i) for i in range(2001)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENTS)
def test_an_archive_is_what_torch_writes_of_the_same_contents(tmp_path: Path, name: str):
    """Byte for byte, pickle and layout, but for the number that torch only logs."""
    source = tmp_path / "model.pt"
    torch.save(CONTENTS[name](), source)
    assert same_but_for_the_number(source, again(source, tmp_path / "again.pt"))


@pytest.mark.parametrize("options", LOADS, ids=str)
def test_an_archive_loads_each_way(tmp_path: Path, options: dict):
    """Plainly, mapped into memory, onto the meta device, and with computed offsets."""
    torch.save(run(), tmp_path / "model.pt")
    path = again(tmp_path / "model.pt", tmp_path / "again.pt")
    wanted = torch.load(tmp_path / "model.pt", **options)
    with torch.utils.serialization.config.patch("load.calculate_storage_offsets", bool(options.get("mmap"))):
        got = torch.load(path, **options)
    assert got.keys() == wanted.keys()
    for key, tensor in wanted["state_dict"].items():
        mine = got["state_dict"][key]
        assert (mine.shape, mine.dtype, mine.stride()) == (tensor.shape, tensor.dtype, tensor.stride())
        assert tensor.device.type == "meta" or torch.equal(mine, tensor)


def test_ties_stay_ties(tmp_path: Path):
    """Tensors of one storage are on one storage again."""
    torch.save(tied(), tmp_path / "model.pt")
    loaded = torch.load(again(tmp_path / "model.pt", tmp_path / "again.pt"))
    assert loaded["0.weight"].data_ptr() == loaded["1.weight"].data_ptr()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-9, 9), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN)
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_plain_value_comes_back(tmp_path: Path, value: object):
    """Whatever it is made of."""
    torch.save({"value": value}, tmp_path / "model.pt")
    assert torch.load(again(tmp_path / "model.pt", tmp_path / "again.pt"))["value"] == value


def test_what_is_not_plain_is_refused():
    """An object is never made; a dict of another kind is not taken for a plain one."""
    node = Opaque("argparse.Namespace")
    assert unsayable(node) == "is an object of the class argparse.Namespace"
    assert unsayable(Mapping("easydict.EasyDict", ())) == "is a easydict.EasyDict"
    with pytest.raises(RefusedError):
        pickled(Mapping("dict", (("args", node),)), {})


@pytest.mark.parametrize(
    ("path", "name"), [("a/b.pt", "b"), ("x.tar.pt", "x.tar"), (".pt", "archive"), ("é.pt", "archive")]
)
def test_the_folder_in_the_archive_is_named_as_torch_does(path: str, name: str):
    """After the file; torch itself writes "archive" where that is not ASCII."""
    assert torch_zip.name_of(path) == name
