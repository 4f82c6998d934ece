"""Whenever the machine stops, the file is the old one or the new one, or the journal makes it the old one again."""

from __future__ import annotations

import io
import itertools
import os
import random

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileIdentity
from ckptdoctor.edits import Rename
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.inplace.change import FileChange, Write, in_place
from ckptdoctor.inplace.changing import change_files
from ckptdoctor.inplace.history import undo
from ckptdoctor.inplace.names import hot_journal, place
from tests.inplace.memory_disk import BLOCK, File, Killed, MemoryDisk, crashed, crashes


def file_of(length, number, holes=False):
    """A file of arbitrary bytes; with ``holes`` every third block is one."""
    chances = random.Random(number)
    found = File(time=1000 + number)
    for at in range(0, length, BLOCK):
        if holes and at // BLOCK % 3 == 2 and at + BLOCK < length:
            found.size(at + BLOCK)
        else:
            found.write(chances.randbytes(min(BLOCK, length - at)), at)
    return found


def file_holding(data):
    """A file of these bytes."""
    found = File(time=7)
    found.write(data, 0)
    return found


def made(number, length):
    """New bytes."""
    return random.Random(-number).randbytes(length)


LEGACY = {"_use_new_zipfile_serialization": False}
LENGTH = 9 * BLOCK + 77

# the ways in which files change: bytes replaced, a longer and a shorter end, a shift, and two files at once
WAYS = {
    "replaced": lambda: [FileChange("a", LENGTH, LENGTH, 0, (Write(3, made(1, 900)), Write(4000, made(2, 30))))],
    "longer": lambda: [FileChange("a", LENGTH, LENGTH + 1300, 0, (Write(LENGTH - 200, made(3, 1500)),))],
    "shorter": lambda: [FileChange("a", LENGTH, LENGTH - 700, 0, (Write(LENGTH - 1600, made(4, 900)),))],
    "cut": lambda: [FileChange("a", LENGTH, LENGTH - 1700, 0, ())],
    "shifted": lambda: [FileChange("a", LENGTH, LENGTH + 2 * BLOCK, 2 * BLOCK, (Write(0, made(5, 2 * BLOCK + 700)),))],
    "two files": lambda: [
        FileChange("a.bin", LENGTH, LENGTH, 0, (Write(100, made(6, 1000)),)),
        FileChange("b.bin", LENGTH, LENGTH + BLOCK, BLOCK, (Write(0, made(7, BLOCK + 300)),)),
    ],
}


class Story:
    """One change, recorded: what the files were, and what they are afterwards."""

    def __init__(self, way, folder, holes):
        changes = WAYS[way]()
        self._begin(folder, changes, [file_of(LENGTH, number, holes) for number in range(len(changes))])

    def _begin(self, folder, changes, files):
        self.path = str(folder) if len(changes) > 1 else str(folder / changes[0].name)
        self.files = [str(folder / each.name) for each in changes]
        self.disk = MemoryDisk(dict(zip(self.files, files, strict=True)))
        self.old = self.contents(self.disk)
        known = [FileIdentity(1, fd, each.old_size, self.disk.files[fd].time) for fd, each in enumerate(changes)]
        self.changes, self.known = changes, known

    @classmethod
    def of(cls, folder, changes, contents):
        """A change of real files."""
        story = cls.__new__(cls)
        story._begin(folder, changes, [file_holding(data) for data in contents])
        return story

    def contents(self, disk):
        """All files, with their times."""
        return [disk.content(path) for path in self.files]

    def run(self, disk=None, verify=lambda: None):
        """Change the files."""
        return change_files(disk or self.disk, self.path, self.changes, self.known, ["a test"], verify)

    def require_recovered(self, state, new, deeper=None):
        """A file with a hot journal can be restored, even if restoring is killed; any other is old or new."""
        if os.path.basename(hot_journal(self.path)) not in state.names(place(self.path)[0]):
            assert bytes_of(self.contents(state)) in (bytes_of(self.old), bytes_of(new))
            return
        if deeper is not None:
            undo(state, self.path)
            state = crashed(state, deeper.randint(0, len(state.log)), deeper, deeper.choice(["none", "some", "all"]))
            self.require_recovered(state, new, deeper if deeper.random() < 0.5 else None)
            return
        undo(state, self.path)
        assert self.contents(state) == self.old


def bytes_of(contents):
    """Without the times: reserving space changes that of the old file."""
    return [data for data, _ in contents]


def told(way, folder, holes=False):
    """A story that went well, with what came of it."""
    story = Story(way, folder, holes)
    story.run()
    return story, story.contents(story.disk)


@pytest.mark.parametrize("holes", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("way", WAYS)
def test_no_crash_leaves_a_file_that_is_neither_old_nor_new(way, holes, tmp_path):
    """Some states after each call; ``test_ten_thousand_crashes`` asks many more."""
    ask(way, holes, tmp_path, 12, 1)


@pytest.mark.slow
@pytest.mark.parametrize("holes", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("way", WAYS)
def test_ten_thousand_crashes(way, holes, tmp_path):
    """Of each way 500 of the change and 500 of undoing it, and restoring is killed in each."""
    ask(way, holes, tmp_path, 500, 2)


def ask(way, holes, folder, number, seed):
    """Recover from so many crashes of the change, and of undoing it later."""
    story, new = told(way, folder, holes)
    ask_of(story, new, number, random.Random(f"{way} {holes} {seed}"))


def ask_of(story, new, number, chances):
    """Recover from so many crashes of a change that went well, and of undoing it later."""
    assert new != story.old
    for state in itertools.islice(crashes(story.disk, chances), number):
        story.require_recovered(state, new, chances)
    later = crashed(story.disk, len(story.disk.log), chances, "all")
    undo(later, story.path)
    for state in itertools.islice(crashes(later, chances), number):
        story.require_recovered(state, new, chances)


def copied(disk, story, dense):
    """The same files and journals as a program copies them: other inodes, and holes filled, or kept."""
    files = {"before them": File()}
    for path, fd in disk.paths.items():
        source = disk.files[fd]
        blocks = set(range(-(-len(source.data) // BLOCK))) if dense else set(source.blocks)
        files[path] = File(bytearray(source.data), blocks, source.time)
    made = MemoryDisk(files)
    assert all(made.paths[path] != disk.paths[path] for path in story.files)
    return made


@pytest.mark.parametrize("holes", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_after_a_crash_is_restored_or_left_alone(way, holes, tmp_path):
    """Every state whose blocks are where they were, or all further on, is restored; of others no byte is written."""
    story, _ = told(way, tmp_path, holes)
    chances = random.Random(f"{way} {holes} copied")
    restored = 0
    for state in itertools.islice(crashes(story.disk, chances), 60):
        if os.path.basename(hot_journal(story.path)) not in state.names(place(story.path)[0]):
            continue
        copy = copied(state, story, chances.random() < 0.5)
        left = story.contents(copy)
        try:
            undo(copy, story.path)
        except RefusedError:
            assert way in ("shifted", "two files")
            assert story.contents(copy) == left
            continue
        assert story.contents(copy) == story.old
        restored += 1
    assert restored > 5


def legacy_change(folder, longer):
    """What a change in place writes into a legacy file that torch made, with names that are longer or not."""
    path = folder / "old.pt"
    torch.save({f"module.{n}": torch.full((300,), float(n)) for n in range(4)}, path, **LEGACY)
    renames = tuple((f"module.{n}", f"{'a.longer.name' * 9 if longer else ''}{n}") for n in range(4))
    with formats.opened(path) as (source, container):
        wanted = wanted_of(formats.read(source, container), [Rename((), renames)])
        return in_place(formats.write_in_place(wanted, source, BLOCK), path.name, source.size, source.read)


@pytest.mark.parametrize("longer", [False, True], ids=["shorter", "longer"])
def test_no_crash_hurts_a_file_of_torch_before_1_6(longer, tmp_path):
    """Its pickles are padded, or shifted with all that follows; torch loads the tensors of either file."""
    change = legacy_change(tmp_path, longer)
    story = Story.of(tmp_path, [change], [(tmp_path / "old.pt").read_bytes()])
    story.run()
    new = story.contents(story.disk)
    assert bool(change.inserted) == longer
    for data, _ in (*story.old, *new):
        assert [value[0].item() for value in torch.load(io.BytesIO(data)).values()] == [0.0, 1.0, 2.0, 3.0]
    ask_of(story, new, 40, random.Random(longer))


@pytest.mark.parametrize("way", WAYS)
def test_undo_gives_the_old_bytes_and_time_back(way, tmp_path):
    """A second one finds nothing to do."""
    story, _ = told(way, tmp_path)
    assert undo(story.disk, story.path).journal.number == 1
    assert story.contents(story.disk) == story.old
    assert undo(story.disk, story.path).journal is None
    assert story.contents(story.disk) == story.old


@pytest.mark.parametrize("way", WAYS)
def test_a_process_killed_between_two_calls_leaves_what_undo_restores(way, tmp_path):
    """Here the machine goes on, so that everything that was written is there."""
    story, new = told(way, tmp_path)
    for step in range(len(story.disk.log)):
        again = Story(way, tmp_path, False)
        again.disk.dies_at = step
        with pytest.raises(Killed):
            again.run()
        again.disk.dies_at = None
        again.disk.locked.clear()
        again.require_recovered(again.disk, new)


def test_what_is_not_verified_is_taken_back(tmp_path):
    """The journal is gone, too."""
    story = Story("shifted", tmp_path, False)
    with pytest.raises(ZeroDivisionError):
        story.run(verify=lambda: 1 // 0)
    assert story.contents(story.disk) == story.old
    assert story.disk.names(str(tmp_path)) == ["a"]
