"""One difference between two files is found wherever it is: what a repair wrote is held against its plan so."""

from __future__ import annotations

import argparse
import datetime
import decimal
import fractions
import re
import types
import uuid
from collections import Counter, OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.formats import open_checkpoint
from ckptdoctor.prove.same_contents import first_difference
from tests.builders import saving_tags, tagged
from tests.repair.checkpoints import training

NAN = float("nan")


def state(**attributes: object) -> OrderedDict:
    """A state dict as a module gives it."""
    made = OrderedDict(a=torch.ones(2))
    made.__dict__.update(attributes)
    return made


def tied(*names: str) -> dict[str, torch.Tensor]:
    """Four tensors of two storages: those of one name are one."""
    storages = {name: torch.ones(3) for name in names}
    return {f"{at}": storages[name] for at, name in enumerate(names)}


# two contents that differ in one thing, and the words for it when the second is there instead of the first
PAIRS = {
    "a number": (1, 2, "the value differs"),
    "a text": ("a", "b", "the value differs"),
    "a number of another type": (1, True, "there is a bool instead of a int"),
    "a fraction": (1.0, 1, "there is a int instead of a float"),
    "the sign of zero": (0.0, -0.0, "there is -0.0 instead of 0.0"),
    "no number": (0.0, NAN, "there is nan instead of 0.0"),
    "text and bytes": ("a", b"a", "there is a"),
    "nothing": (0, None, "there is nothing instead of a int"),
    "a value and a tensor": (1, torch.ones(1), "there is a Tensor instead of a int"),
    "a list and a dict": ([1], {0: 1}, "there is a dict instead of a list"),
    "a list and a tuple": ([1, 2], (1, 2), "there is a tuple of 2 instead of list of 2"),
    "one more": ([1, 2], [1, 2, 3], "there is a list of 3 instead of list of 2"),
    "a set": ({1}, frozenset({1}), "instead of"),
    "a dict and an ordered one": ({"a": 1}, OrderedDict(a=1), "there is a collections.OrderedDict instead of a dict"),
    "attributes of a dict": (state(), state(_metadata=1), "or its attributes differ"),
    "what is in attributes": (state(_metadata={"": 1}), state(_metadata={"": 2}), "the value differs"),
    "a key": ({"a": 1}, {"b": 1}, 'there is the key "b" instead of "a"'),
    "the order of keys": ({"a": 1, "b": 1}, {"b": 1, "a": 1}, 'there is the key "b" instead of "a"'),
    "a key of another type": ({1: 1}, {True: 1}, 'there is the key "True" instead of "1"'),
    "one key more": ({"a": 1}, {"a": 1, "b": 1}, "it has 2 keys instead of 1"),
    "a class": (argparse.Namespace(a=1), types.SimpleNamespace(a=1), "SimpleNamespace instead of"),
    "an attribute": (argparse.Namespace(a=1), argparse.Namespace(b=1), "there is the key"),
    "the value of an attribute": (argparse.Namespace(a=1), argparse.Namespace(a=2), "the value differs"),
    "one attribute more": (argparse.Namespace(a=1), argparse.Namespace(a=1, b=1), "it has 2 keys instead of 1"),
    "an argument": (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), "the value differs"),
    "one argument more": (
        datetime.datetime(2026, 1, 1),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
        "is made differently",
    ),
    "what is called": (decimal.Decimal("0.5"), fractions.Fraction("0.5"), "there is a"),
    "a number in an object": (Counter(a=1), Counter(a=2), "the value differs"),
    "an identifier": (uuid.UUID(int=1), uuid.UUID(int=2), "the value differs"),
    "a dtype": (torch.ones(2), torch.ones(2, dtype=torch.int32), "the tensor's dtype is int32 instead of float32"),
    "a shape": (torch.ones(2, 3), torch.ones(3, 2), r"the tensor's shape is \(3, 2\) instead of \(2, 3\)"),
    "a stride": (torch.ones(3, 3), torch.ones(3, 3).t(), "the tensor's stride is"),
    "an offset": (torch.ones(4)[:2], torch.ones(4)[2:], "the tensor's offset is 2 instead of 0"),
    "a parameter": (torch.ones(2), torch.nn.Parameter(torch.ones(2), requires_grad=False), "the tensor's"),
    "a gradient": (torch.ones(2), torch.ones(2, requires_grad=True), "the tensor's requires_grad is True"),
    "a device": (torch.ones(2), tagged(torch.ones(2), "cuda:0"), "the tensor's device is cuda:0"),
    "a layout": (torch.ones(2, 2), torch.ones(2, 2).to_sparse(), "the tensor's"),
    "the part of a sparse tensor": (torch.eye(3).to_sparse(), torch.eye(3).double().to_sparse(), "the tensor's"),
    "the size of a storage": (torch.ones(4)[:2], torch.ones(5)[:2], "or on one with another size"),
    "a tie": (tied(*"aabb"), tied(*"abbb"), "the tensor is on another storage"),
    "a tie that is lost": (tied(*"aab"), tied(*"abc"), "the tensor is on another storage"),
    "a tie that comes": (tied(*"abc"), tied(*"aac"), "the tensor is on another storage"),
}


def saved(value: object, path: Path) -> str:
    """The value deep in a file that holds other things, too."""
    with saving_tags():
        torch.save({"first": [1.5, "x"], "state": {"weight": torch.zeros(2), "here": ({"deep": value},)}}, path)
    return str(path)


@pytest.mark.parametrize("name", PAIRS)
def test_one_difference_is_found(tmp_path: Path, name: str):
    """It is said with its place; the other way round it is found, too."""
    one, other, words = PAIRS[name]
    wanted, got = (open_checkpoint(saved(value, tmp_path / f"{at}.pt")) for at, value in enumerate((one, other)))
    found = first_difference(wanted, got)
    assert found is not None and found.startswith("at state/here/0/deep")
    assert re.search(words, found)
    assert first_difference(got, wanted) is not None


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_is_the_same(tmp_path: Path, name: str):
    """Saved twice, nothing differs, whatever it is."""
    for value in PAIRS[name][:2]:
        wanted, got = (open_checkpoint(saved(value, tmp_path / f"{at}.pt")) for at in range(2))
        assert first_difference(wanted, got) is None


def test_no_number_is_itself(tmp_path: Path):
    """NaN in a file is the same as NaN in another."""
    wanted, got = (open_checkpoint(saved(NAN, tmp_path / f"{at}.pt")) for at in range(2))
    assert first_difference(wanted, got) is None


def test_what_lies_around_the_tree(tmp_path: Path):
    """The format, the metadata of safetensors, and storages that no tensor views."""
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in "one", "two":
        save_file({"a": torch.ones(2)}, tmp_path / f"{name}.safetensors", {"by": name})
    a, old, one, two = (
        open_checkpoint(str(tmp_path / name)) for name in ("a.pt", "old.pt", "one.safetensors", "two.safetensors")
    )
    assert first_difference(a, old) == "it is a PyTorch .pt (before 1.6) file instead of PyTorch .pt (zip)"
    assert first_difference(one, two) == "its metadata differs"


def test_a_whole_training_checkpoint(tmp_path: Path):
    """With optimizer, ties and metadata: the same when it is saved again, and not when a wrapper was around it."""
    for name, contents in (("a", training()), ("b", training()), ("c", training("module"))):
        torch.save(contents, tmp_path / name)
    a, b, c = (open_checkpoint(str(tmp_path / name)) for name in "abc")
    assert first_difference(a, b) is None
    assert first_difference(a, c) is not None
