"""Of pickles, tar archives, and large files in these, no more is unpacked than their headers; the same is found."""

from __future__ import annotations

import base64
import gzip
import io
import os
import pickle
import random
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.diagnose.events import Finished
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import CkptDoctorError, RefusedError
from ckptdoctor.examine import file as diagnose
from ckptdoctor.formats.packed import scratch, thin, unpacking
from tests.formats.arrays.pickled.joblib_writer import joblib_bytes
from tests.formats.packed.test_front import clean, unpacked
from tests.formats.packed.test_passage import told
from tests.formats.torch.tar.support import tar_bytes
from tests.planted import Call

__all__ = ["clean"]

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.filterwarnings("ignore:TypedStorage")]

LONG = 300_000  # elements of a tensor: 1.2 MB that nothing makes smaller


@pytest.fixture
def filled(monkeypatch):
    """How often all of a file had to be unpacked after all."""
    times = []
    usual = thin.Thin._fill
    monkeypatch.setattr(thin.Thin, "_fill", lambda self: (times.append(self), usual(self)))
    return times


def weights(seed=0, count=3):
    noise = torch.Generator().manual_seed(seed)
    return {f"module.layer{index}.weight": torch.randn(LONG // 500, 500, generator=noise) for index in range(count)}


def before_1_6(state):
    made = io.BytesIO()
    torch.save(state, made, _use_new_zipfile_serialization=False)
    return made.getvalue()


def archive(members, mode="w", **others):
    made = io.BytesIO()
    if mode == "w:gz":  # noise does not become smaller by trying harder
        others.setdefault("compresslevel", 1)
    with tarfile.open(fileobj=made, mode=mode, **others) as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def arrays(state):
    return {key: value.numpy() for key, value in state.items()}


KINDS = {
    "arrays.pkl": lambda: pickle.dumps(arrays(weights()), 4),
    "buffers.pkl": lambda: pickle.dumps(arrays(weights()), 5),
    "joblib.pkl": lambda: joblib_bytes(arrays(weights())),
    "m.safetensors": lambda: save(weights()),
    "legacy.pt": lambda: before_1_6(weights()),
    "old.tar": lambda: tar_bytes(weights()),
}


def taken():
    """Bytes that the files in the temporary folder take on the disk."""
    folder = scratch._SCRATCH.folder
    return 0 if folder is None else sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in unpacked())


def same(path):
    """What is told of a file with and without the parts that are not unpacked: it must be the same."""
    for deep in (False, True):
        found = told(diagnose.check(str(path), Settings(deep=deep, unpack=False)))
        scratch.remove()
        whole = told(diagnose.check(str(path), Settings(deep=deep, unpack=True)))
        scratch.remove()
        assert found == whole
    return found


@pytest.mark.parametrize("deep", [False, True], ids=["headers", "deep"])
@pytest.mark.parametrize("name", KINDS)
def test_values_are_not_written_anywhere(name, deep, tmp_path, filled):
    """Neither for headers nor where all values are read; what is found is what is found in the file itself."""
    data = KINDS[name]()
    (tmp_path / name).write_bytes(data)
    plain = ckptdoctor.check(tmp_path / name, deep=deep)
    packings = {".tar.gz": lambda: archive({f"run/{name}": data}, "w:gz"), ".gz": lambda: gzip.compress(data, 1)}
    for ending in packings if name.endswith((".pkl", ".tar")) else [".tar.gz"]:
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(packings[ending]())
        report = ckptdoctor.check(path, deep=deep)
        assert {each.code for each in report.findings} == {each.code for each in plain.findings} | {"C102"}
        assert [each.shape for each in report.checkpoint.tensors] == [(LONG // 500, 500)] * 3
        assert [each.what for each in report.skipped] == [each.what for each in plain.skipped]
        assert all(each.complete for each in report.readings) and len(report.readings) == 2 * deep
    assert not filled
    assert taken() < 1_300_000 < len(data) / 2


@pytest.mark.parametrize("name", KINDS)
def test_whoever_wants_values_gets_them_afterwards(name, tmp_path):
    """What was unpacked in part is unpacked to its end, and says the same."""
    path = tmp_path / f"{name}.tar.gz"
    path.write_bytes(archive({name: KINDS[name]()}, "w:gz"))
    assert ckptdoctor.check(path).error is None
    loaded = ckptdoctor.load(path)
    assert all(torch.equal(torch.as_tensor(loaded[key]), value) for key, value in weights().items())
    assert ckptdoctor.check(path).error is None


def test_a_file_of_a_tar_archive_is_read_where_it_lies(tmp_path):
    """Nothing is unpacked of what was never compressed, where headers are enough."""
    made = io.BytesIO()
    torch.save(weights(), made)
    path = tmp_path / "m.tar"
    path.write_bytes(archive({"run/m.pt": made.getvalue(), "notes.txt": b"words"}))
    report = ckptdoctor.check(path)
    assert len(report.checkpoint.tensors) == 3 and report.container.format == "torch zip"
    assert unpacked() == []
    assert same(path)["tensors"]


def test_only_the_file_that_is_meant_is_unpacked(tmp_path):
    """Of a compressed tar archive, not the archive itself, and none of its other files."""
    made = io.BytesIO()
    torch.save(weights(count=1), made)
    path = tmp_path / "weights.tar.gz"
    files = {"a/one.pt": made.getvalue(), "b.pkl": KINDS["arrays.pkl"](), "video.mp4": os.urandom(3_000_000)}
    path.write_bytes(archive(files, "w:gz"))
    error = ckptdoctor.check(path).error
    assert '"a/one.pt", "b.pkl"' in error and error.endswith(f"as in {path}/a/one.pt")
    assert taken() < 50_000
    report = ckptdoctor.check(path / "a/one.pt")
    assert report.error is None and report.path == report.container.path == str(path / "a/one.pt")
    assert len(made.getvalue()) <= taken() < len(made.getvalue()) + 100_000
    assert 'does not hold "c.pt"' in ckptdoctor.check(path / "c.pt").error
    fixed = ckptdoctor.fix(path / "a/one.pt", tmp_path / "out.pt")
    assert fixed.output == str(tmp_path / "out.pt") and len(ckptdoctor.load(tmp_path / "out.pt")) == 1


def test_what_is_no_archive_has_no_files(tmp_path):
    """A name behind a compressed checkpoint is refused, with the command's argument that opens it."""
    path = tmp_path / "m.pkl.gz"
    path.write_bytes(gzip.compress(KINDS["arrays.pkl"](), 1))
    error = ckptdoctor.check(path / "a.pt").error
    assert 'does not contain an archive with "a.pt"' in error and error.endswith(f"open it as {path}.")


def value(random_, depth=0):
    """Anything that pickles hold: arrays, tensors, bytes that begin as pickles do, or hold one, and calls."""
    kind = random_.randrange(10 if depth < 3 else 7)
    noise = random_.randbytes(random_.choice((10, 70_000, 140_000)))
    calls = [pickle.dumps([Call(), noise], 4), pickle.dumps([noise, Call()], 4), noise + pickle.dumps(Call(), 2)]
    calls += [b"\x80" + noise + base64.b64encode(calls[2]), base64.b64encode(calls[0])]
    if kind < 2:
        dtype = random_.choice(("f4", "f8", ">f4", "i8"))
        made = np.frombuffer(noise[: len(noise) // 8 * 8], dtype)
        return made.reshape(2, -1, order=random_.choice("CF")) if made.size % 2 == 0 else made
    if kind == 2:
        return torch.frombuffer(bytearray(noise[:8] * (len(noise) // 8)), dtype=torch.int32)
    if kind < 6:
        raw = random_.choice([noise, b"\x80\x04" + noise, bytes(len(noise)), *calls])
        return (raw, bytearray(raw), raw.decode("latin-1"))[kind - 3]
    if kind == 6:
        return random_.choice((None, 1, "words", (1, 2.5)))
    if kind == 7:
        return {f"key {index}": value(random_, depth + 1) for index in range(random_.randrange(5))}
    shared = value(random_, depth + 1)
    return [shared, shared]


def changed(data, random_):
    """Whole, cut off, followed by something, or with bytes that are others."""
    how = random_.randrange(6)
    if how == 0:
        return data[: random_.randrange(1, len(data))]
    if how == 1:
        return data + random_.choice((b"more", pickle.dumps(Call(), 2), pickle.dumps(Call(), 0)))
    if how == 2:
        made = bytearray(data)
        for _ in range(3):
            made[random_.randrange(min(len(made), random_.choice((500, len(made)))))] = random_.randrange(256)
        return bytes(made)
    return data


def in_some_archive(name, data, random_):
    """In a tar archive of any kind, with others, and with a header that lies."""
    files = {"notes.txt": b"words " * random_.randrange(900), f"run/{name}": data}
    if random_.random() < 0.2:
        files["x" * random_.choice((5, 150)) + ".pt"] = data
    made = bytearray(archive(files, format=random_.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))))
    if random_.random() < 0.3:
        made[random_.choice((124, 135, 148, 156, random_.randrange(512)))] = random_.choice((48, 55, 0, 255))
        made[148:156] = b" " * 8
        made[148:156] = b"%06o\0 " % sum(made[:512])
    return bytes(made[: random_.randrange(1, len(made))] if random_.random() < 0.2 else made)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [*range(20), *[pytest.param(each, marks=pytest.mark.slow) for each in range(20, 300)]])
def test_everything_is_found_that_is_found_in_the_unpacked_file(seed, tmp_path):
    """Every finding with its words, and every note: in damaged files, lying archives, and streams that break off."""
    random_ = random.Random(seed)
    contents = {f"a{index}": value(random_) for index in range(random_.randrange(1, 6))}
    protocol = random_.choice((1, 2, 2, 3, 4, 4, 5))
    name, data = random_.choice(
        [("m.pkl", pickle.dumps(contents, protocol))] * 3
        + [("m.safetensors", save(weights(seed, 1))), ("m.pt", before_1_6(weights(seed, 1)))]
        + [("m.pt", tar_bytes(weights(seed, 1))), ("m.pt", before_1_6(contents))]
    )
    data = changed(data, random_)
    if random_.random() < 0.6:
        data, name = in_some_archive(name, data, random_), f"{name}.tar"
    packed = random_.random() < 0.7
    data = gzip.compress(data, 1) if packed else data
    path = tmp_path / f"{name}{'.gz' if packed else ''}"
    path.write_bytes(data[: random_.randrange(1, len(data))] if random_.random() < 0.1 else data)
    same(path)


def test_more_bytes_than_are_looked_into_are_not_kept(tmp_path, filled, monkeypatch):
    """What begins as a pickle is kept as long as it is looked into, and whatever may be one in Base64 always."""
    for module in ("ckptdoctor.pickles.nested", "ckptdoctor.formats.packed.sieves"):
        monkeypatch.setattr(f"{module}.MOST_KEPT", 500_000)
    blobs = [b"\x80\x04K" + os.urandom(200_000) for _ in range(10)]
    blobs.append(b"\x80\x04K" + os.urandom(200_000) + b" " + base64.b64encode(pickle.dumps([Call(), "x" * 99], 4)))
    path = tmp_path / "m.pkl.gz"
    path.write_bytes(gzip.compress(pickle.dumps(blobs, 4)))
    report = ckptdoctor.check(path)
    assert "P206" in {each.code for each in report.findings}
    (holes,) = scratch._SCRATCH.holes.values()  # in memory a place takes room where it was only looked at
    assert not filled and sum(end - start for start, end in holes) > 1_200_000
    scratch.remove()
    assert same(path)["findings"]


def test_bytes_that_somebody_asks_for_are_there(tmp_path, filled):
    """A name of 100,000 letters, which nobody expects, is that name."""
    name = b"o" * 100_000
    data = b"\x80\x02(T" + len(name).to_bytes(4, "little") + name + b"T" + len(name).to_bytes(4, "little") + name
    path = tmp_path / "m.pkl.gz"
    path.write_bytes(gzip.compress(data + b"\x93)Rl."))
    assert ckptdoctor.open(path).globals[0].name == name.decode()
    assert len(filled) == 1


def test_thousands_of_files_are_a_list(tmp_path):
    """The list costs its headers; the archive is read no further than an uncompressed one."""
    path = tmp_path / "many.tar.gz"
    path.write_bytes(archive({f"{index}.pt": bytes(600) for index in range(3000)}, "w:gz"))
    error = ckptdoctor.check(path).error
    assert '"0.pt"' in error and "997 more" in error
    assert taken() < 6_000_000


@pytest.mark.parametrize("size", [b"77777777777", b"00000000000"])
def test_an_archive_that_goes_on_for_ever_ends(size, tmp_path):
    """A file that is larger than all there is, and one that takes no room."""
    block = bytearray(archive({"m.pt": b""})[:512])
    block[124:135] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(bytes(block) * 2000))
    report = ckptdoctor.check(path)
    assert report.error or report.findings
    assert same(path)


def test_a_bomb_in_an_archive_is_told_on_the_way(tmp_path, monkeypatch):
    """The bound is that of files that are unpacked whole, although nothing is written."""
    monkeypatch.setattr(unpacking, "_BEYOND", 10_000_000)
    monkeypatch.setattr(unpacking, "_MOST_RATIO", 100)
    data = pickle.dumps(np.zeros(20_000_000, "u1"), 4)
    for name, made in (("m.pkl.gz", gzip.compress(data, 1)), ("m.tar.gz", archive({"m.pkl": data}, "w:gz"))):
        (tmp_path / name).write_bytes(made)
        (finding,) = [each for each in ckptdoctor.check(tmp_path / name).findings if each.code != "C102"]
        assert "made to fill disks" in finding.message
        with pytest.raises(CkptDoctorError, match="made to fill disks"):
            formats.open_checkpoint(tmp_path / name)
        assert unpacked() == []


def test_a_full_disk_is_told_of_what_is_kept_too(tmp_path, monkeypatch):
    """Opcodes take room as well; what is not kept takes none."""
    monkeypatch.setattr(scratch, "_SHARE", 0.0)
    (tmp_path / "arrays.pkl.gz").write_bytes(gzip.compress(pickle.dumps(np.zeros(9_000_000, "u1"), 4)))
    with pytest.raises(RefusedError, match="Unpacking stopped"):
        formats.open_checkpoint(tmp_path / "arrays.pkl.gz", headers=True)
    assert unpacked() == []


def test_any_part_can_be_read(tmp_path, filled):
    """Bytes that are not there are fetched when they are asked for, once for all of them."""
    data = KINDS["arrays.pkl"]()
    (tmp_path / "m.tgz").write_bytes(archive({"m.pkl": data}, "w:gz"))
    random_ = random.Random(3)
    with formats.opened(tmp_path / "m.tgz", headers=True) as (source, _):
        assert source.read(0, 100) == data[:100] and not filled
        for _ in range(20):
            start = random_.randrange(len(data))
            stop = random_.randrange(start, len(data) + 1)
            assert source.read(start, stop - start) == data[start:stop]
    assert len(filled) == 1


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path):
    """What is unpacked later must be what was unpacked before."""
    path = tmp_path / "m.pkl.gz"
    path.write_bytes(gzip.compress(pickle.dumps({b"k": os.urandom(200_000)}, 4), 0))
    with formats.opened(path, headers=True) as (source, _):
        path.write_bytes(gzip.compress(b"\x80\x04" + bytes(2_000_000), 0))
        with pytest.raises(CkptDoctorError):
            source.read(0, source.size)


def test_stopping_keeps_what_was_read(tmp_path):
    """Ctrl-C while the values pass by: the headers are judged, and what was not read is said."""
    path = tmp_path / "m.pkl.gz"
    path.write_bytes(gzip.compress(pickle.dumps(arrays(weights(count=12)), 4), 1))
    events = diagnose.diagnose(str(path), Settings(deep=True, unpack=False))
    assert isinstance(next(events), Progress)
    event = events.throw(KeyboardInterrupt)
    while not isinstance(event, Finished):
        event = next(events)
    report = event.report
    assert report.interrupted and len(report.checkpoint.tensors) == 12
    assert [each.complete for each in report.readings] == [False, False]
    assert any("interrupted" in each.why for each in report.skipped)


SIZE = 128_000_000

MEASURED = """
import glob, os, sys, tempfile, ckptdoctor
from pathlib import Path
deep = sys.argv[2] == "deep"
if deep:
    import torch
status = Path("/proc/self/status")
most = lambda: int(next(line for line in status.read_text().splitlines() if "VmHWM" in line).split()[1])
Path("/proc/self/clear_refs").write_text("5")
before = most()
report = ckptdoctor.check(sys.argv[1], deep=deep)
assert report.error is None and report.checkpoint.tensors, report
assert all(each.complete for each in report.readings)
files = glob.glob(os.path.join(tempfile.gettempdir(), "ckptdoctor-unpacked-*", "*"))
print(most() - before, sum(os.stat(file).st_blocks * 512 for file in files))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="only Linux says it")
@pytest.mark.parametrize("how", ["headers", "deep"])
@pytest.mark.parametrize("filling", ["zeros", "noise"])
@pytest.mark.parametrize("kind", ["pickle", "safetensors", "torch before 1.6", "torch 0.1"])
def test_neither_memory_nor_disk_grow_with_the_file(kind, filling, how, tmp_path):
    """128 MB of values take 4 MB of the disk at most, and memory for a few pieces of them."""
    if filling == "zeros":
        values = torch.zeros(8, SIZE // 32)
    else:
        values = torch.randint(-(1 << 31), 1 << 31, (8, SIZE // 32), dtype=torch.int32)
    state = {f"w{index}": row.clone() for index, row in enumerate(values)}
    pack = {
        "pickle": lambda: gzip.compress(pickle.dumps(arrays(state), 5), 1),
        "safetensors": lambda: archive({"m.safetensors": save(state)}, "w:gz", compresslevel=1),
        "torch before 1.6": lambda: archive({"m.pt": before_1_6(state)}, "w:gz", compresslevel=1),
        "torch 0.1": lambda: gzip.compress(tar_bytes(state), 1),
    }
    (tmp_path / "packed").write_bytes(pack[kind]())
    (tmp_path / "room").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "room")}
    line = [sys.executable, "-c", MEASURED, str(tmp_path / "packed"), how]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    memory, disk = map(int, done.stdout.split())
    assert memory < (150_000 if how == "deep" else 40_000)  # kB
    assert disk < 4_000_000
    assert os.listdir(tmp_path / "room") == []


def test_safetensors_are_what_they_were(tmp_path):
    """The bytes of a repaired copy are those of the file in the archive."""
    path = tmp_path / "m.tar.gz"
    path.write_bytes(archive({"m.safetensors": save(weights())}, "w:gz"))
    assert ckptdoctor.check(path).checkpoint.format == "safetensors"
    ckptdoctor.fix(path, tmp_path / "out.safetensors", select=["C102"])
    copied = load_safetensors((tmp_path / "out.safetensors").read_bytes())
    assert all(torch.equal(copied[key], value) for key, value in weights().items())
