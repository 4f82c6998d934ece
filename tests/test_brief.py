"""What an object says of itself in a session is at most a screen, whatever the file holds."""

from __future__ import annotations

import argparse
import ast
import math
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch

import ckptdoctor
from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import Special
from ckptdoctor.edits import Cast, Rename
from ckptdoctor.edits.elements import View
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.request import FixRequest

LINES, CHARACTERS = 24, 2_000
LONG = "x" * 1_000_000
# tensors of a large file
MANY = [1_500, pytest.param(20_000, marks=pytest.mark.slow)]
ALIKE = 50  # objects of one class whose fields are of the same classes and about as long


def saved(path, number):
    """A file with so many tensors; with keys, values and classes of a million characters; and objects."""
    weights = {f"module.layer{index}.{'w' * (index % 90)}": torch.ones(()) for index in range(number)}
    weights["module." + LONG] = torch.ones(3, 0)
    namespace = argparse.Namespace(**{LONG: LONG, "lr": 10**4000, "many": list(range(number))})
    odd = {(1, LONG): 1, "text": LONG, "lines": "\n" * 5000, "bytes": LONG.encode(), "set": {LONG, "a"}}
    torch.save({"model": weights, "args": namespace, "odd": odd, "device": torch.device("cuda:1")}, path)
    return path


@pytest.fixture(scope="module", params=MANY)
def many(request):
    """How many tensors there are."""
    return request.param


@pytest.fixture(scope="module")
def large(tmp_path_factory, many):
    """Tens of thousands of tensors."""
    return saved(tmp_path_factory.mktemp("large") / f"{'n' * 200}.pt", many)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Six hundred, for what takes longer."""
    return saved(tmp_path_factory.mktemp("smaller") / f"{'n' * 200}.pt", 600)


def objects(*roots):
    """Every object of our own classes that can be reached from these, each once, and its fields."""
    todo, seen = list(roots), {}
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            todo += one
        if type(one).__module__.partition(".")[0] == "ckptdoctor":
            names = [*getattr(one, "__dict__", ()), *slots(type(one))]
            fields = [getattr(one, name, None) for name in names]
            yield one, fields
            todo += fields


@cache
def slots(kind):
    """The slots of a class and those that it comes from."""
    found = [vars(each).get("__slots__", ()) for each in kind.__mro__]
    names = [name for each in found for name in ((each,) if isinstance(each, str) else each)]
    return [name for name in names if not name.startswith("__")]


def assert_brief(*roots):
    """All of them say at most a screen; how many there were of each class. Of those that are alike, some are asked."""
    numbers, alike = Counter(), Counter()
    for one, fields in objects(*roots):
        numbers[type(one).__name__] += 1
        look = (type(one), *[(type(each), size(each)) for each in fields])
        alike[look] += 1
        if alike[look] <= ALIKE:
            said = repr(one)
            assert len(said) <= CHARACTERS and said.count("\n") < LINES, (type(one), len(said), said[:3000])
    return numbers


def size(value):
    """The length of what has one, doubled or not."""
    return len(value).bit_length() if hasattr(value, "__len__") else None


def test_an_open_checkpoint_is_brief(large, many):
    """The checkpoint, every tensor, storage and value in it, and its format, path and numbers at a glance."""
    checkpoint = ckptdoctor.open(large)
    numbers = assert_brief(checkpoint)
    assert numbers["Tensor"] == numbers["Storage"] == many + 1
    assert {"Mapping", "Opaque", "Sequence", "Special", "StateDict", "GlobalName", "Container"} <= numbers.keys()
    said = repr(checkpoint)
    assert said.startswith("OpenCheckpoint(\n    path='") and "format='torch zip'" in said
    assert f"tensors=({many + 1:,}: Tensor(('model', " in said


def test_reports_are_brief(large, many):
    """What check says with and without a target, and everything that it holds."""
    expected = {f"layer{index}.{LONG[:50]}": (index, 3) for index in range(many)}
    for report in (ckptdoctor.check(large), ckptdoctor.check(large, model=expected)):
        numbers = assert_brief(report)
        assert {"CheckReport", "Finding", "Fix", "Skipped", "Location"} <= numbers.keys()
    assert_brief(ckptdoctor.Reference("mine", {key: ckptdoctor.Expected(shape) for key, shape in expected.items()}))


def test_plans_and_repairs_are_brief(path, tmp_path):
    """The plan of a repair with its hundreds of new names, what was done, and what was converted and grafted."""
    planned = plan(FixRequest(path=str(path), strip_module=True, output=str(tmp_path / "out.pt")))
    assert "Rename" in assert_brief(planned)
    assert "Step" in assert_brief(ckptdoctor.fix(path, tmp_path / "fixed.pt", strip_module=True))
    assert "Converted" in assert_brief(ckptdoctor.convert(path, tmp_path / "m.safetensors", root="model"))
    shutil.copy(path, tmp_path / "copy.pt")
    grafted = ckptdoctor.graft(path, tmp_path / "copy.pt", tmp_path / "g.pt", key="model/module.layer1*", diff=True)
    assert "Grafted" in assert_brief(grafted)


def test_differences_are_brief(path, tmp_path):
    """Tensors that differ, are there on one side only, and other contents."""
    torch.save({"model": {"module.layer1.w": torch.ones(2)}, "odd": {"text": LONG[1:]}}, tmp_path / "b.pt")
    numbers = assert_brief(ckptdoctor.diff(path, tmp_path / "b.pt"), ckptdoctor.diff(path, path, values=True))
    assert {"Compared", "Pair", "Single", "Side", "Section"} <= numbers.keys()


def test_loaded_objects_are_brief(path):
    """Inert records of whatever is in the file."""
    numbers = assert_brief(ckptdoctor.load(path))
    assert numbers["Inert"] >= 1


def test_errors_are_brief(path, tmp_path):
    """Errors about long names, as a session shows them."""
    errors = []
    for call in (
        lambda: ckptdoctor.open(tmp_path / ("y" * 5000)),
        lambda: ckptdoctor.load_state_dict(path, {"a": (2,)}, root=LONG + "a"),
        lambda: ckptdoctor.fix(path, tmp_path / "o.pt", root=LONG + "b"),
        lambda: ckptdoctor.check(path, select=[LONG]),
    ):
        with pytest.raises(CkptDoctorError) as caught:
            call()
        errors.append(caught.value)
    assert "CkptDoctorError" not in assert_brief(*errors)


def test_every_noun_is_brief():
    """No dataclass of the nouns goes by another repr than the house's."""
    package = Path(ckptdoctor.__file__).parent
    nouns = [*package.glob("checkpoint/*.py"), *package.glob("edits/*.py")]
    alone = ("findings.py", "differences.py", "loading/inert.py", "repair/request.py", "writing/recipe.py")
    for file in [*nouns, *[package / name for name in alone]]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                assert "dataclass" not in [alias.name for alias in node.names], (
                    f"{file}: noun of ckptdoctor.noun is briefer"
                )


def test_a_small_object_is_a_line():
    """What fits is shown as it would be written; fields that are as they always are, are not."""
    assert repr(Special("a")) == "Special(text='a')"
    assert repr(ckptdoctor.Expected((2, 3))) == "Expected(shape=(2, 3))"


def test_in_full_tells_apart_what_brief_does_not():
    """Whatever its length, and as a reader would: NaN is itself, True is not 1, and order counts."""
    pairs = tuple([(f"a{index}", f"b{index}") for index in range(1000)])
    one, other = Rename((), pairs), Rename((), (*pairs[:-1], ("a999", "c999")))
    assert repr(one) == repr(other)
    assert in_full(one) != in_full(other)
    assert in_full(one) == in_full(Rename((), pairs))
    assert (
        in_full((math.nan, True, {"a": 1})) == in_full((math.nan, True, {"a": 1})) != in_full((math.nan, 1, {"a": 1}))
    )
    assert len({in_full(each) for each in ((1,), [1], 1, "1", Special("1"), Cast((), "1"), View)}) == 7
