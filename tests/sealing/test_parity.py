"""Parity of real files: what is lost within the bound comes back to the last bit, and beyond it nothing is written."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ckptdoctor
from ckptdoctor.errors import (
    CkptDoctorError,
    DamagedError,
    MissingPackageError,
    RefusedError,
    UnreadableError,
    UsageError,
    WriteError,
)
from ckptdoctor.sealing.parity.layout import laid_out
from tests.commands import run_here

pytest.importorskip("zfec")

BLOCK = 4096


@pytest.fixture
def path(tmp_path):
    """A file of 300 blocks in two groups, and its parity of 1 %."""
    path = tmp_path / "model.pt"
    torch.save({"a": torch.arange(299 * 1024.0), "b": torch.ones(900)}, path)
    ckptdoctor.seal(path, parity="1%")
    return path


def layout_of(path, percent=1.0):
    """How it is laid out."""
    return laid_out(path.stat().st_size, percent)


def wipe(path, start, stop):
    """Put other bytes there."""
    with open(path, "r+b") as file:
        file.seek(start)
        was = file.read(stop - start)
        file.seek(start)
        file.write(bytes(each ^ 0x5A for each in was))


def parity_place(path, number):
    """Where a block of parity begins in its file."""
    layout = layout_of(path)
    size = (path.parent / f"{path.name}.parity").stat().st_size
    return (size - 26 - layout.parities * BLOCK) // 2 + number * BLOCK


@st.composite
def cases(draw):
    """A size, a share, and a seed of bytes."""
    size = draw(st.integers(1, 60) | st.integers(1, 70 * BLOCK) | st.integers(250 * BLOCK, 600 * BLOCK))
    return size, draw(st.sampled_from([0.5, 1.0, 2.5, 10.0, 100.0])), draw(st.integers(0, 1 << 30))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all examples."""
    return tmp_path_factory.mktemp("parity")


def sealed(folder, size, percent, seed):
    """A file of random bytes with its parity, and what it was."""
    for each in folder.iterdir():
        each.unlink()
    path = folder / "file.bin"
    raw = random.Random(seed).randbytes(size)
    path.write_bytes(raw)
    ckptdoctor.seal(path, parity=f"{percent}%")
    return path, raw


def rebuilt(path):
    """The bytes that come of it."""
    report = ckptdoctor.rebuild(path)
    assert report.written or not report.changes
    return (path.parent / report.output).read_bytes() if report.written else path.read_bytes()


@settings(max_examples=20)
@given(cases(), st.data())
def test_whatever_is_lost_within_the_bound_of_each_group_comes_back(folder, case, data):
    """Blocks of the file and of its parity, as many of each group as it has parity."""
    path, raw = sealed(folder, *case)
    layout = laid_out(case[0], case[1])
    chosen = random.Random(data.draw(st.integers(0, 1 << 30)))
    place = parity_file_start(path, layout)
    for group in range(layout.groups):
        here = [(path, each * layout.block, layout.length(each)) for each in layout.members(group)]
        parity = path.with_name("file.bin.parity")
        here += [
            (parity, place + each * layout.block, layout.block) for each in range(group, layout.parities, layout.groups)
        ]
        for file, start, length in chosen.sample(here, min(layout.parity, len(here))):
            at = start + chosen.randrange(length)
            wipe(file, at, min(at + chosen.choice([1, 600, length]), start + length))
    assert rebuilt(path) == raw


def parity_file_start(path, layout):
    """Where its blocks are."""
    size = path.with_name(path.name + ".parity").stat().st_size
    return (size - 26 - layout.parities * layout.block) // 2


@settings(max_examples=20)
@given(cases(), st.data())
def test_a_run_within_the_bound_comes_back_wherever_it_is(folder, case, data):
    """A tail that is cut off as well."""
    path, raw = sealed(folder, *case)
    run = min(laid_out(case[0], case[1]).run, len(raw))
    if data.draw(st.booleans()):
        path.write_bytes(raw[: len(raw) - data.draw(st.integers(0, run))])
    else:
        start = data.draw(st.integers(0, len(raw) - run))
        wipe(path, start, start + run)
    assert rebuilt(path) == raw


@settings(max_examples=20)
@given(cases(), st.data())
def test_one_block_more_than_a_group_has_parity_is_always_refused(folder, case, data):
    """And nothing is written."""
    layout = laid_out(case[0], case[1])
    if len(layout.members(0)) <= layout.parity:
        return
    path, _ = sealed(folder, *case)
    group = data.draw(st.integers(0, layout.groups - 1).filter(lambda each: len(layout.members(each)) > layout.parity))
    chosen = random.Random(data.draw(st.integers(0, 1 << 30)))
    for block in chosen.sample(list(layout.members(group)), layout.parity + 1):
        wipe(path, block * layout.block, block * layout.block + 1)
    with pytest.raises(RefusedError, match=rf"{layout.parity + 1} of {layout.blocks:,} blocks are lost.* none of them"):
        ckptdoctor.rebuild(path)
    assert not path.with_name("file.rebuilt.bin").exists()


@settings(max_examples=20)
@given(st.data())
def test_a_parity_file_that_is_damaged_anywhere_never_gives_another_file(folder, data):
    """It rebuilds the same file, or is refused."""
    path, raw = sealed(folder, 100 * BLOCK, 2.5, 1)
    parity = path.with_name("file.bin.parity")
    kept = bytearray(parity.read_bytes())
    if data.draw(st.booleans()):
        kept[data.draw(st.integers(0, len(kept) - 1))] = data.draw(st.integers(0, 255))
    else:
        del kept[data.draw(st.integers(0, len(kept) - 1)) :]
    parity.write_bytes(kept)
    wipe(path, 5 * BLOCK, 6 * BLOCK)
    try:
        made = rebuilt(path)
    except CkptDoctorError as error:
        assert "file.bin" in error.message
    else:
        assert made == raw


@given(st.floats(0.5, 100.0), st.integers(1, 1 << 40))
def test_parity_is_as_large_as_was_asked_for(percent, size):
    """Rounded up to whole blocks, and at most a tenth more; small shares of large files take the least there is."""
    layout = laid_out(size, percent)
    wanted = layout.blocks * percent / 100
    least = layout.blocks / (256 - layout.parity) * layout.parity
    assert wanted <= layout.parities + 0.001 * layout.blocks
    assert layout.parities <= max(1.1 * (wanted + 8), 1.1 * (least + 8))
    assert layout.data + layout.parity <= 256 and layout.block <= 1 << 20


def test_verify_says_what_is_lost_and_with_which_command_it_is_rebuilt(path):
    """The command works as it is printed."""
    assert run_here("verify", "model.pt", cwd=path.parent).returncode == 0
    was = path.read_bytes()
    wipe(path, 50_000, 52_000)
    printed = run_here("verify", "model.pt", cwd=path.parent)
    assert printed.returncode == 1
    assert b"parity    can rebuild all that is lost, 1 of 301 blocks\nnext \xc2\xb7 ckptdoctor rebuild model.pt" in (
        printed.stdout
    ), printed.stdout
    done = run_here("rebuild", "model.pt", cwd=path.parent)
    assert done.returncode == 0 and b"bytes 49,152 to 53,247" in done.stdout, done.stdout
    assert path.with_name("model.rebuilt.pt").read_bytes() == was


def test_beyond_the_bound_it_says_how_much_is_lost_and_how_much_can_be_rebuilt(path):
    """verify, and rebuild, which ends with 1."""
    wipe(path, 0, 5 * BLOCK)
    printed = run_here("verify", "model.pt", cwd=path.parent)
    assert b"too much is lost: 5 of 301 blocks, of which 2 can be rebuilt" in printed.stdout, printed.stdout
    done = run_here("rebuild", "model.pt", cwd=path.parent)
    assert (
        done.returncode == 1 and b"5 of 301 blocks are lost" in done.stderr and b"can rebuild 2 of them" in done.stderr
    )
    assert sorted(each.name for each in path.parent.iterdir()) == ["model.pt", "model.pt.parity", "model.pt.seal.json"]


def test_nothing_is_rebuilt_where_nothing_is_lost(path):
    """The file has its SHA-256."""
    report = ckptdoctor.rebuild(path)
    assert not report.changes and report.output is None
    assert report.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_grew_is_cut(path):
    """Its blocks are intact."""
    was = path.read_bytes()
    path.write_bytes(was + b"more")
    report = ckptdoctor.rebuild(path)
    assert not report.losses.lost and path.with_name("model.rebuilt.pt").read_bytes() == was


def test_the_original_is_replaced_only_if_asked(path):
    """--force with its own name."""
    was = path.read_bytes()
    wipe(path, 0, 10)
    with pytest.raises(WriteError, match="is the original itself"):
        ckptdoctor.rebuild(path, path)
    ckptdoctor.rebuild(path, path, force=True)
    assert path.read_bytes() == was and ckptdoctor.verify(path).as_sealed


def test_with_diff_nothing_is_written(path):
    """It says what is lost."""
    wipe(path, 0, 10)
    report = ckptdoctor.rebuild(path, diff=True)
    assert report.changes and not report.written and report.losses.spans == ((0, BLOCK),)
    assert not path.with_name("model.rebuilt.pt").exists()


def test_damaged_parity_is_told_while_the_file_is_intact(path):
    """A block, a table, its end; the command that makes it again is printed and works."""
    parity = path.with_name("model.pt.parity")
    intact = parity.read_bytes()
    for damaged in (
        intact[: parity_place(path, 1)] + b"?" + intact[parity_place(path, 1) + 1 :],
        intact[:500] + b"?" + intact[501:],
        intact[:-40] + b"?" + intact[-39:],
        intact[:-1],
        b"?" + intact[1:],
    ):
        parity.write_bytes(damaged)
        printed = run_here("verify", "model.pt", cwd=path.parent)
        assert printed.returncode == 1
        assert b"is damaged. Write it again: ckptdoctor seal model.pt --parity 1% --force" in printed.stdout, (
            printed.stdout
        )
    assert run_here("seal", "model.pt", "--parity", "1%", "--force", cwd=path.parent).returncode == 0
    assert ckptdoctor.verify(path).as_sealed and parity.read_bytes() == intact


def test_either_table_is_enough(path):
    """With neither, the parity cannot be used, and that is said."""
    was = path.read_bytes()
    parity = path.with_name("model.pt.parity")
    wipe(path, 3 * BLOCK, 4 * BLOCK)
    kept = parity.read_bytes()
    parity.write_bytes(b"?" * 300 + kept[300:])
    assert rebuilt(path) == was
    path.with_name("model.rebuilt.pt").unlink()
    parity.write_bytes(kept[:-300])
    assert rebuilt(path) == was
    path.with_name("model.rebuilt.pt").unlink()
    parity.write_bytes(b"?" * 300 + kept[300:-300])
    with pytest.raises(DamagedError, match=r"model\.pt\.parity is not an intact parity file"):
        ckptdoctor.rebuild(path)
    (file,) = ckptdoctor.verify(path).files
    assert file.parity.trouble and not file.parity.rebuilds


def test_a_damaged_seal_keeps_nobody_from_rebuilding(path):
    """verify says how; the parity file has all that is needed, and says so."""
    was = path.read_bytes()
    seal = path.with_name("model.pt.seal.json")
    seal.write_bytes(seal.read_bytes()[:-100])
    wipe(path, 0, 10)
    printed = run_here("verify", "model.pt", cwd=path.parent)
    assert printed.returncode == 2 and b"ckptdoctor rebuild model.pt" in printed.stderr, printed.stderr
    report = ckptdoctor.rebuild(path)
    assert report.by.endswith("model.pt.parity") and path.with_name("model.rebuilt.pt").read_bytes() == was


def test_parity_of_another_file_is_refused(path, tmp_path):
    """A seal says what the file was: both must agree."""
    other = tmp_path / "other.pt"
    torch.save({"a": torch.arange(299 * 1024.0), "b": torch.zeros(900)}, other)
    ckptdoctor.seal(other, parity="1%")
    wipe(path, 0, 10)
    with pytest.raises(RefusedError, match="disagree about what"):
        ckptdoctor.rebuild(path, parity=other.with_name("other.pt.parity"))
    shutil.copy(other.with_name("other.pt.parity"), path.with_name("model.pt.parity"))
    (file,) = ckptdoctor.verify(path).files
    assert "belongs to another seal" in file.parity.trouble


def test_a_table_that_lies_about_the_whole_is_never_believed(path):
    """Its blocks match, its SHA-256 does not: what comes of it does not get its name."""
    parity = path.with_name("model.pt.parity")
    raw = parity.read_bytes()
    length = parity_place(path, 0)
    digest = hashlib.sha256(path.read_bytes()).hexdigest().encode()
    table = raw[: length - 32].replace(digest, b"0" * 64)
    table += hashlib.sha256(table).digest()
    parity.write_bytes(table + raw[length : -26 - length] + table + raw[-26:])
    path.with_name("model.pt.seal.json").unlink()
    wipe(path, 0, 10)
    with pytest.raises(RefusedError, match="nothing is proven"):
        ckptdoctor.rebuild(path)
    assert not path.with_name("model.rebuilt.pt").exists()


def test_a_folder_is_sealed_with_parity_of_each_file(tmp_path):
    """Parity is not a file of the model, and what changed is rebuilt by its own name."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "a.bin").write_bytes(random.Random(1).randbytes(200 * BLOCK))
    (folder / "empty").write_bytes(b"")
    made = ckptdoctor.seal(folder, parity="2%")
    assert len(made.parity) == 2 and len(made.seal.files) == 3
    assert ckptdoctor.verify(folder).as_sealed
    wipe(folder / "sub" / "a.bin", 0, 1)
    printed = run_here("verify", "model", cwd=tmp_path)
    assert b"ckptdoctor rebuild model/sub/a.bin" in printed.stdout, printed.stdout
    report = ckptdoctor.rebuild(folder / "sub" / "a.bin")
    assert report.by.endswith("ckptdoctor.seal.json") and report.written
    (folder / "config.json.parity").unlink()
    assert any(each.parity is not None and each.parity.missing for each in ckptdoctor.verify(folder).files)


def test_what_the_disk_cannot_read_is_lost(path, monkeypatch):
    """A block whose bytes give an error counts like one with other bytes."""
    from ckptdoctor.checkpoint import FileSource

    was, read = path.read_bytes(), FileSource.read

    def failing(self, offset, length):
        if self.file == str(path) and offset == 7 * BLOCK:
            raise OSError(5, "Input/output error")
        return read(self, offset, length)

    monkeypatch.setattr(FileSource, "read", failing)
    report = ckptdoctor.rebuild(path)
    assert report.losses.lost == (7,) and path.with_name("model.rebuilt.pt").read_bytes() == was


def test_what_cannot_be_is_refused_in_one_sentence(path, tmp_path, monkeypatch):
    """Shares, another manifest, no parity, zfec that is not installed."""
    for share in ("0.1%", "101%", "few"):
        with pytest.raises(UsageError, match=r"is not a share of the file. Use 0.5% to 100%"):
            ckptdoctor.seal(path, parity=share, force=True)
    with pytest.raises(UsageError, match="leave format= openssf out"):
        ckptdoctor.seal(path, format="openssf", parity="1%")
    with pytest.raises(WriteError, match=r"model\.pt\.(seal\.json|parity) already exists"):
        ckptdoctor.seal(path, parity="1%")
    path.with_name("model.pt.parity").rename(tmp_path / "elsewhere")
    with pytest.raises(UnreadableError, match="has no parity"):
        ckptdoctor.rebuild(path)
    assert not ckptdoctor.rebuild(path, parity=tmp_path / "elsewhere").changes
    monkeypatch.setitem(sys.modules, "zfec", None)
    with pytest.raises(MissingPackageError, match=r"pip install.* 'ckptdoctor\[parity\]'$"):
        ckptdoctor.seal(path, parity="1%", force=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_seal_that_is_interrupted_leaves_no_parity(tmp_path, monkeypatch, error):
    """Neither of the file that it was at, nor of those that were done; one that was there before stays usable."""
    from ckptdoctor.sealing.parity import make

    for name in ("a.bin", "b.bin", "c.bin"):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(100 * BLOCK))
    ckptdoctor.seal(tmp_path / "a.bin", parity="5%")
    (tmp_path / "a.bin.seal.json").unlink()
    parity_of, asked = make.parity_of, []

    def failing(*given):
        asked.append(given)
        if len(asked) > 2:
            raise error
        return parity_of(*given)

    monkeypatch.setattr(make, "parity_of", failing)
    with pytest.raises((KeyboardInterrupt, WriteError)):
        ckptdoctor.seal(tmp_path, parity="5%", force=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.bin", "a.bin.parity", "b.bin", "c.bin"]
    assert not ckptdoctor.rebuild(tmp_path / "a.bin").changes


@pytest.mark.slow
def test_thousands_of_damaged_files_come_back_or_are_refused(folder, scale):
    """Flipped bits, zeroed sectors, runs, cut ends and other ends at once: never another file than was sealed."""
    back = refused = 0
    for case, chosen in scale.cases(10_000, 20):
        size = chosen.choice([chosen.randrange(1, 20 * BLOCK), chosen.randrange(200 * BLOCK, 700 * BLOCK)])
        path, raw = sealed(folder, size, chosen.choice([0.5, 1.0, 3.0, 20.0]), case)
        for file in (path, path.with_name("file.bin.parity"))[: chosen.choice([1, 1, 2])]:
            for _ in range(chosen.randrange(4)):
                start = chosen.randrange(file.stat().st_size)
                wipe(file, start, start + chosen.choice([1, 512, BLOCK, chosen.randrange(1, 1 + size // 100)]))
        if not chosen.randrange(4):
            path.write_bytes(
                path.read_bytes()[: size - chosen.randrange(1 + size // 60)] + bytes(chosen.choice([0, 99]))
            )
        try:
            made = rebuilt(path)
        except (RefusedError, DamagedError):
            refused += 1
        else:
            assert made == raw, case
            back += 1
    assert back > refused > 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """A GB of nothing but zeros, and a fifth of it."""
    code = (
        "import resource, sys, ckptdoctor\n"
        "ckptdoctor.seal(sys.argv[1], parity='1%')\n"
        "with open(sys.argv[1], 'r+b') as file: file.seek(10**8); file.write(b'x' * 10**6)\n"
        "assert ckptdoctor.rebuild(sys.argv[1]).written\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for size in (200_000_000, 1_000_000_000):
        path = tmp_path / f"{size}.bin"
        with open(path, "wb") as file:
            file.truncate(size)
        # in a child of a small process: the system counts that of the parent at a fork as well
        typed = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code, path]
        done = subprocess.run(typed, capture_output=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.3 * peaks[0] and peaks[1] < 250_000, peaks


def test_whoever_listens_hears_how_far_it_is(path):
    """Each kind of work to its last byte: hashes and parity, comparing, rebuilding."""
    size = path.stat().st_size
    heard = []
    ckptdoctor.seal(path, parity="1%", force=True, progress=heard.append)
    assert {"hashing", "computing parity"} <= {each.what for each in heard if each.done == each.total == size}
    wipe(path, 0, 10)
    heard.clear()
    ckptdoctor.verify(path, progress=heard.append)
    assert {"hashing", "comparing blocks"} <= {each.what for each in heard if each.done == each.total == size}
    heard.clear()
    ckptdoctor.rebuild(path, progress=heard.append)
    done = {each.what for each in heard if each.done == each.total}
    assert {"comparing blocks", "rebuilding", "copying", "verifying"} <= done


def verified(path):
    """The status of ``verify``, and all that it says."""
    done = run_here("verify", path.name, cwd=path.parent)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_bytes_behind_the_end_are_cut_off_by_the_command_that_verify_names(path):
    """Though no block is lost; damage of the parity file is said as well."""
    was = path.read_bytes()
    path.write_bytes(was + b"more")
    status, text = verified(path)
    assert status == 1
    assert "  parity    no block is lost; rebuilding cuts off 4 bytes behind the end\nnext · ckptdoctor rebuild" in text
    parity = path.with_name("model.pt.parity")
    raw = bytearray(parity.read_bytes())
    raw[parity_place(path, 1)] ^= 1
    parity.write_bytes(raw)
    status, text = verified(path)
    assert "  parity    model.pt.parity is partly damaged as well\n  parity    no block is lost; " in text
    assert run_here("rebuild", "model.pt", cwd=path.parent).returncode == 0
    assert path.with_name("model.rebuilt.pt").read_bytes() == was


def test_parity_of_one_file_promises_nothing_of_another(tmp_path):
    """Where one file of a folder is damaged and another is missing, it is said of which all can be rebuilt."""
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("a.bin", "b.bin"):
        (folder / name).write_bytes(random.Random(name).randbytes(300 * BLOCK))
    ckptdoctor.seal(folder, parity="1%")
    (folder / "b.bin").unlink()
    wipe(folder / "a.bin", 0, 10)
    status, text = verified(folder)
    assert status == 1 and "  missing   b.bin" in text
    assert "  parity    can rebuild all that is lost of a.bin, 1 of 300 blocks\n" in text
    assert "next · ckptdoctor rebuild m/a.bin" in text
    assert run_here("rebuild", "m/a.bin", cwd=tmp_path).returncode == 0


def test_parity_that_cannot_be_opened_leaves_the_verdict(path):
    """As one that is missing does: the file and its seal are there."""
    parity = path.with_name("model.pt.parity")
    parity.unlink()
    parity.mkdir()
    status, text = verified(path)
    assert (status, "as sealed" in text, "parity    cannot be used: model.pt.parity" in text) == (0, True, True), text
    wipe(path, 0, 10)
    status, text = verified(path)
    assert (status, "not as sealed" in text, "parity    cannot be used: model.pt.parity" in text) == (1, True, True)


@pytest.mark.parametrize("suffix", ["parity", "seal.json"])
def test_neither_seal_nor_parity_is_replaced_by_a_checkpoint(path, suffix):
    """With --force, whichever command writes; what is damaged of the file can still be rebuilt and proven."""
    own = path.with_name(f"model.pt.{suffix}")
    kept = own.read_bytes()
    wipe(path, 0, 10)
    status = run_here("rebuild", "model.pt", "-o", own.name, "--force", cwd=path.parent)
    assert (status.returncode, b"Give another output path." in status.stderr) == (1, True)
    assert own.read_bytes() == kept
    assert run_here("rebuild", "model.pt", "-o", "model.pt", "--force", cwd=path.parent).returncode == 0
    for words in (["fix", "--dtype", "bfloat16"], ["salvage"], ["seal"]):
        if words == ["seal"] and suffix == "seal.json":
            continue
        done = run_here(*words, "model.pt", "-o", own.name, "--force", cwd=path.parent)
        assert done.returncode != 0 and b"Give another output path." in done.stdout + done.stderr, done
        assert own.read_bytes() == kept
    assert ckptdoctor.verify(path).as_sealed


def test_where_everything_is_lost_another_copy_is_asked_for(path):
    """graft would have nothing to begin with; the command that is named judges the copy."""
    was = path.read_bytes()
    path.write_bytes(b"")
    done = run_here("rebuild", "model.pt", cwd=path.parent)
    assert (done.returncode, b"301 of 301 blocks" in done.stderr, b"graft" in done.stderr) == (1, True, False)
    assert b"Nothing of it is intact, so it takes another copy of the whole file." in done.stderr
    path.write_bytes(was)
    done = run_here(*done.stderr.decode().split("ckptdoctor ")[-1].split(), cwd=path.parent)
    assert (done.returncode, b"nothing to do" in done.stdout) == (0, True)
