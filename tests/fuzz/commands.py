"""Every command on damaged files and folders: an answer and one of its statuses, and nothing left of what failed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import shutil
import tarfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

from ckptdoctor.cli.main import run
from tests.builders import build, build_like
from tests.fuzz.mutations import mutated
from tests.fuzz.odd import ODD
from tests.planted import PLACES, whole
from tests.rules.sick import SICK

# of the name of the file, and of what it is compared or put together with
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "FILE"),
    ("check", "FILE", "--deep"),
    ("check", "FILE", "--like", "OTHER", "--format", "json"),
    ("check", "FILE", "--format", "sarif"),
    ("show", "FILE"),
    ("show", "FILE", "--keys", "--format", "json"),
    ("show", "FILE", "--devices"),
    ("show", "FILE", "--stats"),
    ("diff", "FILE", "OTHER", "--values"),
    ("diff", "OTHER", "FILE"),
    ("report", "FILE", "-o", "OUT/page.html"),
    ("seal", "FILE", "-o", "OUT/it.seal.json"),
    ("explain", "FILE"),
    ("fix", "FILE", "-o", "OUT/fixed.pt"),
    ("fix", "FILE", "-o", "OUT/fixed.pt", "--unsafe-fixes", "--clone-shared"),
    ("fix", "FILE", "-o", "OUT/fixed.pt", "--to-cpu", "--rename", "(.*)=x.\\1"),
    ("fix", "FILE", "-o", "OUT/fixed.pt", "--dtype", "bf16", "--weights-only-safe"),
    ("fix", "FILE", "-o", "OUT/fixed.pt", "--slim", "--strip-module"),
    ("fix", "FILE", "-o", "OUT/fixed.pt", "--auto", "--like", "OTHER"),
    ("fix", "FILE", "-o", "OUT/fixed.safetensors"),
    ("convert", "FILE", "OUT/made.safetensors"),
    ("convert", "FILE", "OUT/made.safetensors", "--flatten", "--keep-ties", "clone"),
    ("convert", "FILE", "OUT/made.pt"),
    ("convert", "FILE", "OUT/folder/", "--flatten", "--shard-size", "1KB"),
    ("convert", "FILE", "OUT/dcp", "--to", "dcp"),
    ("salvage", "FILE", "-o", "OUT/saved.pt"),
    ("graft", "FILE", "--from", "OTHER", "-o", "OUT/grafted.pt"),
    ("merge", "FILE", "OTHER", "-o", "OUT/merged.safetensors", "--force"),
)
_STATUSES = (0, 1, 2)
_LARGEST = 200_000  # bytes of a file that is damaged: larger ones take long, and hold little more to damage


def _in_tar(mode: str) -> Callable[[bytes], bytes]:
    """An archive with a note and the file."""

    def pack(data: bytes) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode=mode) as archive:
            for name, each in {"notes.txt": b"words", "run/m.pt": data}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(each)
                archive.addfile(entry, io.BytesIO(each))
        return made.getvalue()

    return pack


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".tar": _in_tar("w"),
    ".tar.gz": _in_tar("w:gz"),
}
PACKED = 0.1  # how many of the files are packed


class WrongAnswer(Exception):
    """What a command did that none may do."""


def subjects() -> list[str]:
    """The names of everything that can be damaged."""
    sick = [f"sick {code} {title}" for code, title in SICK]
    return [*sick, *(f"planted {name}" for name in PLACES), *(f"odd {name}" for name in ODD)]


def one_case(seed: int, names: list[str], folder: Path, watched: contextlib.AbstractContextManager[None]) -> str:
    """Make a file, damage it, and give it to some commands; what was done, where an answer was wrong, else ""."""
    chance = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    (folder / "other").mkdir()
    name = chance.choice(names)
    path, other = _made(name, folder)
    _damage(path, chance)
    if chance.random() < PACKED and path.is_file():
        path = _wrapped(path, chance)
    for _ in range(3):
        words = chance.choice(COMMANDS)
        out = folder / "out"
        out.mkdir(exist_ok=True)
        places = {"FILE": str(path), "OTHER": str(other)}
        line = [places.get(word, word.replace("OUT/", f"{out}/")) for word in words]
        try:
            with watched:
                _require(line, path, out)
        except Exception:  # whatever it is, it is a failure of this case
            return f"{name}: {' '.join(words)}\n{traceback.format_exc()}"
        shutil.rmtree(out)
    return ""


def undamaged(words: tuple[str, ...], folder: Path) -> None:
    """The same command on files as they are."""
    for name in ("odd a training checkpoint", "odd shards", "odd quantized", "odd views", "odd sparse", "odd npz"):
        shutil.rmtree(folder, ignore_errors=True)
        for each in ("in", "other", "out"):
            (folder / each).mkdir(parents=True)
        path, other = _made(name, folder)
        places = {"FILE": str(path), "OTHER": str(other)}
        _require([places.get(word, word.replace("OUT/", f"{folder}/out/")) for word in words], path, folder / "out")


def _made(name: str, folder: Path) -> tuple[Path, Path]:
    """The file or folder of that name, and another one to hold it against."""
    kind, _, rest = name.partition(" ")
    if kind == "sick":
        code, _, title = rest.partition(" ")
        example = SICK[code, title][1]
        path = build(example, folder / "in")
        return path, build_like(example, folder / "other") if example.like is not None else _plain(folder)
    if kind == "planted":
        return PLACES[rest](folder / "in", whole), _plain(folder)
    path = folder / "in" / ODD[rest][0]
    ODD[rest][1](path)
    return path, _plain(folder)


def _plain(folder: Path) -> Path:
    import torch

    path = folder / "other" / "plain.pt"
    torch.save({"w": torch.ones(2, 2), "b": torch.zeros(2)}, path)
    return path


def _damage(path: Path, chance: random.Random) -> None:
    """One file of a folder, or the file itself; sometimes a part of a zip archive, so that its sums are right."""
    files = sorted(each for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())
    files = [each for each in files if each.stat().st_size < _LARGEST and not each.is_symlink()]
    if not files or chance.random() < 0.1:
        return
    file = chance.choice(files)
    if chance.random() < 0.5 and _within(file, chance):
        return
    file.write_bytes(mutated(file.read_bytes(), chance))


def _within(file: Path, chance: random.Random) -> bool:
    """Damage one record of an archive and pack it again, as an attacker would; False where there is no archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError):
        return False
    if not members:
        return False
    hit = chance.randrange(len(members))
    with zipfile.ZipFile(file, "w") as archive:
        for index, (info, data) in enumerate(members):
            archive.writestr(info.filename, mutated(data, chance) if index == hit else data)
    return True


def _wrapped(path: Path, chance: random.Random) -> Path:
    suffix, pack = chance.choice(list(_PACKERS.items()))
    packed = path.with_name(path.name + suffix)
    data = pack(path.read_bytes())
    packed.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)
    return packed


def _require(line: list[str], path: Path, out: Path) -> None:
    """The command ends with one of its statuses, says something, and leaves the file as it was."""
    before = _contents(path)
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        status = run(line)
    text = said.getvalue() + complained.getvalue()
    if status not in _STATUSES or "ckptdoctor itself failed" in text or "Traceback" in text:
        raise WrongAnswer(f"status {status}: {text[-2_000:]}")
    if not text.strip() and line[0] != "diff":
        raise WrongAnswer(f"status {status}, without a word")
    if _contents(path) != before:
        raise WrongAnswer(f"status {status}: the file was changed")
    hidden = [name for name in os.listdir(out) if name.startswith(".") and "ckptdoctor" in name]
    if hidden:
        raise WrongAnswer(f"status {status}: left behind {hidden}")


def _contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else path.rglob("*")
    return {str(each): each.read_bytes() for each in files if each.is_file()}
