"""The damaged files of a folder, rebuilt from the parity of each: completely or not at all."""

from __future__ import annotations

import json
import os
import random

import pytest

import ckptdoctor
from ckptdoctor.errors import MissingPackageError, RefusedError, UnreadableError, UsageError, WriteError
from tests.commands import run_here

pytest.importorskip("zfec")

BLOCK = 4096
NAMES = ("a.bin", "b.bin", "c.bin")


@pytest.fixture
def folder(tmp_path):
    """Three files of 300 blocks with 1 % of parity each, and a small one; sealed."""
    path = tmp_path / "m"
    path.mkdir()
    for name in NAMES:
        (path / name).write_bytes(random.Random(name).randbytes(300 * BLOCK - 7))
    (path / "config.json").write_text("{}")
    ckptdoctor.seal(path, parity="1%")
    return path


def state(folder):
    """The bytes of every file in it."""
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def wipe(path, blocks=1):
    """Put other bytes over the first blocks."""
    raw = path.read_bytes()
    path.write_bytes(bytes(each ^ 0x5A for each in raw[: blocks * BLOCK]) + raw[blocks * BLOCK :])


def said(folder, *options):
    """The status of ``rebuild``, and what it says."""
    done = run_here("rebuild", "m", *options, cwd=folder.parent)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_all_damaged_files_of_a_folder_are_rebuilt_into_a_new_one(folder):
    """Blocks, and an end that is cut off; all other files are there as they were, and the original stays."""
    before = state(folder)
    wipe(folder / "a.bin")
    (folder / "c.bin").write_bytes(before["c.bin"][:-BLOCK])
    damaged = state(folder)
    status, text = said(folder)
    assert status == 0
    assert "m · 5 files" not in text
    assert "m · 4 files · 2 as sealed, 2 rebuilt" in text
    assert "  rebuilt   a.bin   1 of 300 blocks lost\n" in text
    assert "wrote m.rebuilt in " in text
    assert "; the original is untouched\nverified · 2 files have their SHA-256 again\n" in text
    assert state(folder.parent / "m.rebuilt") == before
    assert state(folder) == damaged
    assert run_here("verify", "m.rebuilt", cwd=folder.parent).returncode == 0


def test_only_damaged_files_are_replaced_where_they_are(folder):
    """With --force, in its own folders as well; no other file is touched."""
    deep = folder / "deep"
    deep.mkdir()
    (deep / "d.bin").write_bytes(random.Random(4).randbytes(9 * BLOCK))
    ckptdoctor.seal(folder, parity="5%", force=True)
    before, times = (deep / "d.bin").read_bytes(), (folder / "b.bin").stat().st_mtime_ns
    kept = (folder / "a.bin").read_bytes()
    wipe(folder / "a.bin")
    wipe(deep / "d.bin")
    with pytest.raises(RefusedError, match=r"deep/d\.bin can be rebuilt.* ckptdoctor rebuild \S+ -o \S+ --force$"):
        ckptdoctor.rebuild(folder)
    with pytest.raises(WriteError, match="is the original itself"):
        ckptdoctor.rebuild(folder, folder)
    status, text = said(folder, "-o", "m", "--force")
    assert status == 0
    assert "2 files of it replaced" in text
    assert ((deep / "d.bin").read_bytes(), (folder / "a.bin").read_bytes()) == (before, kept)
    assert (folder / "b.bin").stat().st_mtime_ns == times
    assert ckptdoctor.verify(folder).as_sealed
    assert said(folder) == (0, "m · 5 files · 5 as sealed\nnothing to do · every file has its SHA-256\n")


def test_a_file_of_which_too_much_is_lost_stays_as_it_is(folder):
    """As do one that is missing and one without parity; the status is 1, and the others are rebuilt."""
    before = state(folder)
    wipe(folder / "a.bin", blocks=9)
    wipe(folder / "b.bin")
    (folder / "c.bin").unlink()
    (folder / "config.json").write_text("[]")
    (folder / "config.json.parity").unlink()
    damaged = state(folder)
    status, text = said(folder)
    assert status == 1
    assert "m · 4 files · 1 rebuilt, 3 damaged as before" in text
    assert "  stays     a.bin   m/a.bin: 9 of 300 blocks are lost" in text
    assert "  stays     c.bin   it is missing\n" in text
    assert "  stays     config.json   it is not as it was sealed, and has no parity\n" in text
    assert state(folder.parent / "m.rebuilt") == {**damaged, "b.bin": before["b.bin"]}
    (folder / "b.bin").write_bytes(before["b.bin"])
    status, text = said(folder, "-o", "other")
    assert status == 1
    assert "nothing can be rebuilt" in text
    assert not (folder.parent / "other").exists()


def test_parity_is_enough_without_a_seal(folder):
    """Each parity file has the SHA-256 of its file."""
    before = state(folder)
    (folder / "ckptdoctor.seal.json").unlink()
    wipe(folder / "b.bin")
    report = ckptdoctor.rebuild(folder, diff=True)
    assert [each.name for each in report.changed] == ["b.bin"]
    assert not report.written
    assert not (folder.parent / "m.rebuilt").exists()
    report = ckptdoctor.rebuild(folder)
    assert report.written
    assert (folder.parent / "m.rebuilt" / "b.bin").read_bytes() == before["b.bin"]


def test_a_damaged_parity_file_hurts_nobody_whose_file_is_intact(folder):
    """The seal knows its SHA-256."""
    (folder / "a.bin.parity").write_bytes(b"?")
    wipe(folder / "b.bin")
    report = ckptdoctor.rebuild(folder)
    assert [each.name for each in report.changed] == ["b.bin"]
    assert not report.left
    wipe(folder / "a.bin")
    (stays,) = ckptdoctor.rebuild(folder, folder.parent / "other").left
    assert "a.bin.parity is not an intact parity file" in stays.why


def test_nothing_gets_its_name_before_all_files_are_complete(folder, monkeypatch):
    """A fault in the last one leaves the folder as it was."""
    from ckptdoctor.sealing.parity import rebuild

    wipe(folder / "a.bin")
    wipe(folder / "c.bin")
    damaged, real = state(folder), rebuild.rebuilt

    asked = []

    def wrong_in_the_end(layout, shares):
        asked.append(layout)
        made = real(layout, shares)
        return made if len(asked) == 1 else [bytes(len(each)) for each in made]

    monkeypatch.setattr(rebuild, "rebuilt", wrong_in_the_end)
    with pytest.raises(RefusedError, match="nothing is proven"):
        ckptdoctor.rebuild(folder, folder, force=True)
    assert len(asked) == 2
    assert state(folder) == damaged
    assert os.listdir(folder.parent) == ["m"]


def test_what_becomes_of_each_file_is_told_as_json(folder):
    """And how a refusal is."""
    wipe(folder / "a.bin")
    document = json.loads(said(folder, "--format", "json")[1])
    assert (document["status"], document["output"], document["replaces_original"]) == ("rebuilt", "m.rebuilt", False)
    assert [(each["name"], each["state"], each["lost"]) for each in document["files"]] == [
        ("a.bin", "rebuilt", 1),
        ("b.bin", "intact", 0),
        ("c.bin", "intact", 0),
        ("config.json", "intact", 0),
    ]
    for name in NAMES:
        wipe(folder / name, blocks=9)
    done = run_here("rebuild", "m", "--format", "json", cwd=folder.parent)
    assert json.loads(done.stdout)["status"] == "refused"


def test_folders_that_cannot_be_rebuilt_are_refused_in_one_sentence(folder, tmp_path, monkeypatch):
    """No parity at all, the parity of one file, an unfinished change in place, and zfec that is not installed."""
    with pytest.raises(UsageError, match="is about one file"):
        ckptdoctor.rebuild(folder, parity=folder / "a.bin.parity")
    wipe(folder / "a.bin")
    monkeypatch.setattr("ckptdoctor.sealing.parity.code.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"ckptdoctor\[parity\]"):
        ckptdoctor.rebuild(folder)
    (folder / ".ckptdoctor-hot").write_bytes(b"")
    with pytest.raises(RefusedError, match="ckptdoctor undo"):
        ckptdoctor.rebuild(folder)
    with pytest.raises(RefusedError, match="ckptdoctor undo"):
        ckptdoctor.rebuild(folder / "a.bin")
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_bytes(b"x")
    with pytest.raises(UnreadableError, match=r"has no parity files.* ckptdoctor seal \S+ --parity 1%$"):
        ckptdoctor.rebuild(other)


def test_diff_shows_what_is_lost_in_folders_below(folder):
    """And the command that replaces the damaged files where they are."""
    (folder / "deep").mkdir()
    (folder / "a.bin").rename(folder / "deep" / "a.bin")
    (folder / "a.bin.parity").unlink()
    ckptdoctor.seal(folder, parity="1%", force=True)
    before = (folder / "deep" / "a.bin").read_bytes()
    wipe(folder / "deep" / "a.bin")
    status, text = said(folder, "--diff")
    assert status == 0
    assert "  rebuilt   deep/a.bin   1 of 300 blocks lost\nwould write m; nothing was written\n" in text
    assert (folder / "deep" / "a.bin").read_bytes() != before
    assert "next · ckptdoctor rebuild m -o m --force\n" in text
    assert said(folder, "-o", "m", "--force")[0] == 0
    assert (folder / "deep" / "a.bin").read_bytes() == before
