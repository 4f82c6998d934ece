"""Accounting for 2 GB in exports of it, next to one read of both, in one run, with everything in the page cache.

``python benchmarks/against.py FOLDER [ROUNDS]``. Reach: at most three times one read of both, in 150 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from measure import ckptdoctor, python, show, side_by_side
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.against import exports
from tests.formats.gguf.forge import gguf_bytes

READ = """
import sys
room = memoryview(bytearray(1 << 20))
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(room):
            pass
"""


LAYERS, ROWS, COLUMNS = 300, 1302, 1280  # 2 GB of float32


def layers() -> Iterator[tuple[str, np.ndarray]]:
    """Each matrix by its name."""
    for layer in range(LAYERS):
        rng = np.random.default_rng(layer)
        yield f"layers.{layer}.weight", rng.standard_normal((ROWS, COLUMNS), np.float32)


def source(folder: Path) -> Path:
    """All of them, as torch saves them."""
    path = folder / "matrices.pt"
    if not path.exists():
        torch.save({name: torch.from_numpy(each) for name, each in layers()}, path)
    return path


def stored(folder: Path, dtype: torch.dtype) -> Path:
    """The same in another container, and perhaps in another dtype."""
    path = folder / f"matrices_{str(dtype)[6:]}.safetensors"
    if not path.exists():
        save_file({name: torch.from_numpy(each).to(dtype) for name, each in layers()}, path)
    return path


def packed(folder: Path, kind: str, nbytes: int) -> Path:
    """The same for llama.cpp."""
    path = folder / f"matrices_{kind}.gguf"
    if not path.exists():
        size = ROWS * COLUMNS // 32 * nbytes  # a multiple of 32, so that nothing is between two of them
        shown = {f"layers.{layer}.weight": (kind, (ROWS, COLUMNS), b"") for layer in range(LAYERS)}
        head = gguf_bytes(shown, {"general.architecture": "benchmark"}, step=size)
        with path.open("wb") as file:
            file.write(head)
            for _, values in layers():
                file.write(exports.STORED[kind](values))
    return path


def main(folder: Path, rounds: int) -> None:
    """Print each kind of export."""
    folder.mkdir(parents=True, exist_ok=True)
    made = str(source(folder))
    pairs = {
        "the same bits": stored(folder, torch.float32),
        "bfloat16": stored(folder, torch.bfloat16),
        "Q8_0": packed(folder, "Q8_0", 34),
        "Q4_0": packed(folder, "Q4_0", 18),
    }
    for name, path in pairs.items():
        commands = {
            "one read of both": python(READ, made, str(path)),
            "ckptdoctor verify --against": ckptdoctor("verify", str(path), "--against", made),
        }
        show(name, side_by_side(commands, rounds))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files"), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
