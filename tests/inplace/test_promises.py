"""The promises of docs/in-place.md, each with the test that is named after it; that of crashes is in test_crashes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

import ckptdoctor
from ckptdoctor.inplace import changing, guards
from ckptdoctor.inplace.disk import SystemDisk, _fallocate
from ckptdoctor.repair import plan
from tests.commands import run_here
from tests.repair.checkpoints import every_way

# a zip archive, safetensors, and what torch wrote before 1.6, with room that an earlier fix in place left
NAMES = ["model.pt", "model.safetensors", "model.pth"]
LONGER = ("--add-prefix", "a.much.longer.prefix.than.there.is.room.for.in.front.of.these.tensors.")
SHORTER = ("--strip-module",)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of one model in all formats."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(1)
    tensors = {f"module.layer{number}.weight": torch.randn(40, 50) for number in range(5)}
    save(tensors, folder / "model.pt")
    save(tensors, folder / "model.safetensors")
    save({LONGER[1] + name: tensor for name, tensor in tensors.items()}, folder / "model.pth")
    assert "changed model.pth in place" in fix(folder / "model.pth", "--strip-prefix", LONGER[1])[1]
    return {name: (folder / name).read_bytes() for name in NAMES}


def save(tensors, path):
    """Save in the format that the suffix stands for."""
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
    else:
        torch.save(tensors, path, _use_new_zipfile_serialization=path.suffix == ".pt")


@pytest.fixture(params=NAMES)
def path(request, saved, tmp_path):
    """A copy of one of them."""
    (tmp_path / request.param).write_bytes(saved[request.param])
    return tmp_path / request.param


@pytest.fixture
def zipped(saved, tmp_path):
    """The archive alone, for what does not depend on the format."""
    (tmp_path / "model.pt").write_bytes(saved["model.pt"])
    return tmp_path / "model.pt"


def fix(path, *options):
    """``fix --in-place``: the status and what it says."""
    done = run_here("fix", path.name, "--in-place", *options, cwd=path.parent)
    return done.returncode, (done.stdout + done.stderr).decode()


def undo(path, *options):
    """``undo``: the same."""
    done = run_here("undo", path.name, *options, cwd=path.parent)
    return done.returncode, (done.stdout + done.stderr).decode()


def sha(path):
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tensors_of(path):
    """What torch or safetensors load, copied: the latter maps the file."""
    found = safetensors.torch.load_file(path) if path.suffix == ".safetensors" else torch.load(path)
    return {name: tensor.clone() for name, tensor in found.items()}


def refused(path, *options):
    """The reason of a refusal, after which nothing is different and nothing was left behind."""
    before, names = path.read_bytes(), sorted(os.listdir(path.parent))
    status, said = fix(path, *SHORTER, *options)
    assert status == 1
    assert said.startswith("refused")
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == names
    return said


# ---- 1: after a crash the old or the new file; an interrupted one is never healthy


class Stopped(SystemDisk):
    """The system, in which the process is killed after so many calls that write."""

    def __init__(self, calls):
        self.calls = calls

    def pwrite(self, fd, data, offset):
        self.calls -= 1
        if self.calls < 0:
            middle = (offset + len(data) // 2) // 512 * 512  # the kernel copies whole pages, a device writes sectors
            super().pwrite(fd, data[: max(middle - offset, 0)], offset)
            os._exit(9)
        super().pwrite(fd, data, offset)


def is_killed(path, calls, *options):
    """Fix in a child process that dies in the middle of a write: whether it came so far."""
    child = os.fork()
    if not child:
        from ckptdoctor.repair import in_place

        in_place.SystemDisk = lambda: Stopped(calls)
        fix(path, *options)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def killed(path, *options, calls=1):
    """The same, and it did; the first write is that of the journal."""
    assert is_killed(path, calls, *options)


@pytest.mark.parametrize("options", [SHORTER, LONGER], ids=["shorter", "longer"])
def test_a_file_with_a_hot_journal_is_called_interrupted_and_undo_restores_it(path, options):
    """By every command that opens it, and by load; with the command that finishes the roll-back."""
    before = path.read_bytes()
    killed(path, *options)
    command = f"ckptdoctor undo {path.name}"
    report = json.loads(run_here("check", path.name, "--format", "json", cwd=path.parent).stdout)
    (finding,) = report["files"][0]["findings"]
    assert (finding["code"], finding["severity"], finding["commands"]) == ("F018", "error", [command])
    for line in (["show", path.name], ["fix", path.name], ["seal", path.name], ["salvage", path.name, "-o", "out.pt"]):
        done = run_here(*line, cwd=path.parent)
        assert done.returncode in (1, 2)
        assert command in (done.stdout + done.stderr).decode()
    with pytest.raises(ckptdoctor.DamagedError, match="ckptdoctor undo"):
        ckptdoctor.load(path)
    assert "interrupted" in fix(path, *options)[1]
    assert "interrupted" in undo(path, "--list")[1]
    assert undo(path) == (0, undo_text(path, options))
    assert path.read_bytes() == before
    assert run_here("show", path.name, cwd=path.parent).returncode == 0


def undo_text(path, options):
    """What undo says of an interrupted change."""
    what = "strip what training wrappers put before keys" if options == SHORTER else f'put "{options[1]}" before keys'
    return f"restored {path.name} as it was before the interrupted change ({what})\n"


def test_killed_while_the_journal_is_written_nothing_has_changed(path):
    """What is left is no journal yet."""
    before = path.read_bytes()
    killed(path, *SHORTER, calls=0)
    assert path.read_bytes() == before
    assert run_here("show", path.name, cwd=path.parent).returncode == 0
    assert fix(path, *SHORTER)[0] == 0


# ---- 2: bytes of tensors are never written unless the edit is about them


@pytest.mark.parametrize("options", [SHORTER, LONGER], ids=["shorter", "longer"])
def test_bytes_of_tensors_are_never_written(path, options, monkeypatch):
    """Every write is compared with where the tensors are; where the file system cannot shift, the first one moves."""
    writes = []
    monkeypatch.setattr(
        SystemDisk, "pwrite", lambda self, fd, data, at: (writes.append((at, len(data))), os.pwrite(fd, data, at))
    )
    before = tensors_of(path)
    status, said = fix(path, *options)
    assert status == 0
    after = tensors_of(path)
    new = {(name.removeprefix("module.") if options == SHORTER else options[1] + name): t for name, t in before.items()}
    assert after.keys() == new.keys()
    assert all(torch.equal(after[name], new[name]) for name in new)
    assert "5 storages not written (nor re-read)" in said or "moved to the end and compared" in said
    if path.suffix == ".pt":
        assert all(torch.equal(way()[name], new[name]) for way in every_way(path) for name in new)
        assert torch.load(path, map_location="meta").keys() == new.keys()
    assert len(writes) < 10
    assert "byte-identical" not in said


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tensors_that_move_are_not_taken_for_a_shift(count, tmp_path, monkeypatch):
    """Where the file system cannot shift, and those that move are as many bytes as those that stay, or all."""
    monkeypatch.setattr(plan, "block_to_insert", lambda disk, folder: None)
    path = tmp_path / "model.safetensors"
    save({f"module.layer{number}": torch.full((1024,), float(number)) for number in range(count)}, path)
    before = path.read_bytes()
    assert "moved to the end and compared" in fix(path, *LONGER)[1]
    found = safetensors.torch.load(path.read_bytes())
    assert {name: tensor[0].item() for name, tensor in found.items()} == {
        f"{LONGER[1]}module.layer{number}": float(number) for number in range(count)
    }
    assert undo(path)[0] == 0
    assert path.read_bytes() == before


def test_compaction_is_refused_with_the_command_that_writes_a_new_file(tmp_path):
    """Two slices of one storage, most of which nobody shows."""
    path, values = tmp_path / "model.pt", torch.zeros(10_000)
    torch.save({"v": values[:3], "w": values[2:9]}, path)
    before = path.read_bytes()
    status, said = fix(path, "--clone-shared")
    assert (status, "-o model.fixed.pt" in said) == (1, True), said
    assert path.read_bytes() == before


def test_edits_of_values_are_refused_with_the_command_that_writes_a_new_file(path):
    """A cast, and tensors that are left out."""
    for options in (("--dtype", "bf16"), ("--drop", "module.layer3.weight")):
        before = path.read_bytes()
        status, said = fix(path, *options)
        out = f"{path.stem}.fixed{path.suffix}"
        assert status == 1
        assert f"ckptdoctor fix {path.name}" in said
        assert f"-o {out}" in said
        assert path.read_bytes() == before


# ---- 3: the journal is there first, and one that does not match is never replayed


def test_a_journal_that_does_not_match_is_never_replayed(path):
    """Whether the file changed in a byte that the fix wrote, in its time alone, or is another file."""
    before = path.read_bytes()
    assert fix(path, *SHORTER)[0] == 0
    after, times = path.read_bytes(), os.stat(path)
    place = after.index(b"layer3.weight")
    for data in (after[:place] + b"L" + after[place + 1 :], after, before):
        path.write_bytes(data)
        if data != after:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        status, said = undo(path)
        assert status == 1
        assert "cannot be undone" in said
        assert path.read_bytes() == data
    path.write_bytes(after)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert undo(path)[0] == 0
    assert path.read_bytes() == before


def test_an_interrupted_file_that_somebody_replaced_is_left_alone(zipped):
    """One that another program wrote into, and another file under the same name: a later save of the same model."""
    killed(zipped, *LONGER)
    half = zipped.read_bytes()
    zipped.write_bytes(half[:-9] + b"X" + half[-8:])
    for _ in range(2):
        left = zipped.read_bytes()
        status, said = undo(zipped)
        assert status == 1
        assert "not the file that was being fixed" in said
        assert zipped.read_bytes() == left
        zipped.rename(zipped.with_name("away.pt"))
        save({f"module.layer{number}.weight": torch.randn(40, 50) for number in range(5)}, zipped)


@pytest.mark.parametrize("options", [SHORTER, LONGER], ids=["shorter", "longer"])
def test_a_copy_of_an_interrupted_file_and_its_journal_is_restored(path, options):
    """By the command that check prints for it, and the first one stays as it is until it is restored itself."""
    before = path.read_bytes()
    killed(path, *options)
    half = path.read_bytes()
    shutil.copytree(path.parent, path.parent / "copy")
    copy = path.parent / "copy" / path.name
    assert (
        f"ckptdoctor undo copy/{path.name}" in run_here("check", f"copy/{path.name}", cwd=path.parent).stdout.decode()
    )
    assert undo(copy) == (0, undo_text(path, options))
    assert (copy.read_bytes(), path.read_bytes()) == (before, half)
    assert not list(copy.parent.glob(".*hot*"))
    assert undo(path)[0] == 0
    assert path.read_bytes() == before


def test_a_damaged_journal_is_never_replayed(zipped):
    """One bit is enough."""
    assert fix(zipped, *SHORTER)[0] == 0
    (journal,) = zipped.parent.glob(".*undo*")
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)
    after = zipped.read_bytes()
    assert "is damaged, so nothing is restored from it" in undo(zipped)[1]
    assert zipped.read_bytes() == after


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "../victim.pt"}, "is damaged"),
        ({"name": "/etc/passwd"}, "is damaged"),
        ({"name": "victim.pt"}, "is not about model.pt"),
        ({"kept": [[-1, 2, ""]]}, "is damaged"),
        ({"kept": [[0, 1 << 62, ""]]}, "is damaged"),
        ({"samples": [[0, 1 << 50, ""]]}, "is damaged"),
        ({"old": [1 << 70, 0]}, "is damaged"),
        ({"runs": 7}, "is damaged"),
        ({"name": None}, "is damaged"),
    ],
    ids=str,
)
def test_a_journal_of_a_stranger_is_not_believed(zipped, change, said):
    """Its checksum is right; it names another file, or says what no change in place says."""
    assert fix(zipped, *SHORTER)[0] == 0
    victim = shutil.copy(zipped, zipped.with_name("victim.pt"))
    (journal,) = zipped.parent.glob(".*undo*")
    data = journal.read_bytes()
    head = data.index(b"\n") + 9  # behind the length
    length = int.from_bytes(data[head - 8 : head], "little")
    held = json.loads(data[head : head + length])
    held["files"][0].update(change)
    text = json.dumps(held).encode()
    made = data[: head - 8] + len(text).to_bytes(8, "little") + text + data[head + length : -32]
    journal.write_bytes(made + hashlib.sha256(made).digest())
    after = zipped.read_bytes()
    assert said in undo(zipped)[1]
    assert said in undo(zipped, "--list")[1]
    assert zipped.read_bytes() == Path(victim).read_bytes() == after


# ---- 4: space is reserved first


def test_a_full_disk_leaves_the_old_file(path, monkeypatch):
    """Wherever space is asked for; ``test_a_full_tmpfs_leaves_the_old_file`` does it for real."""
    names, data, time = sorted(os.listdir(path.parent)), path.read_bytes(), os.stat(path).st_mtime_ns
    number = 0
    while True:
        left = [number]

        def full(self, fd, offset, length, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(SystemDisk, "reserve", full)
        status, said = fix(path, *LONGER)
        if status == 0:
            assert number >= 2
            return
        assert "Not enough disk space" in said
        assert (sorted(os.listdir(path.parent)), path.read_bytes(), os.stat(path).st_mtime_ns) == (names, data, time)
        number += 1


def test_a_disk_without_room_for_another_file_is_told_so(path, monkeypatch):
    """XFS says so before anything can be tried."""

    def full(self, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SystemDisk, "create", full)
    assert "Nothing can be fixed in place in" in refused(path)
    assert "No space left on device" in refused(path)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting takes root")
def test_a_full_tmpfs_leaves_the_old_file(saved, tmp_path):
    """With room for the file, and for nothing else."""
    room = tmp_path / "room"
    room.mkdir()
    size = -(-len(saved["model.pt"]) // 4096) * 4096
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", room], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed")
    try:
        for name in NAMES:
            (room / name).write_bytes(saved[name])
            status, said = fix(room / name, *LONGER)
            assert status == 1
            assert "Not enough disk space" in said
            assert sorted(os.listdir(room)) == [name]
            assert (room / name).read_bytes() == saved[name]
            (room / name).unlink()
    finally:
        subprocess.run(["umount", room], check=True)


# ---- 5: undo restores the original SHA-256, is idempotent, and repairs stack


def test_undo_restores_the_original_sha_256_one_change_after_another(path):
    """With the time of the last change; at the end there is nothing to undo, and no journal."""
    sums, times = [sha(path)], [os.stat(path).st_mtime_ns]
    for options in (SHORTER, LONGER, ("--rename", "layer=block"), ("--strip-prefix", LONGER[1])):
        assert fix(path, *options)[0] == 0
        sums.append(sha(path))
        times.append(os.stat(path).st_mtime_ns)
    listed = undo(path, "--list")[1].splitlines()
    assert [line.split(" · ")[0] for line in listed] == ["change 4", "change 3", "change 2", "change 1"]
    assert [each["number"] for each in json.loads(undo(path, "--list", "--format", "json")[1])["changes"]] == [
        4,
        3,
        2,
        1,
    ]
    for number in (3, 2, 1, 0):
        assert undo(path)[0] == 0
        assert (sha(path), os.stat(path).st_mtime_ns) == (sums[number], times[number])
    assert "nothing to undo" in undo(path)[1]
    assert os.listdir(path.parent) == [path.name]


def test_undo_says_what_it_did_as_json(zipped):
    """And what it refused."""
    fix(zipped, *SHORTER)
    after = zipped.read_bytes()
    zipped.write_bytes(after + b"x")
    assert json.loads(undo(zipped, "--format", "json")[1])["status"] == "refused"
    assert undo(zipped.with_name("gone.pt"))[0] == 2


def test_a_fix_in_place_says_what_it_wrote_as_json(zipped):
    """The bytes that went into the file and its journal, and how many storages were left alone."""
    told = json.loads(fix(zipped, *SHORTER, "--format", "json")[1])
    assert told["status"] == "repaired"
    assert told["output"] == zipped.name
    assert told["in_place"]["storages_not_written"] == 5
    assert told["in_place"]["bytes_written"] < 2000
    assert told["in_place"]["means"] in ("journal", "clone")


def test_diff_in_place_writes_nothing(zipped):
    """It is a plan."""
    before = zipped.read_bytes()
    assert fix(zipped, *SHORTER, "--diff")[0] == 0
    assert zipped.read_bytes() == before
    assert fix(zipped, *SHORTER, "-o", "other.pt")[0] == 2


# ---- 6: refuses with a reason


def test_hard_links_are_refused(zipped):
    """All names would change."""
    os.link(zipped, zipped.with_name("other.pt"))
    assert "2 names (hard links)" in refused(zipped)


@pytest.mark.parametrize("length", [40, 64])
def test_files_named_by_their_hash_are_refused(zipped, length):
    """As in the caches of Hugging Face and Git LFS."""
    named = zipped.rename(zipped.with_name("5a" * (length // 2)))
    assert "named by the hash of its contents" in refused(named)


def test_symbolic_links_are_refused_with_the_name_of_the_file(zipped):
    """Whoever names the file itself has asked for it."""
    link = zipped.with_name("link.pt")
    link.symlink_to(zipped)
    assert f"--in-place {zipped}" in refused(link)
    assert fix(zipped, *SHORTER)[0] == 0


def test_a_locked_file_is_refused(zipped):
    """Another process may be writing it."""
    with open(zipped, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "locked by another process" in refused(zipped)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
@pytest.mark.parametrize("mapped", [False, True], ids=["open", "mapped"])
def test_a_file_that_is_open_or_mapped_elsewhere_is_refused(zipped, mapped):
    """With the name of the program."""
    code = (
        "import mmap, sys\n"
        "file = open(sys.argv[1], 'rb')\n"
        "view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if sys.argv[2] == 'True' else None\n"
        "if view is not None: file.close()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    line = [sys.executable, "-S", "-c", code, str(zipped), str(mapped)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert f"(process {other.pid})" in refused(zipped)
        other.communicate()


def test_file_systems_that_were_not_tested_are_refused_unless_forced(zipped, monkeypatch):
    """The message has both ways on."""
    monkeypatch.setattr(guards, "file_system", lambda path: "nfs4")
    said = refused(zipped)
    assert "is on nfs4, where fixing in place was not tested" in said
    assert "add --force" in said
    assert fix(zipped, *SHORTER, "--force")[0] == 0


def test_a_file_that_cannot_be_written_is_refused(zipped, monkeypatch):
    """Or whose folder cannot."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != zipped.name)
    assert "read-only" in refused(zipped)


def test_folders_of_one_file_and_packed_files_are_refused(zipped, saved):
    """With the command that writes a new file, or the name of the one that can be fixed."""
    import gzip

    packed = zipped.with_name("model.pt.gz")
    packed.write_bytes(gzip.compress(zipped.read_bytes()))
    assert "it is packed in an archive" in refused(packed)
    folder = zipped.with_name("folder")
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(saved["model.safetensors"])
    (folder / "config.json").write_text("{}")
    assert "Name that file: folder/model.safetensors" in fix(folder, *SHORTER)[1]
    assert (folder / "model.safetensors").read_bytes() == saved["model.safetensors"]


# ---- 7: rolling back can itself be killed


@pytest.mark.parametrize("options", [SHORTER, LONGER], ids=["shorter", "longer"])
def test_rolling_back_can_be_killed_and_started_again(path, options):
    """In the middle of its first write; the states of a machine that stops are those of test_crashes."""
    before = path.read_bytes()
    killed(path, *options)
    child = os.fork()
    if not child:
        from ckptdoctor.inplace import disk

        disk.SystemDisk = lambda calls=0: Stopped(0)
        undo(path)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert "interrupted" in undo(path, "--list")[1]
    assert undo(path)[0] == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("gap", [0, 4096, 8192, 28672, None], ids=str)
def test_a_shift_that_stopped_halfway_is_taken_back_by_the_file_system(saved, gap):
    """The size has grown, extents from ``gap`` on have moved, and there is a hole between; None: only the size has."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        if not hasattr(os, "pwrite") or guards.block_to_insert(SystemDisk(), folder) != 4096:
            pytest.skip("the file system cannot insert blocks of 4096 bytes")
        path = Path(folder) / "model.safetensors"
        path.write_bytes(saved[path.name])
        if guards.file_system(folder) != "ext4":
            pytest.skip("where the file system clones, nothing is shifted in place")
        fd = os.open(path, os.O_RDWR)
        child = os.fork()
        if not child:  # it dies in the call that would insert
            SystemDisk.insert = lambda self, fd, length: os._exit(9) if path.samefile(f"/proc/self/fd/{fd}") else None
            guards.block_to_insert = plan.block_to_insert = lambda disk, folder: 4096
            guards.opened_by = lambda path: []
            fix(path, *LONGER)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        if gap is None:
            os.truncate(path, len(saved[path.name]) + 4096)
        else:
            _fallocate(fd, 0x20, gap, 4096)
        os.close(fd)
        assert path.read_bytes() != saved[path.name]
        assert undo(path)[0] == 0
        assert path.read_bytes() == saved[path.name]


# ---- 8: O(header)


def test_a_fix_in_place_of_a_large_file_writes_no_more_than_its_header(path):
    """A hundred times the values take no more writing, as the system counts it; benchmarks/inplace.py has 100 GB."""
    wrote = []
    for size in (1, 100):
        tensors = {f"module.layer{number}.weight": torch.zeros(1000 * size) for number in range(5)}
        save(tensors, path)
        before = written_so_far()
        assert fix(path, *SHORTER)[0] == 0
        wrote.append(written_so_far() - before)
    assert wrote[1] < wrote[0] + 1000


def written_so_far():
    """Bytes that this process handed to write calls."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["wchar"])


# ---- readers meanwhile


def test_a_reader_that_maps_the_file_sees_its_tensors_where_they_were(zipped, monkeypatch):
    """Storages of an archive stay at their offsets; who maps it forced is not hurt."""
    monkeypatch.setattr(guards, "opened_by", lambda path: [])
    tensors = torch.load(zipped, mmap=True)
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    with open(zipped, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert fix(zipped, *LONGER)[0] == 0
    assert all(torch.equal(tensors[name], copies[name]) for name in copies)


def test_what_is_not_verified_is_restored(path, monkeypatch):
    """A fault of the disk, say: what was read back differs."""
    before = path.read_bytes()
    real = changing._write

    def wrong(disk, fd, change, record):
        real(disk, fd, change, record)
        os.pwrite(fd, change.writes[0].data[:-1] + b"?", change.writes[0].at)

    monkeypatch.setattr(changing, "_write", wrong)
    status, said = fix(path, *SHORTER)
    assert status == 1
    assert "differs from the plan" in said
    assert path.read_bytes() == before


def test_the_journal_restores_even_after_a_write_that_failed_halfway(path, monkeypatch):
    """An error of the system is told, and the file is as it was."""
    before, time = path.read_bytes(), os.stat(path).st_mtime_ns
    real, calls = SystemDisk.pwrite, [0]

    def failing(self, fd, data, at):
        calls[0] += 1
        if calls[0] == 2:
            real(self, fd, data[:100], at)
            raise OSError(errno.EIO, "Input/output error")
        real(self, fd, data, at)

    monkeypatch.setattr(SystemDisk, "pwrite", failing)
    status, said = fix(path, *LONGER)
    assert status == 1
    assert "could not be fixed in place" in said
    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == (before, time)
    assert os.listdir(path.parent) == [path.name]
