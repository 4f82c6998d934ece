"""A deep examination of a large compressed file with its header in front keeps nothing, and finds the same."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save, save_file

import ckptdoctor
from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.diagnose.events import Finished
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine import file as diagnose
from ckptdoctor.formats.packed import unpacking
from tests.formats.packed.test_front import WAYS, always, bomb, clean, unpacked

__all__ = ["always", "clean"]

pytestmark = pytest.mark.usefixtures("clean")

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "uint8", "bool", "float8_e4m3fn", "complex64")


def made(seed):
    """A file of all kinds of tensors: not finite, constant, empty, with holes, in any order, with heads."""
    random_, noise = random.Random(seed), torch.Generator().manual_seed(seed)
    tensors = {}
    for index in range(random_.randrange(1, 12)):
        shape = [random_.choice((0, 1, 3, 64, 300)) for _ in range(random_.randrange(4))]
        values = torch.randn([each if shape.count(300) < 3 else 9 for each in shape], generator=noise) * 3
        if values.numel() and random_.random() < 0.3:
            values.view(-1)[random_.randrange(values.numel())] = random_.choice((float("nan"), float("inf"), 1e30))
        if random_.random() < 0.2:
            values.zero_()
        tensors[f"layer.{index}.weight"] = values.to(getattr(torch, random_.choice(DTYPES)))
    holed = torch.randn(100_000, generator=noise)
    if random_.random() < 0.7:
        start = random_.randrange(1, 8) * 8192
        holed[start : start + random_.choice((100, 17_000, 40_000))] = 0
    tensors["holed.weight"] = holed
    if random_.random() < 0.5:
        tensors["model.embed_tokens.weight"] = torch.randn(90, 8, generator=noise)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * random_.choice((1, 2))
    data = save(tensors, {"format": "pt"} if random_.random() < 0.5 else None)
    (length,) = struct.unpack("<Q", data[:8])
    names = list(json.loads(data[8 : 8 + length]).items())
    random_.shuffle(names)
    header = json.dumps(dict(names)).encode()
    header += b" " * (random_.choice((0, -len(header) % 8, -len(header) % 4096)))
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def seeds(count, first=2):
    """Random files: the first few at once, the others where it may take long."""
    return [*range(first), *(pytest.param(each, marks=pytest.mark.slow) for each in range(first, count))]


def changed(data, random_):
    """Whole, cut off, or followed by something."""
    (length,) = struct.unpack("<Q", data[:8])
    how = random_.randrange(4)
    if how == 0:
        return data[: random_.randrange(8 + length, len(data))]
    return data + random_.choice((b"more", bytes(200_000))) if how == 1 else data


def told(report):
    """All that a report says, but for how long it took and which file was read."""
    checkpoint = report.checkpoint
    return {
        "findings": [
            (each.code, each.severity, each.message, each.keys, each.fix and each.fix.option)
            for each in report.findings
        ],
        "skipped": report.skipped,
        "readings": [(each.what, each.total, each.complete) for each in report.readings],
        "error": report.error,
        "container": replace(report.container, identity=None),
        "tensors": checkpoint and [(each.path, each.shape, each.dtype) for each in checkpoint.tensors],
        "size": checkpoint and checkpoint.size,
        "notes": checkpoint and checkpoint.notes,
    }


def both(path):
    """What is told of a file read in one passage, and of the same one unpacked first."""
    before = len(unpacked())
    passed = told(diagnose.check(str(path), Settings(deep=True, unpack=False)))
    assert len(unpacked()) == before
    return passed, told(diagnose.check(str(path), Settings(deep=True, unpack=True)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", seeds(8))
def test_the_same_is_found_as_in_the_unpacked_file(way, seed, tmp_path, always):
    """Every finding, with its words, its keys and its repair, and all that was not examined."""
    data = changed(made(seed), random.Random(seed))
    path = tmp_path / f"m.safetensors.{way}"
    path.write_bytes(WAYS[way](data))
    passed, copied = both(path)
    assert passed == copied
    assert passed["tensors"]
    (tmp_path / "m.safetensors").write_bytes(data)
    plain = ckptdoctor.check(tmp_path / "m.safetensors", deep=True)
    assert {each[0] for each in passed["findings"]} == {each.code for each in plain.findings} | {"C102"}


def made_before_1_6(seed):
    """The same tensors in a file of torch before 1.6."""
    buffer = io.BytesIO()
    tensors = {key: each.clone() for key, each in load(made(seed)).items()}
    tensors["large.weight"] = torch.randn(300_000, generator=torch.Generator().manual_seed(seed))  # a file of 1 MB
    torch.save(tensors, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


@pytest.mark.parametrize("seed", seeds(6))
def test_the_same_is_found_in_a_file_of_torch_before_1_6(seed, tmp_path, always):
    """Its storages are found by its pickles; every finding is that of the unpacked file."""
    path = tmp_path / "m.pt.gz"
    path.write_bytes(gzip.compress(made_before_1_6(seed), 1, mtime=0))
    passed, copied = both(path)
    assert passed == copied
    assert passed["tensors"]


def cut(data):
    """Without its end."""
    return data[:-10]


def followed(data):
    """With something behind it."""
    return data + b"more"


def miscounted(data):
    """With another number of elements before the values of its last storage than the pickles say."""
    at = data.rindex((100_000).to_bytes(8, "little"))
    return data[:at] + (99_999).to_bytes(8, "little") + data[at + 8 :]


@pytest.mark.parametrize("change", [cut, followed, miscounted])
def test_what_contradicts_its_pickles_is_unpacked(change, tmp_path, always):
    """What the pickles of a file of torch before 1.6 do not tell is found in the whole file, as in any other."""
    weights = {"large.weight": torch.randn(300_000), "last.weight": torch.randn(100_000)}
    torch.save(weights, tmp_path / "m", _use_new_zipfile_serialization=False)
    data = change((tmp_path / "m").read_bytes())
    (tmp_path / "m.pt").write_bytes(data)
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress(data, 1, mtime=0))
    report = ckptdoctor.check(tmp_path / "m.pt.gz", deep=True)
    assert len(unpacked()) == 1
    plain = ckptdoctor.check(tmp_path / "m.pt", deep=True)
    assert {each.code for each in report.findings} == {each.code for each in plain.findings} | {"C102"}
    assert any(each.code.startswith("F") for each in plain.findings)


def test_tensors_of_one_storage_are_unpacked(tmp_path, always):
    """One passage gives no values twice; no other file is kept."""
    table = torch.randn(20_000, 16)
    torch.save({"a.weight": table, "b.weight": table[10:]}, tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "m.pt.gz").write_bytes(gzip.compress((tmp_path / "m.pt").read_bytes(), 1, mtime=0))
    report = ckptdoctor.check(tmp_path / "m.pt.gz", deep=True)
    assert len(unpacked()) == 1
    plain = ckptdoctor.check(tmp_path / "m.pt", deep=True)
    assert {each.code for each in report.findings} == {each.code for each in plain.findings} | {"C102"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", seeds(4))
def test_the_same_is_found_where_unpacking_fails(way, seed, tmp_path, always):
    """Bytes that were lost or changed on the way: what the compressor's own checksum says, and where."""
    random_ = random.Random(seed)
    data = bytearray(WAYS[way](made(seed)))
    at = random_.randrange(len(data) // 2, len(data))
    if seed % 2:
        del data[at:]
    else:
        data[at] ^= 255
    path = tmp_path / f"m.safetensors.{way}"
    path.write_bytes(data)
    passed, copied = both(path)
    assert passed == copied


def test_heads_are_compared_with_embeddings(tmp_path, always):
    """Equal bytes are found although the two are never there at the same time."""
    table = torch.randn(500, 16)
    weights = {"model.embed_tokens.weight": table, "lm_head.weight": table.clone(), "x.weight": torch.randn(9, 9)}
    for name, head in (("same", table.clone()), ("other", table + 1)):
        path = tmp_path / f"{name}.safetensors.gz"
        path.write_bytes(gzip.compress(save(weights | {"lm_head.weight": head}, {"format": "pt"})))
        passed, copied = both(path)
        assert passed == copied
        codes = {each[0] for each in passed["findings"]}
        assert ("A703" in codes) == (name == "same")


def test_tensors_that_share_bytes_are_unpacked(tmp_path, always):
    """One passage cannot give a byte to two of them; no other file is kept."""
    entry = {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}
    header = json.dumps({"a": entry, "b": {**entry, "data_offsets": [200, 600]}}).encode()
    path = tmp_path / "m.safetensors.gz"
    path.write_bytes(gzip.compress(struct.pack("<Q", len(header)) + header + torch.randn(150).numpy().tobytes()))
    report = ckptdoctor.check(path, deep=True)
    assert len(unpacked()) == 1
    (tmp_path / "m.safetensors").write_bytes(gzip.decompress(path.read_bytes()))
    plain = ckptdoctor.check(tmp_path / "m.safetensors", deep=True)
    assert {each.code for each in report.findings} == {each.code for each in plain.findings} | {"C102"}


@pytest.mark.parametrize("size", [100_000_000, pytest.param(1_000_000_000, marks=pytest.mark.slow)])
def test_a_bomb_takes_no_room(size, tmp_path):
    """Neither on the disk nor in memory, although all of it is read."""
    bomb(tmp_path, size)
    (tmp_path / "room").mkdir()
    code = (
        "import resource, ckptdoctor, torch\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "report = ckptdoctor.check('bomb.safetensors.gz', deep=True)\n"
        f"assert all(each.complete for each in report.readings) and report.readings[1].done == {size}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    room = {**os.environ, "TMPDIR": str(tmp_path / "room")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=room, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 150_000  # kB
    assert os.listdir(tmp_path / "room") == []


def test_more_than_weights_unpack_to_is_a_bomb(tmp_path, monkeypatch):
    """Whoever goes on behind the end of the tensors for too long is stopped, with the words of a file on its way to a
    disk.
    """
    monkeypatch.setattr(unpacking, "_BEYOND", 100_000_000)
    monkeypatch.setattr(unpacking, "_MOST_RATIO", 100)
    passed, copied = both(bomb(tmp_path, 150_000_000, header_size=70_000_000))
    assert passed == copied
    assert "made to fill disks" in passed["findings"][0][2]


def test_stopping_keeps_what_was_read(tmp_path, always):
    """Ctrl-C in the middle of the passage: the headers are judged, and what was not read is said."""
    path = tmp_path / "m.safetensors.gz"
    values = {f"w{index}": torch.randn(500, 500) for index in range(40)}
    path.write_bytes(gzip.compress(save(values, {"format": "pt"}), 0))
    events = diagnose.diagnose(str(path), Settings(deep=True, unpack=False))
    assert isinstance(next(events), Progress)
    event = events.throw(KeyboardInterrupt)
    while not isinstance(event, Finished):
        event = next(events)
    report = event.report
    assert report.interrupted
    assert [each.complete for each in report.readings] == [False, False]
    assert len(report.checkpoint.tensors) == 40
    assert any("interrupted" in each.why for each in report.skipped)


def test_a_reference_whose_bytes_are_compared_takes_a_copy(tmp_path, always):
    """What --like names is held against the same tensors, whatever the order in which they lie."""
    weights = {f"w{index}": torch.randn(30, 30) for index in range(4)}
    save_file(weights, tmp_path / "base.safetensors", {"format": "pt"})
    path = tmp_path / "m.safetensors.gz"
    path.write_bytes(gzip.compress((tmp_path / "base.safetensors").read_bytes()))
    report = ckptdoctor.check(path, deep=True, like=tmp_path / "base.safetensors")
    plain = ckptdoctor.check(tmp_path / "base.safetensors", deep=True, like=tmp_path / "base.safetensors")
    assert {each.code for each in report.findings} >= {each.code for each in plain.findings}
    assert [each.complete for each in report.readings] == [True] * 3
