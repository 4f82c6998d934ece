"""A dict that stands in two places is one object, and stays one through every edit that changes both places alike."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.edits import (
    Cast,
    Drop,
    Edit,
    MakeContiguous,
    Rename,
    RenameModules,
    Reorder,
    Repickle,
    Replace,
    Retag,
    TakeRoot,
)
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.prove.same_contents import first_difference
from ckptdoctor.writing import publish
from tests.commands import run

PLACES = ("model",), ("ema",)
KEYS = ("module.0.weight", "module.0.bias", "module.1.weight")


def contents() -> dict[str, Any]:
    """Weights under two keys and in a list, with ``_metadata``, options, and a part that is shared once more."""
    options = {"lr": [0.1, float("nan"), 0.0], "kind": ("a", {"b": 1})}
    weights = OrderedDict((key, torch.arange(6.0).reshape(2, 3).T + number) for number, key in enumerate(KEYS))
    weights._metadata = OrderedDict({"": {"version": 1}, "module": {"version": 1}, "module.0": {"version": 2}})
    weights["options"] = options
    return {"model": weights, "ema": weights, "epoch": 1, "options": options}


def both(edit: type, **given: Any) -> list[Edit]:
    """The same edit in both places."""
    return [edit(place, **given) for place in PLACES]


EDITS: dict[str, list[Edit]] = {
    "rename": both(Rename, pairs=tuple((key, key.removeprefix("module.")) for key in KEYS)),
    "rename modules": both(RenameModules, pairs=(("module.0", "zero"),)),
    "drop": [Drop(tuple((*place, KEYS[1]) for place in PLACES))],
    "drop one by one": [Drop(((*place, KEYS[1]),)) for place in PLACES],
    "drop deeper": [Drop((("options", "kind"), *[(*place, "options", "kind") for place in PLACES]))],
    "replace": [Replace((*place, "options", "kind"), ("b", [{"c": 1.5}])) for place in PLACES],
    "reorder": both(Reorder, keys=("options", *reversed(KEYS))),
    "retag": [Retag("cuda:0")],
    "cast": [Cast(tuple((*place, key) for place in PLACES for key in KEYS), "bfloat16")],
    "contiguous": [MakeContiguous(tuple((*place, key) for place in PLACES for key in KEYS))],
    "repickle": [Repickle()],
    "several": [
        *both(Rename, pairs=((KEYS[0], "w"),)),
        Drop(tuple((*place, KEYS[2]) for place in PLACES)),
        *both(Rename, pairs=(("w", "v"),)),
        Drop((("epoch",),)),
    ],
}


def edited(folder: Path, edits: list[Edit], value: object, zipped: bool = True, protocol: int = 2) -> Any:
    """What torch loads of the file once it is edited, which is what the edits mean."""
    path, output = folder / "a.pt", folder / "b.pt"
    torch.save(value, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    with formats.opened(path) as (source, container):
        checkpoint = formats.read(source, container)
        publish(formats.write(wanted_of(checkpoint, edits), source), str(output))
    assert first_difference(apply(checkpoint, edits), formats.open_checkpoint(output)) is None
    return torch.load(output, map_location="cpu", weights_only=protocol == 2)


@pytest.mark.parametrize(
    ("name", "zipped"),
    [(name, zipped) for name in EDITS for zipped in (True, False) if zipped or name != "repickle"],
)
def test_what_was_one_stays_one(tmp_path: Path, name: str, zipped: bool):
    """Whatever is done to both places, and in whatever container of torch."""
    loaded = edited(tmp_path, EDITS[name], contents(), zipped)
    assert loaded["model"] is loaded["ema"]
    assert name == "replace" or loaded["options"] is loaded["model"]["options"]


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_what_was_one_stays_one_in_every_protocol(tmp_path: Path, protocol: int):
    """Protocols 4 and 5 number their memo by themselves."""
    loaded = edited(tmp_path, EDITS["several"], contents(), protocol=protocol)
    assert loaded["model"] is loaded["ema"]
    assert list(loaded["model"]) == ["v", KEYS[1], "options"]


def test_what_is_changed_in_one_place_parts(tmp_path: Path):
    """The other keeps what it had; what both still share stays shared."""
    loaded = edited(tmp_path, [Drop((("model", KEYS[0]),))], contents())
    assert (list(loaded["model"]), list(loaded["ema"])) == ([*KEYS[1:], "options"], [*KEYS, "options"])
    assert loaded["model"]["options"] is loaded["ema"]["options"] is loaded["options"]
    assert loaded["model"][KEYS[1]] is loaded["ema"][KEYS[1]]


def test_what_were_two_stay_two(tmp_path: Path):
    """Equal dicts that were never one do not become one, whatever edits make of them."""
    weights = contents()["model"]
    value = {"a": OrderedDict(weights), "b": OrderedDict(weights), "c": [], "d": []}
    value["same"] = value["a"]
    edits: list[Edit] = [Rename((place,), ((KEYS[0], "w"),)) for place in ("a", "b", "same")]
    loaded = edited(tmp_path, edits, value)
    assert loaded["a"] is loaded["same"]
    assert loaded["a"] is not loaded["b"]
    assert loaded["c"] is not loaded["d"]


def test_a_root_that_holds_one_thing_twice_keeps_it(tmp_path: Path):
    """Also where what it stood in goes."""
    loaded = edited(tmp_path, [TakeRoot(("in",)), *EDITS["rename"]], {"in": contents(), "n": 1})
    assert loaded["model"] is loaded["ema"]
    assert "0.weight" in loaded["model"]


@pytest.mark.parametrize("option", [["--strip-module"], ["--add-prefix", "net"], ["--drop", "*.bias"], []])
def test_fix_leaves_one_dict(tmp_path: Path, option: list[str]):
    """As a user asks for it: the same object under both keys."""
    value = contents()
    del value["options"], value["model"]["options"]
    torch.save(value, tmp_path / "a.pt")
    assert run("fix", "a.pt", *option, "-o", "b.pt", cwd=tmp_path).returncode in (0, 1)
    loaded = torch.load(tmp_path / "b.pt")
    assert loaded["model"] is loaded["ema"]
