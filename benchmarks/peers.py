"""Deep checks and comparisons beside those of other tools: sft-cli and model-clinic, each in an environment of its own.

``python benchmarks/peers.py FOLDER [ROUNDS]``: the folder needs 6 GB; it gets the environments (``pip
install`` once) and the files, and keeps both for the next run. Whole processes in turn; wall clock is what counts on a
quiet machine, CPU seconds of all threads tell more on a busy one. Said too: which tool finds a NaN in which dtype.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import MAXRSS_UNIT, ckptdoctor

LAYERS = 60
GB = 1_000_000_000
# with what their own errors ask to be installed for safetensors files
PEERS = {
    "sft": ("sft-cli==0.2.2",),
    "model-clinic": ("model-clinic==0.4.2", "torch==2.13.0", "safetensors==0.8.0", "numpy"),
}
DTYPES = ("float32", "bfloat16", "float8_e4m3fn")
# one NaN in the last of some matrices; a copy that differs throughout
MAKE = """
import sys, torch
from safetensors.torch import save_file
folder, layers, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
def save(name, state):
    save_file(state, f"{folder}/{name}.safetensors", metadata={"format": "pt"})
columns = 1024
for dtype in (torch.float32, torch.bfloat16):
    rows = size // layers // columns // dtype.itemsize
    state = {f"layers.{i}.weight": (torch.randn(rows, columns) * 0.02).to(dtype) for i in range(layers)}
    name = str(dtype).removeprefix("torch.")
    save(name, state)
    save(f"{name}_tuned", {key: value * 1.01 for key, value in state.items()})
for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
    one, other = torch.randn(64, 64) * 0.02, torch.randn(64, 64) * 0.02
    name = str(dtype).removeprefix("torch.")
    save(f"sound_{name}", {"layers.0.weight": one.to(dtype), "layers.1.weight": other.to(dtype)})
    other[3, 5] = float("nan")
    save(f"nan_{name}", {"layers.0.weight": one.to(dtype), "layers.1.weight": other.to(dtype)})
"""


@dataclass(frozen=True)
class Run:
    """One process: wall clock and CPU seconds, the peak of its memory in MB, its exit status, and what it printed."""

    seconds: float
    cpu: float
    peak_mb: float
    status: int
    text: str


def main(folder: Path, rounds: int) -> None:
    """Print every comparison."""
    tools = {name: environment(folder / f"venv-{name}", name, wanted) for name, wanted in PEERS.items()}
    made = files(folder)
    for dtype in ("float32", "bfloat16"):
        one, other = str(made / f"{dtype}.safetensors"), str(made / f"{dtype}_tuned.safetensors")
        compare(
            f"every value of 1 GB of {dtype}",
            {
                "ckptdoctor check --deep": ckptdoctor("check", "--deep", one),
                "ckptdoctor check --deep --select V651": ckptdoctor("check", "--deep", "--select", "V651", one),
                "sft check": [tools["sft"], "check", one],
                "sft stat": [tools["sft"], "stat", one],
                "model-clinic validate": [tools["model-clinic"], "validate", one],
                "model-clinic xray": [tools["model-clinic"], "xray", one],
            },
            rounds,
        )
        for title, second in (("equal", one), ("every value differs", other)):
            compare(
                f"1 GB and 1 GB of {dtype}, {title}",
                {
                    "ckptdoctor diff --values": ckptdoctor("diff", "--values", one, second),
                    "sft diff --delta": [tools["sft"], "diff", "--delta", one, second],
                    "model-clinic diff": [tools["model-clinic"], "diff", one, second],
                },
                rounds,
            )
    not_a_number(tools, made)


def not_a_number(tools: dict[str, str], made: Path) -> None:
    """Print which tool finds one in which dtype."""
    print("\na NaN in a small file: exit status of the sound one, and of the one with a NaN; whether NaN is spoken of")
    for dtype in DTYPES:
        for name, command in {
            "ckptdoctor check --deep": ckptdoctor("check", "--deep", "--select", "V"),
            "sft check": [tools["sft"], "check"],
            "sft stat --check": [tools["sft"], "stat", "--check"],
            "model-clinic validate": [tools["model-clinic"], "validate"],
            "model-clinic exam": [tools["model-clinic"], "exam"],
        }.items():
            sound, sick = (once([*command, str(made / f"{kind}_{dtype}.safetensors")]) for kind in ("sound", "nan"))
            print(f"  {dtype:<14} {name:<26} {verdict(sound, sick)}")


def environment(place: Path, name: str, wanted: Sequence[str]) -> str:
    """The program in a virtual environment that has nothing else."""
    program = place / "bin" / name
    if not program.exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", *wanted], check=True)
    return str(program)


def files(folder: Path) -> Path:
    """The folder with all files."""
    place = folder / "peers"
    if not (place / f"nan_{DTYPES[-1]}.safetensors").exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", MAKE, str(place), str(LAYERS), str(GB)], check=True)
    return place


def once(command: Sequence[str]) -> Run:
    """Run one process to its end, whatever its exit status."""
    start = time.perf_counter()
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    cpu = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu, usage.ru_maxrss * MAXRSS_UNIT / 1e6, os.waitstatus_to_exitcode(status), text)


def compare(title: str, commands: dict[str, Sequence[str]], rounds: int) -> None:
    """Print medians over the rounds after a warm-up, and how many times as long as the first each takes."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            run = once(command)
            if turn:
                runs[name].append(run)
    medians = {
        name: (statistics.median(run.seconds for run in each), statistics.median(run.cpu for run in each))
        for name, each in runs.items()
    }
    first = next(iter(medians.values()))
    print(f"\n{title}")
    for name, (wall, cpu) in medians.items():
        peak, status = max(run.peak_mb for run in runs[name]), runs[name][-1].status
        ratios = f"×{wall / first[0]:5.2f}   {cpu:7.2f} s CPU  ×{cpu / first[1]:5.2f}"
        print(f"  {name:<38} {wall:7.2f} s  {ratios}  {peak:6.0f} MB  status {status}")
    sys.stdout.flush()


def verdict(sound: Run, sick: Run) -> str:
    """What a tool makes of a sound file and of the same with a NaN."""
    told = "speaks of NaN" if "nan" in sick.text.lower().replace("no nan", "") else "does not speak of NaN"
    crashed = next((line for line in reversed(sick.text.strip().split("\n")) if "Error" in line), "")
    end = f": {crashed.strip()[:90]}" if "Traceback" in sick.text else ""
    return f"{sound.status} → {sick.status}  {told}{end}"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
