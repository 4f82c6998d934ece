"""Accounting for 2 GB in exports of it, next to one read of both, in one run, with everything in the page cache.

``python benchmarks/against.py FOLDER [ROUNDS]``. Reach: at most three times one read of both, in 150 MB. MB is the most
memory that a process had resident at once. Another process writes the files, and this one imports little: the system
never tells less of a process than what the one that started it held.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from measure import ckptdoctor, python, show, side_by_side

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


LAYERS, ROWS, COLUMNS = 300, 1302, 1280  # 2 GB of float32


def layers() -> Iterator[tuple[str, np.ndarray]]:
    """Each matrix by its name."""
    import numpy as np

    for layer in range(LAYERS):
        rng = np.random.default_rng(layer)
        yield f"layers.{layer}.weight", rng.standard_normal((ROWS, COLUMNS), np.float32)


def source(folder: Path) -> Path:
    """All of them, as torch saves them."""
    path = folder / "matrices.pt"
    if not path.exists():
        import torch

        torch.save({name: torch.from_numpy(each) for name, each in layers()}, path)
    return path


def stored(folder: Path, dtype: str) -> Path:
    """The same in another container, and perhaps in another dtype."""
    path = folder / f"matrices_{dtype}.safetensors"
    if not path.exists():
        import torch
        from safetensors.torch import save_file

        save_file({name: torch.from_numpy(each).to(getattr(torch, dtype)) for name, each in layers()}, path)
    return path


def packed(folder: Path, kind: str, nbytes: int) -> Path:
    """The same for llama.cpp."""
    path = folder / f"matrices_{kind}.gguf"
    if not path.exists():
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from tests.against import exports
        from tests.formats.gguf.forge import gguf_bytes

        size = ROWS * COLUMNS // 32 * nbytes  # a multiple of 32, so that nothing is between two of them
        shown = {f"layers.{layer}.weight": (kind, (ROWS, COLUMNS), b"") for layer in range(LAYERS)}
        head = gguf_bytes(shown, {"general.architecture": "benchmark"}, step=size)
        with path.open("wb") as file:
            file.write(head)
            for _, values in layers():
                file.write(exports.STORED[kind](values))
    return path


def pairs(folder: Path) -> dict[str, Path]:
    """Each kind of export by its name; what is not there is written."""
    return {
        "the same bits": stored(folder, "float32"),
        "bfloat16": stored(folder, "bfloat16"),
        "float16": stored(folder, "float16"),
        "Q8_0": packed(folder, "Q8_0", 34),
        "Q4_0": packed(folder, "Q4_0", 18),
    }


def main(folder: Path, rounds: int) -> None:
    """Print each kind of export."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, __file__, str(folder), "write"], check=True)
    made = str(source(folder))
    for name, path in pairs(folder).items():
        commands = {
            "one read of both": python(READ, made, str(path)),
            "ckptdoctor verify --against": ckptdoctor("verify", str(path), "--against", made),
        }
        show(name, side_by_side(commands, rounds))


if __name__ == "__main__":
    given = Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark_files")
    if sys.argv[2:] == ["write"]:
        source(given)
        pairs(given)
    else:
        main(given, int(sys.argv[2]) if len(sys.argv) > 2 else 5)
