"""Storages that no tensor of the tree views: in keys of dicts, in what is set on tensors, in what is thrown away."""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptdoctor import formats
from tests.commands import run


class Tagged(torch.Tensor):
    """A subclass, whose attributes torch saves."""


def attributed() -> torch.Tensor:
    """A tensor with a tensor, a storage and a dict of tensors set on it."""
    tensor = torch.ones(3).as_subclass(Tagged)
    tensor.beside = torch.arange(7.0)  # type: ignore[attr-defined]
    tensor.raw = torch.arange(6.0).untyped_storage()  # type: ignore[attr-defined]
    tensor.more = {"deep": [torch.arange(5.0)]}  # type: ignore[attr-defined]
    return tensor


HIDING: dict[str, Any] = {
    "a tensor as key": {torch.arange(3.0): 1},
    "a storage as key": {torch.arange(3.0).untyped_storage(): 1},
    "a tensor in a tuple as key": {(torch.arange(3.0), 2): 1},
    "keys within keys": {("a", ("b", torch.arange(3.0))): {(torch.arange(4.0),): 1}},
    "on a tensor": attributed(),
    "on a parameter": torch.nn.Parameter(torch.ones(2)),
}
HIDING["on a parameter"].beside = torch.arange(5.0)

# torch's legacy reader cannot read untyped storages back that its writer writes
TYPED = [kind for kind in HIDING if kind not in ("a storage as key", "on a tensor")]


def shown(value: Any) -> Any:
    """What can be compared of a value that torch has loaded, whatever the keys are."""
    if isinstance(value, torch.Tensor):
        return value.tolist(), {name: shown(each) for name, each in vars(value).items()}
    if isinstance(value, dict):
        return [(shown(key), shown(each)) for key, each in value.items()]
    if isinstance(value, (tuple, list)):
        return [shown(each) for each in value]
    return value.tolist() if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)) else value


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(("kind", "legacy"), [*((kind, False) for kind in HIDING), *((kind, True) for kind in TYPED)])
def test_they_go_along_with_every_repair(kind: str, legacy: bool, tmp_path: Path):
    """fix keeps them whatever else is dropped or renamed, and loads as torch loads the original; salvage runs, too."""
    source, fixed = tmp_path / "model.pt", tmp_path / "fixed.pt"
    contents = {"gone": torch.zeros(9), "w": torch.arange(4.0), "x": HIDING[kind]}
    torch.save(contents, source, _use_new_zipfile_serialization=not legacy)
    done = run("fix", source, "--drop", "gone", "--rename", "w=v", "-o", fixed, cwd=tmp_path)
    assert b"\nwrote " in done.stdout, done  # with status 1 where weights_only refuses the original as well
    before, after = (torch.load(path, weights_only=False) for path in (source, fixed))
    del before["gone"]
    before = {{"w": "v"}.get(name, name): value for name, value in before.items()}
    assert shown(after) == shown(before)
    assert run("salvage", source, "-o", "saved.pt", cwd=tmp_path).returncode == 0
    assert shown(torch.load(tmp_path / "saved.pt", weights_only=False)) == shown(torch.load(source, weights_only=False))


@pytest.mark.parametrize("kind", HIDING)
def test_check_says_that_they_were_not_examined(kind: str, tmp_path: Path):
    """What the tree does not show is never passed over in silence."""
    source = tmp_path / "model.pt"
    torch.save({"w": torch.arange(4.0), "x": HIDING[kind]}, source)
    assert "values that the tree does not show" in run("check", source, "--deep", cwd=tmp_path).stdout.decode()


def test_a_storage_that_the_stream_throws_away_is_known(tmp_path: Path):
    """A reference that is loaded and popped again costs nothing: the repair keeps the rest as it was."""
    source, odd, fixed = tmp_path / "model.pt", tmp_path / "odd.pt", tmp_path / "fixed.pt"
    torch.save({"w": torch.arange(4.0), "x": torch.arange(3.0).untyped_storage()}, source)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(odd, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("data.pkl"):
                calls = [at for code, _, at in pickletools.genops(data) if code.name == "BINPERSID"]
                data = data[: calls[-1] + 1] + b"0h\x03" + data[calls[-1] + 1 :]  # POP, BINGET: x is “storage”
            new.writestr(name, data)
    assert len(formats.open_checkpoint(odd).storages) == 2
    done = run("fix", odd, "--rename", "w=v", "-o", fixed, cwd=tmp_path)
    assert b"\nwrote " in done.stdout, done
    loaded = torch.load(fixed, weights_only=False)  # which knows no POP
    assert (loaded["v"].tolist(), loaded["x"]) == ([0, 1, 2, 3], "storage")
