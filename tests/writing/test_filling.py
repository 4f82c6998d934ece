from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptdoctor.errors import WriteError
from ckptdoctor.writing import Copy, Generated, Literal, Part, Recipe, publish, publish_together
from ckptdoctor.writing.filling import Originals
from tests.writing.helpers import leftovers


def files(folder: Path, count: int) -> list[Path]:
    made = [folder / f"{at}.bin" for at in range(count)]
    for at, path in enumerate(made):
        path.write_bytes(bytes([at]) * (100_000 if at % 2 else 500))
    return made


def test_ranges_come_from_any_number_of_files(tmp_path: Path):
    """Long and short ones, more files than may be open at once."""
    paths = files(tmp_path, 150)
    segments = [Copy(3, path.stat().st_size - 3, str(path)) for path in [*paths, *reversed(paths)]]
    recipe = Recipe(str(paths[0]), (Literal(b"head"), *segments, Copy(0, 10)))
    publish(recipe, str(tmp_path / "out"))
    bodies = [path.read_bytes()[3:] for path in [*paths, *reversed(paths)]]
    assert (tmp_path / "out").read_bytes() == b"head" + b"".join(bodies) + bytes(10)


def test_scattered_small_ranges_take_little_memory(tmp_path: Path):
    """Ranges in no order are not kept with what lies around them."""
    import tracemalloc

    data = os.urandom(1 << 24)
    (tmp_path / "in").write_bytes(data)
    places = [(at * 7919) % (len(data) - 24) for at in range(20_000)]
    recipe = Recipe(str(tmp_path / "in"), tuple(Copy(place, 24) for place in places))
    tracemalloc.start()
    publish(recipe, str(tmp_path / "out"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "out").read_bytes() == b"".join(data[place : place + 24] for place in places)
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("count", "apart", "most_bytes", "most_reads"),
    [(20_000, 0, 2_000_000, 5), (20_000, 100, 6_000_000, 10), (40, 5_000_000, 9_000_000, 90)],
)
def test_small_ranges_are_not_read_one_by_one_nor_with_much_beside_them(
    tmp_path: Path, monkeypatch, count: int, apart: int, most_bytes: int, most_reads: int
):
    """Those that follow each other take few reads; those that lie far apart take little of what is between them."""
    length = 24
    with open(tmp_path / "in", "wb") as file:
        file.truncate(count * (length + apart))
    recipe = Recipe(str(tmp_path / "in"), tuple(Copy(at * (length + apart), length) for at in range(count)))
    read, reads, pread = 0, 0, os.pread

    def counting(*arguments):
        nonlocal read, reads
        data = pread(*arguments)
        read, reads = read + len(data), reads + 1
        return data

    monkeypatch.setattr(os, "pread", counting)
    publish(recipe, str(tmp_path / "out"))
    assert read < most_bytes
    assert reads < most_reads


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path):
    """Any of them, not only the first."""
    paths = files(tmp_path, 3)

    def change():
        os.utime(paths[2], ns=(1, 1))
        yield b"x"

    recipe = Recipe(str(paths[0]), (Copy(0, 5, str(paths[2])), Generated(1, change)))
    with pytest.raises(WriteError, match=r"2\.bin changed"):
        publish(recipe, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert leftovers(tmp_path) == []


def test_a_missing_file_is_one_sentence(tmp_path: Path):
    """And nothing is written."""
    paths = files(tmp_path, 1)
    with pytest.raises(WriteError, match="cannot be opened"):
        publish(Recipe(str(paths[0]), (Copy(0, 1, str(tmp_path / "gone")),)), str(tmp_path / "out"))


def test_files_are_given_back(tmp_path: Path):
    """All of them are closed, whatever was opened."""
    before = len(os.listdir("/proc/self/fd"))
    originals = Originals(str(files(tmp_path, 80)[0]))
    for at in range(80):
        originals.fd(str(tmp_path / f"{at}.bin"))
    assert len(os.listdir("/proc/self/fd")) < before + 70
    originals.close()
    assert len(os.listdir("/proc/self/fd")) == before


def refuse(path: str) -> None:
    raise WriteError("no")


def test_several_files_appear_together_or_not_at_all(tmp_path: Path):
    """One that is refused, or whose name is taken, takes the others with it."""
    (source,) = files(tmp_path, 1)
    recipe = Recipe(str(source), (Copy(0, 100),))
    names = [str(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(WriteError, match="no"):
        publish_together([Part(recipe, names[0]), Part(recipe, names[1], refuse)])
    (tmp_path / "two").write_text("mine")
    with pytest.raises(WriteError, match="already exists"):
        publish_together([Part(recipe, names[0]), Part(recipe, names[1])])
    assert sorted(os.listdir(tmp_path)) == ["0.bin", "two"]
    (tmp_path / "two").unlink()

    def appears(path: str) -> None:
        (tmp_path / "two").write_text("mine")

    with pytest.raises(WriteError, match="appeared while the output"):
        publish_together([Part(recipe, names[0]), Part(recipe, names[1], appears)])
    assert sorted(os.listdir(tmp_path)) == ["0.bin", "two"]
    (tmp_path / "two").unlink()
    written = publish_together([Part(recipe, names[0]), Part(recipe, names[1])])
    assert [each.path for each in written] == names
    assert leftovers(tmp_path) == []
