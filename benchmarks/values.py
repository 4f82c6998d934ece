"""Every value of 2 GB in the page cache, by whole processes: beside torch, sft-cli and model-clinic, in one run.

``python benchmarks/values.py FOLDER [ROUNDS]``: the folder needs 12 GB of real space, and 10 GB of memory must be free
to cache it; files and the environments of the other tools stay there for the next run. All sides take turns. What is
printed are rows of a table as ``docs/benchmarks.md`` has it: wall clock is what counts on a quiet machine, CPU seconds
of all threads tell more on a busy one. Reach: ``check --deep`` of float32 in 0.5 s and 150 MB, of 16 bits in 0.9 s,
``diff --values`` in 0.8 s, ``show --stats`` in 0.9 s, and a ``.pt`` within 1.3 times a safetensors file.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import files
from measure import Measured, ckptdoctor, python, side_by_side
from peers import PEERS, environment

DTYPES = ("float32", "bfloat16", "float16")

# values as weights have them, in 300 tensors; a copy of float32 that differs throughout, and one as torch saves it
MAKE = """
import sys, torch
from safetensors.torch import save_file
folder, nbytes, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for name in ("float32", "bfloat16", "float16"):
    dtype, source = getattr(torch, name), torch.Generator().manual_seed(0)
    each = nbytes // layers // dtype.itemsize
    state = {f"layers.{i}.weight": (torch.randn(each, generator=source) * 0.02).to(dtype) for i in range(layers)}
    save_file(state, f"{folder}/{name}.safetensors", metadata={"format": "pt"})
    if name == "float32":
        torch.save(state, f"{folder}/{name}.pt")
        for value in state.values():
            value *= 1.01
        save_file(state, f"{folder}/{name}_tuned.safetensors", metadata={"format": "pt"})
"""

# the shortest scripts that look at every value
SUMS = """
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as file:
    print([file.get_tensor(key).sum().item() for key in file.keys()][-1])
"""
SUMS_OF_TORCH = """
import sys, torch
print([each.sum().item() for each in torch.load(sys.argv[1], mmap=True, weights_only=True).values()][-1])
"""
FINITE = """
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as file:
    print(any(file.get_tensor(key).isnan().any() for key in file.keys()))
"""
APART = """
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as one, safe_open(sys.argv[2], "pt") as other:
    print(max((one.get_tensor(key) - other.get_tensor(key)).abs().max().item() for key in one.keys()))
"""


def main(folder: Path, rounds: int) -> None:
    """Print all rows."""
    made = weights(folder)
    sft, clinic = (environment(folder / f"venv-{name}", name, wanted) for name, wanted in PEERS.items())
    print("| what | ckptdoctor | compared with | ratio |\n|---|---|---|---|")
    for dtype in DTYPES:
        one = str(made / f"{dtype}.safetensors")
        rows(
            f"`check --deep` of 2 GB of {dtype}",
            {
                "itself": ckptdoctor("check", "--deep", one),
                "one `sum()` of each tensor in torch": python(SUMS, one),
                "`isnan().any()` of each": python(FINITE, one),
                "`sft check`": [sft, "check", one],
                "`sft stat`": [sft, "stat", one],
                "`model-clinic xray`": [clinic, "xray", one],
                "`check --deep --select V651`": ckptdoctor("check", "--deep", "--select", "V651", one),
                "`show --stats`": ckptdoctor("show", "--stats", one),
            },
            rounds,
        )
    one, saved, tuned = [str(made / f"float32{end}") for end in (".safetensors", ".pt", "_tuned.safetensors")]
    rows(
        "`check --deep` of a `.pt` of 2 GB of float32",
        {
            "itself": ckptdoctor("check", "--deep", saved),
            "the same of safetensors, which has no checksums": ckptdoctor("check", "--deep", one),
            "one `sum()` of each tensor in torch": python(SUMS_OF_TORCH, saved),
        },
        rounds,
    )
    rows(
        "`diff --values` of 2 GB that differ in every value",
        {
            "itself": ckptdoctor("diff", "--values", one, tuned),
            "the largest difference in torch": python(APART, one, tuned),
            "`sft diff --delta`": [sft, "diff", "--delta", one, tuned],
            "`model-clinic diff`": [clinic, "diff", one, tuned],
        },
        rounds,
    )


def weights(folder: Path) -> Path:
    """The folder with all files."""
    place = folder / "values"
    if not (place / f"{DTYPES[-1]}.safetensors").exists():
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", MAKE, str(place), str(files.TWO_GB), str(files.LAYERS)]
        subprocess.run(command, check=True)
    return place


def rows(what: str, commands: dict[str, Sequence[str]], rounds: int) -> None:
    """Print a row for each command beside the first one."""
    measured = side_by_side(commands, rounds)
    own = measured.pop("itself")
    for name, each in measured.items():
        first = what, told(own)
        wall, cpu = each.seconds / own.seconds, each.cpu / own.cpu
        print(f"| {' | '.join(first)} | {name}: {told(each)} | {wall:.1f} × the time, {cpu:.1f} × the CPU seconds |")
    sys.stdout.flush()


def told(measured: Measured) -> str:
    """The figures of one side."""
    return f"{measured.seconds:.2f} s ({measured.cpu:.2f} s CPU), {measured.peak_mb:,.0f} MB"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
