"""Arrays of Python objects are pickles: what they name is told, and nothing in them is made."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ckptdoctor
from ckptdoctor.errors import DamagedError


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("echo pwned > pwned.txt",)


WAYS = {
    "x.npy": lambda path, array: np.save(path, array),
    "x.npz": lambda path, array: np.savez(path, a=array),
    "packed.npz": lambda path, array: np.savez_compressed(path, a=array),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_can_run_commands_is_told_and_never_run(name, tmp_path, monkeypatch):
    """The advice is about numpy.load, which torch.load has nothing to do with."""
    monkeypatch.chdir(tmp_path)
    WAYS[name](name, np.array([1, Evil()], dtype=object))
    found = [each for each in ckptdoctor.check(name).findings if each.code == "P206"]
    assert len(found) == 1 and f"{os.system.__module__}.system" in found[0].message
    assert "allow_pickle=True" in found[0].advice and not found[0].torch_says
    ckptdoctor.load(name)
    assert not (tmp_path / "pwned.txt").exists()


@pytest.mark.parametrize("name", WAYS)
def test_honest_objects_are_no_finding(name, tmp_path):
    """What torch.load would refuse does not matter in a file that it never reads."""
    WAYS[name](tmp_path / name, np.array([np.float32(1), {"a": np.ones(2)}, None, 2j], dtype=object))
    assert [each.code for each in ckptdoctor.check(tmp_path / name).findings] == ["C114"]


def test_a_pickle_that_breaks_off_is_damage(tmp_path):
    """As it is in a file of its own."""
    np.save(tmp_path / "x.npy", np.array(["a" * 100, None], dtype=object))
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-40])
    with pytest.raises(DamagedError, match="cut off"):
        ckptdoctor.open(tmp_path / "x.npy")
