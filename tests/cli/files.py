"""Files that the tests of the commands share."""

from __future__ import annotations

from pathlib import Path

from ckptdoctor.rules.examples import Obj, T
from tests import builders

HOSTILE = "a\x1b[31m\x1b]0;title\x07\u202eevil\u200b\nline\x00"


def sick(folder: Path) -> Path:
    """A DataParallel checkpoint: an error with a safe repair."""
    path = folder / "sick.pt"
    builders.save({"module.fc.weight": T((2, 3)), "module.fc.bias": T((2,))}, path)
    return path


def healthy(folder: Path) -> Path:
    """A plain state dict with nothing to find."""
    path = folder / "healthy.pt"
    builders.save({"fc.weight": T((2, 3)), "fc.bias": T((2,))}, path)
    return path


def training(folder: Path) -> Path:
    """Weights, an optimizer, and other things, on a GPU of another machine."""
    path = folder / "training.pt"
    contents = {
        "epoch": 41,
        "args": Obj("argparse.Namespace", {"lr": 0.1}),
        "state_dict": {"module.fc.weight": T((2, 3), device="cuda:1"), "module.fc.bias": T((2,), device="cuda:1")},
    }
    builders.save(contents, path)
    return path


def hostile(folder: Path) -> Path:
    """Keys, values and class names that would take over a terminal."""
    path = folder / "hostile.pt"
    contents = {
        "state_dict": {f"module.{HOSTILE}.weight": T((2, 3)), f"module.{HOSTILE}.bias": T((2,))},
        HOSTILE: HOSTILE,
        "long": "x" * 100_000,
        "k" * 100_000: 1,
        "number": 10**3000,
    }
    builders.save(contents, path)
    return path


def printable(output: bytes) -> bool:
    """Whether nothing in the output but line ends is a control, format or other invisible character."""
    return all(line.isprintable() for line in output.decode().split("\n"))


def spelt(value: object) -> str | None:
    """The id of a parametrised test: a command line as it is typed; None leaves the rest to pytest."""
    return " ".join(value) if isinstance(value, list) else None
