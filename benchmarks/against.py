"""Accounting for 2 GB in exports of it, next to one read of both, in one run, with everything in the page cache.

``python benchmarks/against.py FOLDER [ROUNDS]``: the folder needs 15 GB. Reach: at most three times one read of both,
in 150 MB. MB is the most memory that a process had resident at once. Another process writes the files, and this one
imports little: the system never tells less of a process than what the one that started it held. What is printed are
rows of a table; where other work uses the same cores, CPU seconds of all threads tell more than the clock.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from measure import ckptdoctor, python, side_by_side

if TYPE_CHECKING:
    import numpy as np

READ = """
import sys
room = memoryview(bytearray(1 << 20))
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(room):
            pass
"""

LAYERS, WIDTH, HEADS = 76, 1280, 20
PARTS = ("q", "k", "v", "o")  # of each layer: 2 GB of float32 in square matrices, all of one size
SIZES = {"F32": 4 * 256, "F16": 2 * 256, "Q8_0": 34 * 8, "Q4_0": 18 * 8, "Q4_K": 144, "Q6_K": 210}  # bytes of 256


def matrices() -> Iterator[tuple[int, str, np.ndarray]]:
    """Each matrix, with its layer and its part."""
    import numpy as np

    for layer in range(LAYERS):
        rng = np.random.default_rng(layer)
        for part in PARTS:
            yield layer, part, rng.standard_normal((WIDTH, WIDTH), np.float32)


def llama(layer: int, part: str) -> str:
    """What transformers calls a matrix of Llama."""
    return f"model.layers.{layer}.self_attn.{part}_proj.weight"


def gpt2(layer: int, part: str) -> str:
    """What it calls one of GPT-2 that llama.cpp turns: each is that of a layer of its own."""
    return f"transformer.h.{layer * len(PARTS) + PARTS.index(part)}.attn.c_proj.weight"


def saved(path: Path, name: Callable[[int, str], str]) -> Path:
    """All of them, as torch saves them."""
    if not path.exists():
        import torch

        torch.save({name(layer, part): torch.from_numpy(each) for layer, part, each in matrices()}, path)
    return path


def stored(path: Path, dtype: str, fused: bool = False) -> Path:
    """The same in safetensors, and perhaps in another dtype, or with queries, keys and values in one."""
    if not path.exists():
        import torch
        from safetensors.torch import save_file

        made: dict[str, list[torch.Tensor]] = {}
        for layer, part, each in matrices():
            name = llama(layer, "qkv" if fused and part != "o" else part)
            made.setdefault(name, []).append(torch.from_numpy(each).to(getattr(torch, dtype)))
        save_file({name: torch.cat(each) for name, each in made.items()}, path)
    return path


def packed(path: Path, kind: str, architecture: str = "qwen2") -> Path:
    """The same for llama.cpp, whose converter changes the order in files for llama and gpt2."""
    if not path.exists():
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from tests.against.exports import STORED, permuted
        from tests.formats.gguf.forge import gguf_bytes

        def name(layer: int, part: str) -> str:
            if architecture == "gpt2":
                return f"blk.{layer * len(PARTS) + PARTS.index(part)}.attn_output.weight"
            return f"blk.{layer}.attn_{'output' if part == 'o' else part}.weight"

        size = WIDTH * WIDTH // 256 * SIZES[kind]  # a multiple of 32, so that nothing is between two of them
        shown = {name(layer, part): (kind, (WIDTH, WIDTH), b"") for layer in range(LAYERS) for part in PARTS}
        told = {"general.architecture": architecture, f"{architecture}.attention.head_count": HEADS}
        with path.open("wb") as file:
            file.write(gguf_bytes(shown, told, step=size))
            for _, part, values in matrices():
                if architecture == "gpt2":
                    values = values.T
                elif architecture == "llama" and part in "qk":
                    values = permuted(values, HEADS)
                file.write(STORED[kind](values))
    return path


def pairs(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield each kind of export by its name, with the source and the export; what is not there is written."""
    source = saved(folder / "against.pt", llama)
    yield "the same bits", source, stored(folder / "against_f32.safetensors", "float32")
    yield "bfloat16", source, stored(folder / "against_bf16.safetensors", "bfloat16")
    yield "float16", source, stored(folder / "against_f16.safetensors", "float16")
    for kind in ("Q8_0", "Q4_0", "Q4_K", "Q6_K"):
        yield kind, source, packed(folder / f"against_{kind}.gguf", kind)
    yield "float16, fused", source, stored(folder / "against_fused.safetensors", "float16", fused=True)
    yield "float16, rotary pairs", source, packed(folder / "against_pairs.gguf", "F16", "llama")
    turned = saved(folder / "against_gpt2.pt", gpt2)
    yield "float16, transposed", turned, packed(folder / "against_turned.gguf", "F16", "gpt2")


def main(folder: Path, rounds: int) -> None:
    """Print a row for each kind of export."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, __file__, str(folder), "write"], check=True)
    print("| a `.pt` of 2 GB and its export | `verify --against` | one read of both | ratio |\n|---|---|---|---|")
    for name, source, export in pairs(folder):
        own = ckptdoctor("verify", str(export), "--against", str(source))
        subprocess.run([*own, "--quiet"], check=True)  # all of it is accounted for
        measured = side_by_side({"read": python(READ, str(source), str(export)), "own": own}, rounds)
        read, ours = measured["read"], measured["own"]
        print(
            f"| {name} | {ours.seconds:.2f} s ({ours.cpu:.2f} s CPU), {ours.peak_mb:.0f} MB "
            f"| {read.seconds:.2f} s ({read.cpu:.2f} s CPU) | {ours.seconds / read.seconds:.1f} × the time, "
            f"{ours.cpu / read.cpu:.1f} × the CPU seconds |",
            flush=True,
        )


if __name__ == "__main__":
    given = Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files")
    if sys.argv[2:] == ["write"]:
        list(pairs(given))
    else:
        main(given, int(sys.argv[2]) if len(sys.argv) > 2 else 5)
