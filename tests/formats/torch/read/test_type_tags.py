"""Lists and dicts that the pickler of C++ wrote with their types, as ``torch.save`` in TorchScript does."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch

import ckptdoctor
from ckptdoctor.checkpoint import Opaque, Sequence
from ckptdoctor.examine.file import check
from ckptdoctor.formats import open_checkpoint
from tests.formats.torch.read.support import contents_of_bytes


def _dict(value: dict[str, torch.Tensor], path: str):
    torch.save(value, path)


def _list(value: list[torch.Tensor], path: str):
    torch.save(value, path)


def _nested(value: dict[str, dict[str, torch.Tensor]], path: str):
    torch.save(value, path)


@pytest.fixture
def write():
    """Saves a value with the pickler of C++."""

    def save(function, value, path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.script(function)(value, str(path))
        return path

    return save


def test_the_call_is_not_shown(write, tmp_path):
    """The contents are the dict, dict of dicts, or list itself, as torch.load gives them."""
    flat = write(_dict, {"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "flat.pt")
    assert [each.path for each in open_checkpoint(flat).tensors] == [("a",), ("b",)]
    nested = write(_nested, {"m": {"w": torch.ones(2)}}, tmp_path / "nested.pt")
    assert ckptdoctor.load(nested)["m"]["w"].tolist() == [1, 1]
    listed = write(_list, [torch.ones(2)], tmp_path / "list.pt")
    assert isinstance(open_checkpoint(listed).tree, Sequence)


def test_tensors_are_edited_within_the_call(write, tmp_path):
    """A repair leaves the type where it is, and torch reads the result."""
    path = write(_dict, {"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "flat.pt")
    ckptdoctor.fix(str(path), str(tmp_path / "new.pt"), drop=["a"])
    assert list(torch.load(tmp_path / "new.pt", weights_only=False)) == ["b"]
    ckptdoctor.fix(str(path), str(tmp_path / "named.pt"), rename="a=c")
    assert list(torch.load(tmp_path / "named.pt", weights_only=False)) == ["c", "b"]
    report = ckptdoctor.convert(str(path), str(tmp_path / "new.safetensors"))
    assert (report.tensors, report.left_out) == (2, ())


def test_torch_still_refuses_it(write, tmp_path):
    """That is said, with the way to a file without the types."""
    path = write(_nested, {"m": {"w": torch.ones(2)}}, tmp_path / "nested.pt")
    (finding,) = [each for each in check(str(path)).findings if each.code == "P201"]
    assert "torch.save(ckptdoctor.load(FILE), " in finding.advice
    with pytest.raises(pickle.UnpicklingError, match="restore_type_tag"):
        torch.load(path)
    torch.save(ckptdoctor.load(path), tmp_path / "new.pt")
    assert "P201" not in {each.code for each in check(str(tmp_path / "new.pt")).findings}
    assert torch.load(tmp_path / "new.pt")["m"]["w"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "call",
    [
        b"ctorch.jit._pickle\nrestore_type_tag\n}\x85R.",  # without a type
        b"ctorch.jit._pickle\nrestore_type_tag\n}X\x01\x00\x00\x00aK\x01\x87R.",  # with more
        b"ctorch.jit._pickle\nbuild_intlist\nK\x01\x85R.",  # of no list
        b"ctorch.jit._pickle\nrestore_type_tag\n}X\x01\x00\x00\x00a\x86R}X\x01\x00\x00\x00bK\x01sb.",  # with a state
        b"ctorch.jit._pickle\nrestore_type_tag\n}X\x01\x00\x00\x00a\x86RK\x01K\x02s.",  # with a key set behind it
    ],
)
def test_other_calls_stay_calls(call):
    """What C++ does not write is shown as it is."""
    assert isinstance(contents_of_bytes(b"\x80\x02" + call).tree, Opaque)
