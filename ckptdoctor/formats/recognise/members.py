"""Says what an archive holds by the names of its members."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.formats.recognise.magic import shortened
from ckptdoctor.wording import and_more

# suffixes of files that hold weights
SUFFIXES = (
    *(".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pkl", ".tar", ".t7"),
    *(".h5", ".gguf", ".onnx", ".npz", ".msgpack", ".pdparams"),
)

# and of those that may hold one in their turn
_PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")

_MOST_NAMED = 3


def checkpoints_in(names: Sequence[str], unpack: str) -> str:
    """Return one sentence on the checkpoints among an archive's members, and the command that takes them out."""
    found = [name for name in names if name.lower().endswith(SUFFIXES) and not is_junk(name)]
    if not found:
        others = f", only {listed(names)}" if names else ""
        return f"It does not hold a checkpoint{others}."
    return f"It holds {listed(found)}: unpack it ({unpack}) and open that."


def may_be_weights(name: str) -> bool:
    """Return whether a member's name is that of a checkpoint, or of something that one may be packed in."""
    return name.lower().endswith(SUFFIXES + _PACKED)


def is_junk(name: str) -> bool:
    """Return whether macOS put the file there: its archiver adds a shadow of each file."""
    return name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith("._")


def listed(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    return and_more(names, _MOST_NAMED, say=lambda name: f'"{shortened(name, 80)}"')
