from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import functools
import pathlib
import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.repair.weights_only import weights_only_edits
from ckptdoctor.writing import publish
from tests.commands import run


class Meter:
    def __init__(self) -> None:
        self.count = 3
        self.history = [1.0, np.float64(2)]


class Colour(enum.Enum):
    RED = 1

    def __reduce_ex__(self, protocol):  # as all Pythons but 3.11.0 to 3.11.3 have it
        return self.__class__, (self._value_,)


def rewritten(folder: Path, contents: object, **how: Any) -> Any:
    path = folder / "model.pt"
    torch.save(contents, path, **how)
    with formats.opened(path) as (source, container):
        checkpoint = formats.read(source, container)
        edits = weights_only_edits(checkpoint)
        if not edits:
            return torch.load(path)
        publish(formats.write(wanted_of(checkpoint, edits), source), str(folder / "safe.pt"))
    return torch.load(folder / "safe.pt")


def test_objects_become_plain_and_all_else_stays(tmp_path: Path):
    """What torch refuses is what it says; tensors and plain data are what they were."""
    contents = {
        "w": torch.ones(2),
        "args": argparse.Namespace(lr=0.1, out=pathlib.PurePosixPath("/a/b"), deep={"n": [np.int64(4)]}),
        "best": np.float32(0.5),
        "day": datetime.date(2020, 1, 2),
        "meter": Meter(),
        "epoch": 3,
    }
    loaded = rewritten(tmp_path, contents)
    assert torch.equal(loaded.pop("w"), torch.ones(2))
    assert loaded == {
        "args": {"lr": 0.1, "out": "/a/b", "deep": {"n": [4]}},
        "best": 0.5,
        "day": "2020-01-02",
        "meter": {"count": 3, "history": [1.0, 2.0]},
        "epoch": 3,
    }


def test_what_torch_loads_anyway_is_left(tmp_path: Path):
    """Nothing refused, nothing done."""
    assert rewritten(tmp_path, {"epoch": 3}) == {"epoch": 3}


def test_an_enum_is_its_value(tmp_path: Path):
    """And whatever else is made of one plain value."""
    assert rewritten(tmp_path, {"c": Colour.RED, "list": [Colour.RED]}) == {"c": 1, "list": [1]}


def test_arrays_become_tensors(tmp_path: Path):
    """With the same elements in the same order; one array in two places becomes two tensors."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = {"a": array, "f": np.asfortranarray(array), "l": [array, np.array(3), np.zeros((0, 2)), np.array([True])]}
    loaded = rewritten(tmp_path, given)
    found = [loaded["a"], loaded["f"], *loaded["l"]]
    for tensor, wanted in zip(found, [given["a"], given["f"], *given["l"]], strict=True):
        assert torch.equal(tensor, torch.from_numpy(wanted))
        assert tensor.stride() == torch.from_numpy(wanted).stride() or not wanted.size


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "old format"])
def test_random_states_become_tensors_that_are_taken_back(tmp_path: Path, protocol: int, zipped: bool):
    """The states of every generator load, and NumPy goes on with the same numbers."""
    generator = np.random.default_rng(3)
    contents = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "dict": np.random.get_state(legacy=False),
        "pcg": generator.bit_generator.state,
        "sfc": np.random.SFC64(3).state,
        "torch": torch.get_rng_state(),
    }
    drawn = np.random.random(3), random.random(), generator.random(3)
    loaded = rewritten(tmp_path, contents, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    assert (loaded["numpy"][1].dtype, loaded["sfc"]["state"]["state"].dtype) == (torch.uint32, torch.uint64)
    np.random.set_state(loaded["numpy"])
    random.setstate(loaded["python"])
    generator.bit_generator.state = loaded["pcg"]
    assert np.array_equal(np.random.random(3), drawn[0])
    assert random.random() == drawn[1]
    assert np.array_equal(generator.random(3), drawn[2])
    np.random.set_state(loaded["dict"])
    assert np.array_equal(np.random.random(3), drawn[0])


@pytest.mark.parametrize("protocol", [2, 5])
def test_every_dtype_that_torch_has_becomes_a_tensor(tmp_path: Path, protocol: int):
    """Unsigned and complex ones among them, of either order of bytes; what it lacks becomes lists."""
    kinds = "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"
    arrays = {order + kind: np.array([[0, 1, 2], [3, 4, 5]]).astype(order + kind) for kind in kinds for order in "<>"}
    lists = {
        "text": np.array(["a", "bc"]),
        "day": np.array(["2020-01-02"], "M8[D]"),
        "any": np.array([None, 1], object),
    }
    loaded = rewritten(tmp_path, {**arrays, **lists, "z": np.complex64(1 + 2j)}, pickle_protocol=protocol)
    for name, array in arrays.items():
        wanted = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
        assert (loaded[name].dtype, loaded[name].tolist()) == (wanted.dtype, wanted.tolist())
    assert [loaded[name] for name in lists] == [["a", "bc"], ["2020-01-02"], [None, 1]]
    assert loaded["z"] == 1 + 2j


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "old format"])
def test_other_protocols_are_written_anew(tmp_path: Path, protocol: int, zipped: bool):
    """What torch refuses for how it is written, too."""
    contents = {"w": torch.ones(2), "args": argparse.Namespace(a=b"\xff", n=np.float64(1)), "s": {1}, "empty": b""}
    loaded = rewritten(tmp_path, contents, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    assert torch.equal(loaded.pop("w"), torch.ones(2))
    assert loaded == {"args": {"a": b"\xff", "n": 1.0}, "s": {1}, "empty": b""}


def test_bytes_of_newer_protocols_are_no_strings_of_python_2(tmp_path: Path):
    """Not even while repairs follow each other: written with protocol 2, they are bytes still."""
    contents = {"blob": b"\xff\x80", b"\xfe": 1, "empty": b""}
    torch.save(contents, tmp_path / "model.pt", pickle_protocol=4)
    ckptdoctor.fix(tmp_path / "model.pt", tmp_path / "safe.pt", unsafe_fixes=True)
    assert torch.load(tmp_path / "safe.pt", weights_only=False) == contents


@pytest.mark.parametrize(
    "value",
    [Meter, np.zeros(3, "m8[s]"), np.array([Meter]), argparse.Namespace(t=np.timedelta64(1, "s")), len],
    ids=["class", "durations", "array of classes", "duration", "function"],
)
def test_what_plain_data_cannot_say_is_refused(tmp_path: Path, value: object):
    """By name, with what to do; never dropped."""
    with pytest.raises(RefusedError, match=r"odd cannot be loaded with weights_only=True: .*\n  leave it out: --drop"):
        rewritten(tmp_path, {"w": torch.ones(2), "odd": value, "args": argparse.Namespace(a=1)})


def test_no_tensor_is_offered_for_dropping(tmp_path: Path):
    """A refusal offers to leave out what cannot be said only where no weight goes with it."""
    with pytest.raises(
        RefusedError,
        match=r"odd cannot be loaded with weights_only=True: it holds a tensor\n  ckptdoctor cannot write an equival",
    ):
        rewritten(tmp_path, {"w": torch.ones(2), "odd": argparse.Namespace(t=torch.ones(1))})


@pytest.mark.parametrize(("zipped", "protocol"), [(True, 2), (True, 4), (False, 2), (False, 4)])
@pytest.mark.parametrize(
    "value",
    [
        frozenset({1}),
        frozenset({(frozenset({2}), "a"), 3}),
        slice(1, 2),
        range(3),
        len,
        int,
        object(),
        type(None),
        str.lower,
        collections.defaultdict(list),
        collections.defaultdict(frozenset),
        collections.defaultdict(dict),
        functools.partial(len),
        Meter(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_left_out_is_in_nobodys_way(tmp_path: Path, value: object, zipped: bool, protocol: int):
    """Names of Python 2's built-ins, which protocol 2 writes, go with the one value that has them."""
    path, output = tmp_path / "model.pt", tmp_path / "safe.pt"
    torch.save({"w": torch.ones(2), "x": value}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    ckptdoctor.fix(path, output, weights_only_safe=True, drop=["x"])
    assert torch.load(output).keys() == {"w"}


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_frozenset_is_refused_with_its_place(tmp_path: Path, protocol: int):
    """No protocol has one that torch accepts."""
    torch.save({"w": torch.ones(2), "x": {"y": frozenset({1})}}, tmp_path / "model.pt", pickle_protocol=protocol)
    with pytest.raises(RefusedError) as refusal:
        ckptdoctor.fix(tmp_path / "model.pt", tmp_path / "safe.pt", weights_only_safe=True)
    assert "x/y" in str(refusal.value) and "frozenset" in str(refusal.value)
    assert "--drop x/y" in str(refusal.value)
    assert not (tmp_path / "safe.pt").exists()


@pytest.mark.parametrize("value", [ValueError("x"), FileNotFoundError("x"), KeyboardInterrupt()])
def test_an_exception_is_not_turned_into_its_text(tmp_path: Path, value: BaseException):
    """What it says is not what it is: nothing is written, and check promises no conversion, either."""
    with pytest.raises(RefusedError, match="an exception"):
        rewritten(tmp_path, {"w": torch.ones(2), "error": value})
    (finding,) = [each for each in ckptdoctor.check(str(tmp_path / "model.pt")).findings if each.code == "P201"]
    assert finding.advice.endswith("Such an object cannot be expressed as plain data; leave it out when you save.")


@pytest.mark.parametrize("value", [random.Random(1), decimal.Decimal("1.5"), uuid.UUID(int=3)])
def test_check_offers_what_fix_converts(tmp_path: Path, value: object):
    """Where --weights-only-safe converts an object, check does not say that nothing can."""
    assert "x" in rewritten(tmp_path, {"w": torch.ones(2), "x": value})
    (finding,) = [each for each in ckptdoctor.check(str(tmp_path / "model.pt")).findings if each.code == "P201"]
    assert "cannot be expressed" not in finding.advice
    assert finding.advice.endswith("--weights-only-safe")


def test_an_optimizer_that_shares_all_its_weights_can_be_left_out(tmp_path: Path):
    """The command leaves no weight out: those of the optimizer are the state dict's own."""
    model = torch.nn.Linear(2, 3)
    path = tmp_path / "model.pt"
    torch.save({"state_dict": model.state_dict(), "o": torch.optim.Adam(model.parameters())}, path)
    refused = run("fix", path, "--weights-only-safe", cwd=tmp_path)
    assert f"leave it out: ckptdoctor fix {path} --weights-only-safe --drop o" in refused.stdout.decode()
    done = run("fix", path, "--weights-only-safe", "--drop", "o", "--output", tmp_path / "out.pt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = torch.load(tmp_path / "out.pt")
    assert all(torch.equal(value, loaded["state_dict"][key]) for key, value in model.state_dict().items())


def test_an_optimizer_with_values_of_its_own_is_not_left_out(tmp_path: Path):
    """Its averages are in no other place, so no command that loses them is printed."""
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with pytest.raises(RefusedError, match="cannot write an equivalent file"):
        rewritten(tmp_path, {"state_dict": model.state_dict(), "o": optimizer})
