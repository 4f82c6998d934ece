"""Real file systems, mounted for the test: what tests in memory promise holds of ext4, XFS and Btrfs as well."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from tests.inplace.test_folders import bytes_in, shards
from tests.inplace.test_promises import LONGER, NAMES, SHORTER, fix, is_killed, save, sha, tensors_of, undo

KINDS = ["ext4", "xfs", "btrfs"]
WAYS = pytest.mark.parametrize("options", [SHORTER, LONGER], ids=["shorter", "longer"])

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting takes root, on Linux"),
]


@pytest.fixture(scope="module", params=KINDS)
def mounted(request, tmp_path_factory):
    """A file system of 320 MB, and its kind."""
    kind = request.param
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"there is no mkfs.{kind}")
    folder = tmp_path_factory.mktemp(kind)
    image, place = folder / "image", folder / "mounted"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(320 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed")
    yield kind, place
    subprocess.run(["umount", place], check=True)


@pytest.fixture
def place(mounted):
    """An empty folder there."""
    folder = mounted[1] / "it"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def model(folder, name):
    """A checkpoint of 40 kB."""
    torch.manual_seed(1)
    save({f"module.layer{number}.weight": torch.randn(40, 50) for number in range(5)}, folder / name)
    return folder / name


@pytest.mark.parametrize("name", NAMES)
def test_files_are_changed_and_restored(name, mounted, place):
    """As a clone where the file system shares blocks, otherwise with a journal; the tensors load as before.

    Btrfs inserts no blocks, so that pickles in front of tensors cannot grow there.
    """
    path = model(place, name)
    before, was = sha(path), tensors_of(path)
    kind = mounted[0]
    every = (SHORTER,) if (kind, name) == ("btrfs", "model.pth") else (SHORTER, LONGER)
    for options in every:
        status, said = fix(path, *options, "--format", "json")
        assert status == 0, said
        assert json.loads(said)["in_place"]["means"] == ("journal" if kind == "ext4" else "clone")
    after = {key.removeprefix(LONGER[1]): tensor for key, tensor in tensors_of(path).items()}
    assert after.keys() == {key.removeprefix("module.") for key in was}
    assert all(torch.equal(after[key.removeprefix("module.")], tensor) for key, tensor in was.items())
    assert [undo(path)[0] for _ in every] == [0 for _ in every]
    assert sha(path) == before
    assert os.listdir(place) == [name]


@WAYS
@pytest.mark.parametrize("name", NAMES)
def test_files_whose_writer_is_killed_are_old_new_or_interrupted(name, options, mounted, place):
    """In the middle of each of its writes; undo restores what is interrupted, which a clone never is."""
    if (mounted[0], name, options) == ("btrfs", "model.pth", LONGER):
        pytest.skip("Btrfs inserts no blocks")
    path = model(place, name)
    before = path.read_bytes()
    assert fix(path, *options)[0] == 0
    new = path.read_bytes()
    assert undo(path)[0] == 0
    for calls in itertools.count():
        if not is_killed(path, calls, *options):
            break
        if "interrupted" in undo(path, "--list")[1]:
            assert mounted[0] == "ext4"
            assert undo(path)[0] == 0
            assert path.read_bytes() == before
        assert path.read_bytes() in (before, new)
        path.write_bytes(before)
        for left in place.glob(".*"):
            left.unlink()
    assert calls >= 2
    assert undo(path)[0] == 0
    assert path.read_bytes() == before


@WAYS
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_folders_whose_writer_is_killed_are_old_or_interrupted(kind, options, place):
    """In each write: all shards and the index are old, or their one journal restores all of them."""
    folder = shards(place / "m", kind)
    before = bytes_in(folder)
    for calls in itertools.count():
        if not is_killed(folder, calls, *options):
            break
        if (folder / ".ckptdoctor-hot").exists():
            assert undo(folder)[0] == 0
        for left in folder.glob(".*"):  # of a journal that was not complete
            left.unlink()
        assert bytes_in(folder) == before
    assert calls >= 4
    assert undo(folder)[0] == 0
    assert bytes_in(folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_the_old_file_or_the_new_one(name, mounted, place):
    """With room for less and less."""
    path = model(place, name)
    before, filler = path.read_bytes(), place / "filler"
    refused = 0
    with open(filler, "wb", buffering=0) as file:
        for piece in (1 << 20, 1 << 16, 1 << 12, 1 << 9):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                os.fsync(file.fileno())
            status, said = fix(path, *LONGER)
            if status:
                refused += 1
                assert "pace" in said or "new names need more room" in said
                assert path.read_bytes() == before
                assert sorted(os.listdir(place)) == sorted(["filler", name])
            else:
                assert undo(path)[0] == 0
                assert path.read_bytes() == before
    assert refused or mounted[0] == "btrfs"  # which keeps some for itself
