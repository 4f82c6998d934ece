"""The console examples of README and docs are run, and what they print is what stands below them.

Every block marked ``console`` is a terminal of 92 columns, for which a page has room, in a folder with the files of
``FILES``: one folder for each page, whose commands follow each other. A command without output below it is run for its
exit status alone.
"""

from __future__ import annotations

import gc
import io
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from ckptdoctor.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_ckpts"
# what people wrote; the pages of rules and messages are made whole, by the modules next to this one
PAGES = (ROOT / "README.md", *sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "commands").glob("*.md")]))

FILES = {
    "model.pt": "sick/N401-module-prefix.pt",
    "epoch=9.ckpt": "sick/N401-training-on-gpu.pt",
    "args.pt": "sick/P201-weights-only-blocked-global.pt",
    "base.pt": "healthy/state_dict.pt",
    "copy.pt": "healthy/state_dict.pt",
    "damaged.pt": "sick/F009-crc-mismatch.pt",
    "broken.pt": "sick/F005-truncated-zip.pt",
    "before.pt": "trained/stopped/model.pt",
    "after.pt": "trained/resumed/model.pt",
    "nets.py": "nets.py",
}
ERROR = """\
RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: "conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias", "fc.weight", "fc.bias".
\tUnexpected key(s) in state_dict: "module.conv1.weight", "module.conv1.bias", "module.bn1.weight", "module.bn1.bias", \
"module.fc.weight", "module.fc.bias".
"""

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SECONDS = re.compile(r"\b\d+(?:\.\d+)? s\b")
# these make an environment, write to the home folder, need a person or another machine, or take minutes; what is typed
# there is still parsed
_NOT_RUN = re.compile(r"python3|pip |git |ckptdoctor (?:browse|train)\b|.*(?:://|--serve|tour/|--install)")


@dataclass(frozen=True)
class Example:
    """A command of a page and what stands below it; ``runs`` unless it cannot be run here."""

    command: str
    output: str

    @property
    def runs(self) -> bool:
        """Whether it can be carried out anywhere."""
        return _NOT_RUN.match(self.command) is None


@dataclass(frozen=True)
class Outcome:
    """What a command printed, as it is shown, and the status that it ended with."""

    printed: str
    status: int


class _Screen(io.StringIO):
    """Standard output of a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """It is one."""
        return True


class _Beside(io.StringIO):
    """Standard error, which is seen on the same screen and draws no progress on it."""

    def __init__(self, screen: io.StringIO) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        """Where both are seen."""
        return self._screen.write(text)


def examples(text: str) -> Iterator[Example]:
    """The commands in the console blocks of a page."""
    for block in _BLOCK.finditer(text):
        yield from _examples(block[1])


def _examples(block: str) -> Iterator[Example]:
    for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
        if part.startswith("$ "):
            command, _, output = part[2:].partition("\n")
            yield Example(command, output.rstrip("\n"))


def prepare(folder: Path) -> None:
    """Make the files that the examples are about."""
    for name, sample in FILES.items():
        shutil.copy(SAMPLES / sample, folder / name)
    shutil.copytree(SAMPLES, folder / "sample_ckpts", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "error.txt").write_text(ERROR)
    carry_out("ckptdoctor convert base.pt checkpoint --shard-size 6kB", folder)
    carry_out("ckptdoctor seal copy.pt", folder)
    shutil.copy(folder / "base.pt", folder / "worn.pt")
    carry_out("ckptdoctor seal worn.pt --parity 10%", folder)
    carry_out("ckptdoctor convert base.pt worn --shard-size 6kB", folder)
    carry_out("ckptdoctor seal worn --parity 10%", folder)
    for damaged in (folder / "worn.pt", sorted((folder / "worn").glob("*.safetensors"))[0]):
        with open(damaged, "r+b") as worn:
            worn.seek(damaged.stat().st_size // 2)
            worn.write(b"some bytes that were not there before")
    carry_out("ckptdoctor convert base.pt export.safetensors", folder)
    (folder / "run").mkdir()
    shutil.copy(SAMPLES / "healthy" / "training.pt", folder / "run" / "epoch_41.pt")
    shutil.copy(SAMPLES / "sick" / "F005-truncated-zip.pt", folder / "run" / "epoch_42.pt")


def carry_out(command: str, folder: Path) -> Outcome:
    """Run one line of a console: commands of ckptdoctor, one after another by ``&&``, with ``< FILE`` as input."""
    screen = _Screen()
    status = 0
    for each in command.split(" && "):
        line, _, given = each.partition(" < ")
        status = _typed(shlex.split(line)[1:], folder, given.strip(), screen)
        if status:
            break
    return Outcome(_SECONDS.sub("0.01 s", screen.getvalue()).rstrip("\n"), status)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _typed(words: list[str], folder: Path, given: str, screen: _Screen) -> int:
    environment = {"COLUMNS": "92", "NO_COLOR": "1"}
    pace, modules = gc.get_threshold(), set(sys.modules)
    try:
        with (
            _inside(folder),
            open(given or os.devnull, encoding="utf-8") as typed,
            redirect_stdout(screen),
            redirect_stderr(_Beside(screen)),
            mock.patch.dict(os.environ, environment),
            mock.patch("sys.stdin", typed),
            mock.patch("sys.path", [str(folder), *sys.path]),
            warnings.catch_warnings(),
        ):
            return run(words)
    finally:
        gc.set_threshold(*pace)
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def rerun(text: str, folder: Path) -> str:
    """The text of a page with the output of each example made anew, in a folder that was prepared."""

    def block(found: re.Match[str]) -> str:
        parts = []
        for each in _examples(found[1]):
            shown = each.output
            if each.runs:
                outcome = carry_out(each.command, folder)
                shown = outcome.printed if each.output else ""
            parts.append(f"$ {each.command}\n" + (f"{shown}\n" if shown else ""))
        return f"```console\n{''.join(parts)}```"

    return _BLOCK.sub(block, text)
