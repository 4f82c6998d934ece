"""What to say of an archive by the names of its members."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.formats.recognise.found import shortened

# suffixes of files that hold weights
SUFFIXES = (
    *(".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pkl", ".tar", ".t7"),
    *(".h5", ".gguf", ".onnx", ".npz", ".msgpack", ".pdparams"),
)

_MOST_NAMED = 3


def checkpoints_in(names: Sequence[str], unpack: str) -> str:
    """One sentence on the checkpoints among an archive's members, and the command that takes them out."""
    found = [name for name in names if name.lower().endswith(SUFFIXES) and not _is_junk(name)]
    if not found:
        listed = f", only {_listed(names)}" if names else ""
        return f"It holds no checkpoint{listed}."
    return f"It holds {_listed(found)}: unpack it ({unpack}) and open that."


def _is_junk(name: str) -> bool:
    """Whether macOS put the file there: its archiver adds a shadow of each file."""
    return name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith("._")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"“{shortened(name, 80)}”" for name in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown
