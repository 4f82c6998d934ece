"""Every command once, on samples, as processes of this interpreter: ``python tests/smoke.py`` in any environment.

Each must work, or, where torch is not installed, end with the one sentence that says so; none with a traceback. Nothing
but the package and the standard library is imported here, so that the lightest environment can be asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ckptdoctor.crash import no_torch

SAMPLES = Path(__file__).resolve().parent.parent / "sample_ckpts"

BAD = ("Traceback (most recent call last)", "ckptdoctor itself failed")

# one browser is opened, every screen of it is visited, and it is closed
BROWSER = """
import asyncio
from textual.worker import WorkerCancelled
from ckptdoctor.tui.app import BrowserApp

async def at_rest(app):
    for _ in range(1000):
        try:
            return await app.workers.wait_for_complete()
        except WorkerCancelled:  # another one took its place
            await asyncio.sleep(0.01)
    raise TimeoutError("workers take each other's place without end")

async def visit(app, *keys):
    async with app.run_test(size=(120, 40)) as pilot:
        for key in keys:
            await pilot.press(key)
            await at_rest(app)
            await pilot.pause()

keys = ("down", "down", "down", "enter", "escape", "t", "t", "slash", "c", "enter", "e", "f", "escape", "question_mark")
asyncio.run(visit(BrowserApp("sick.pt"), *keys))
asyncio.run(visit(BrowserApp("sick.pt", other="model.pt"), "v", "m", "o", "down"))
asyncio.run(visit(BrowserApp("cut.pt"), "s"))
"""


@dataclass(frozen=True)
class Case:
    """One command line, or a line of Python, and whether it needs torch."""

    words: tuple[str, ...]
    torch: bool = False

    @property
    def command(self) -> str | None:
        """The command of ckptdoctor that it is about; None for Python."""
        return None if self.words[0] == "-c" else self.words[0]


def _lines(text: str, torch: bool = False) -> list[Case]:
    return [Case(tuple(line.split()), torch) for line in text.strip().splitlines()]


def _python(*lines: str, torch: bool = False) -> list[Case]:
    return [Case(("-c", f"import ckptdoctor\n{line}"), torch) for line in lines]


CASES = [
    Case(("--version",)),
    *_lines("""
check --fail-on never sick.pt
check --fail-on never --deep sick.pt dtypes.pt
check --fail-on never --like model.pt sick.pt
show model.pt
show --stats dtypes.pt
show --filter dtype:f32 dtypes.pt
fix sick.pt -o fixed.pt
fix sick.pt --strip-module --dtype bf16 -o half.safetensors
fix sick.pt --auto --like model.pt -o auto.pt
convert model.pt model.safetensors
convert model.pt shards --to safetensors --shard-size 10kB
convert model.pt dcp --to dcp
merge shards -o merged.pt
salvage cut.pt -o salvaged.pt
graft flipped.pt --from model.pt -o grafted.pt
fix auto.pt --in-place --rename conv=layer --force
undo auto.pt --list
undo auto.pt
diff model.pt fixed.pt
diff --values model.pt half.safetensors
report model.pt -o report.html
seal model.pt
verify model.pt
verify model.pt --tensor conv1.weight
latest epochs --json
latest epochs --resumable --verified
audit epochs -o store.db --jobs 1
audit epochs model.pt -o store.db --jobs 1 --format json
report store.db -o store.html
prune store.db --keep-last 1
watch epochs --once --interval 0.1
watch epochs --once --interval 0.1 --format json --fail-on invalid
verify half.safetensors --against sick.pt
seal shards --format openssf
explain N401
rules
train --slurm --strategy ddp
browse --help
rebuild --help
setup completion zsh
"""),
    Case(("explain", "--error", 'Missing key(s) in state_dict: "conv1.weight".')),
    Case(("-c", BROWSER)),
    *_python(
        "print(ckptdoctor.open('model.pt'))",
        "print(ckptdoctor.check('sick.pt', deep=True))",
        "print(ckptdoctor.fix('sick.pt', 'api.pt', strip_module=True))",
        "print(ckptdoctor.convert('model.pt', 'api.safetensors'))",
        "print(ckptdoctor.diff('model.pt', 'half.safetensors', values=True))",
        "print(ckptdoctor.load('model.pt', framework='np'))",
    ),
    *_lines(
        """
train foonet --epochs 1 --out run
train --devices
check --fail-on never sick.pt --model nets.py:Net
fix sick.pt --auto --model nets.py:Net -o fits.pt
report sick.pt --model nets.py:Net -o fit.html
""",
        torch=True,
    ),
    *_python(
        "print(ckptdoctor.load('model.pt'))",
        "print(ckptdoctor.load_state_dict('sick.pt', ckptdoctor.load('model.pt', framework='np')))",
        torch=True,
    ),
]


def prepare(folder: Path) -> None:
    """Put the files that the cases name into a folder."""
    for name, sample in {
        "model.pt": "healthy/state_dict.pt",
        "dtypes.pt": "healthy/dtypes.pt",
        "sick.pt": "sick/N401-module-prefix.pt",
        "cut.pt": "sick/F005-truncated-zip.pt",
        "flipped.pt": "sick/F009-crc-mismatch.pt",
        "nets.py": "nets.py",
    }.items():
        shutil.copy(SAMPLES / sample, folder / name)
    (folder / "epochs").mkdir()
    shutil.copy(SAMPLES / "healthy/training.pt", folder / "epochs" / "epoch_41.pt")
    shutil.copy(SAMPLES / "sick/F005-truncated-zip.pt", folder / "epochs" / "epoch_42.pt")


def failure(case: Case, folder: Path, environment: Mapping[str, str], torch: bool) -> str | None:
    """What is wrong with how a case ends, which is run in this folder; None where it is as it should be."""
    words = case.words if case.command is None else ("-m", "ckptdoctor", *case.words)
    line = [sys.executable, *words]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")
    if case.torch and not torch:
        told = done.stderr.strip().splitlines()
        if case.command is None:  # above it is the traceback of who asked a function and caught nothing
            as_it_should_be = told[-1:] == [f"ckptdoctor.errors.MissingPackageError: {no_torch()}"]
        else:
            as_it_should_be = told == [f"error: {no_torch()}"] and done.returncode == 2
    else:
        findings = 1 if case.command is not None else 0
        as_it_should_be = done.returncode in (0, findings) and not any(bad in done.stderr for bad in BAD)
    return None if as_it_should_be else f"{' '.join(case.words)}: status {done.returncode}\n{done.stdout}{done.stderr}"


def failures(folder: Path, environment: Mapping[str, str], torch: bool) -> list[str]:
    """What is wrong with any of the cases, which are run in this folder one after the other."""
    prepare(folder)
    return [said for case in CASES if (said := failure(case, folder, environment, torch)) is not None]


def main() -> None:
    """Run all of them with what is installed, and end with status 1 if one went wrong."""
    # what lies here is not what is installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["CKPTDOCTOR_HISTORY"] = "0"
    torch = find_spec("torch") is not None
    with tempfile.TemporaryDirectory() as folder:
        found = failures(Path(folder), environment, torch)
    print(*found, sep="\n", end="", file=sys.stderr)
    versions = ", ".join(f"{name} {version(name)}" for name in ("click", "textual", "numpy", "safetensors", "fsspec"))
    how = "with torch" if torch else "without torch"
    print(f"{len(CASES) - len(found)} of {len(CASES)} commands: Python {sys.version.split()[0]}, {versions}, {how}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
