"""Checkpoint folders, and the positions that they are named after."""

from __future__ import annotations

import pytest

from ckptdoctor.trainer.snapshot import folders
from ckptdoctor.trainer.snapshot.folders import Position, exchange, position_of


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (Position(3), "epoch-0003"),
        (Position(2, 57, 0.5), "epoch-0002-step-0057"),
        (Position(0, 1), "epoch-0000-step-0001"),
        (Position(12345, 67890), "epoch-12345-step-67890"),
    ],
)
def test_name_and_back(position, name):
    """A folder name gives its epoch and step back."""
    assert position.name == name
    found = position_of(name)
    assert (found.epoch, found.step) == (position.epoch, position.step)


@pytest.mark.parametrize(
    "name", ["epoch-3", "epoch-0003.partial", "epoch-0003-step-0000", "epoch-0003-step-", "epochs-0003", "epoch-00003"]
)
def test_other_names(name):
    """A name that no position has stands for none."""
    assert position_of(name) is None


def test_order():
    """Positions are ordered by epoch, then by step, whatever their names look like."""
    order = [Position(0, 5), Position(1), Position(1, 9), Position(1, 10000), Position(2), Position(10000)]
    assert sorted({*order}) == order


def made(out, position, text="x"):
    """A complete folder with two small files."""
    partial = folders.begin(out, position)
    for name in (folders.TRAINING, folders.TRUTH):
        (partial / name).write_text(text)
    (partial / "dcp").mkdir()
    (partial / "dcp" / "part").write_text(text)
    return folders.commit(partial)


def test_commit_gives_the_name(tmp_path):
    """A folder is partial until it is committed, and complete from then on."""
    partial = folders.begin(tmp_path / "run", Position(3))
    assert partial.name == "epoch-0003.partial"
    assert folders.complete_folders(tmp_path / "run") == []
    final = made(tmp_path / "run", Position(3))
    assert final.name == "epoch-0003"
    assert folders.complete_folders(tmp_path / "run") == [final]
    assert not partial.exists()


def test_oldest_first(tmp_path):
    """Complete folders come in the order of the run, and the newest is the last."""
    for position in (Position(10), Position(2, 57), Position(2), Position(3)):
        made(tmp_path, position)
    names = [path.name for path in folders.complete_folders(tmp_path)]
    assert names == ["epoch-0002", "epoch-0002-step-0057", "epoch-0003", "epoch-0010"]
    assert folders.newest(tmp_path).name == "epoch-0010"


def test_only_complete_ones_count(tmp_path):
    """Folders that lack a file, other names and plain files are no checkpoints."""
    made(tmp_path, Position(1))
    (made(tmp_path, Position(2)) / folders.TRUTH).unlink()
    (made(tmp_path, Position(3)) / folders.TRAINING).unlink()
    folders.begin(tmp_path, Position(4))
    (tmp_path / "epoch-0005").write_text("a file")
    (tmp_path / "logs").mkdir()
    assert [path.name for path in folders.complete_folders(tmp_path)] == ["epoch-0001"]


def test_nothing_there(tmp_path):
    """A run that never began has no checkpoint, and sweeping it does nothing."""
    assert folders.newest(tmp_path / "none") is None
    assert folders.newest(tmp_path) is None
    folders.sweep(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_begin_removes_an_older_attempt(tmp_path):
    """What a killed attempt left under the same partial name is not mixed with the new one."""
    (folders.begin(tmp_path, Position(1)) / "left.pt").write_text("old")
    assert list(folders.begin(tmp_path, Position(1)).iterdir()) == []


@pytest.mark.parametrize("one_step", [True, False])
def test_replace_a_complete_one(tmp_path, monkeypatch, one_step):
    """A complete folder of the same name gives way to the new one, with or without a call that exchanges names."""
    if not one_step:
        monkeypatch.setattr(folders, "exchange", lambda one, other: False)
    made(tmp_path, Position(1), "old")
    final = made(tmp_path, Position(1), "new")
    assert (final / folders.TRAINING).read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0001"]


def test_sweep(tmp_path):
    """Sweeping removes what is half written and leaves everything else."""
    made(tmp_path, Position(1))
    made(tmp_path, Position(2)).rename(tmp_path / "epoch-0001.replaced")
    (folders.begin(tmp_path, Position(2)) / "model.pt").write_text("half")
    (tmp_path / "logs").mkdir()
    (tmp_path / "notes.partial").mkdir()
    (tmp_path / "epoch-0009.partial").write_text("a file of somebody else")
    folders.sweep(tmp_path)
    left = {"epoch-0001", "logs", "notes.partial", "epoch-0009.partial"}
    assert {path.name for path in tmp_path.iterdir()} == left


def test_sweep_between_two_renames(tmp_path):
    """A run killed after the old folder was moved away, and before the new one had its name, gets the old one back."""
    made(tmp_path, Position(1), "old").rename(tmp_path / "epoch-0001.replaced")
    folders.begin(tmp_path, Position(1))
    folders.sweep(tmp_path)
    assert (folders.newest(tmp_path) / folders.TRAINING).read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0001"]


def test_every_file_is_synced_before_the_name(tmp_path, monkeypatch):
    """Each file and folder is on the disk before the name is given, and the name after it."""
    calls = []
    genuine = folders._sync
    replace = folders.os.replace
    monkeypatch.setattr(folders, "_sync", lambda path: (calls.append(str(path)), genuine(path)))
    monkeypatch.setattr(folders.os, "replace", lambda *names: (calls.append("name"), replace(*names)))
    final = made(tmp_path, Position(1))
    partial = str(final) + ".partial"
    expected = {partial, f"{partial}/dcp", f"{partial}/dcp/part"}
    expected |= {f"{partial}/{name}" for name in (folders.TRAINING, folders.TRUTH)}
    at = calls.index("name")
    assert set(calls[:at]) == expected
    assert calls[at + 1 :] == [str(tmp_path)]


def test_exchange(tmp_path):
    """Two full folders trade names, where the system can do that; a missing one is an error and changes nothing."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    if not exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this system has no call that exchanges two names")
    assert (tmp_path / "one" / "file").read_text() == "other"
    assert (tmp_path / "other" / "file").read_text() == "one"
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "none")
    assert (tmp_path / "one" / "file").read_text() == "other"
