"""Recognises formats by the bytes at a fixed place, and says what any recogniser finds: a name, and what opens it."""

from __future__ import annotations

import re
from typing import NamedTuple

from ckptdoctor.checkpoint import Container, Note, Source
from ckptdoctor.shell import quote


class Found(NamedTuple):
    """The name of what the file is ("HDF5 file"), one sentence on what opens it, and notes."""

    name: str
    guidance: str
    notes: tuple[Note, ...] = ()


def container(source: Source, head: bytes, found: Found) -> Container:
    """Return the container of something that is recognised but not read."""
    guidance = re.sub(r"\bFILE\b", lambda _: quote(source.path), found.guidance)
    return Container(source.path, source.size, found.name, head, False, guidance, found.notes, source.identity)


def shortened(text: str, most: int = 120) -> str:
    """Return text from a file on one line, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


class Magic(NamedTuple):
    """``name`` has ``bytes_`` at ``offset``; ``guidance`` says what opens it."""

    offset: int
    bytes_: bytes
    name: str
    guidance: str


_HDF5 = "h5py opens it; weights that Keras saved are read by keras.saving.load_model or model.load_weights."
_GGML = "It is from before GGUF: llama.cpp has scripts that convert it, and reads the result."
_IMAGE = "It is a picture, so the wrong file was saved or named."

# the first that fits counts; more specific ones come first
MAGICS = (
    Magic(
        0, b"GGUF", "GGUF file", "llama.cpp and the gguf package read it; it holds weights for llama.cpp, not torch."
    ),
    Magic(0, b"FUGG", "GGUF file", "llama.cpp and the gguf package read it (this one is big-endian)."),
    Magic(0, b"lmgg", "GGML file", _GGML),
    Magic(0, b"fmgg", "GGML file", _GGML),
    Magic(0, b"tjgg", "GGML file", _GGML),
    Magic(0, b"algg", "GGML file", _GGML),
    Magic(0, b"\x89HDF\r\n\x1a\n", "HDF5 file", _HDF5),
    Magic(512, b"\x89HDF\r\n\x1a\n", "HDF5 file", _HDF5),
    Magic(
        4, b"ET12", "ExecuTorch program", "ExecuTorch's runtime loads it; the weights cannot be extracted for training."
    ),
    Magic(4, b"PTMF", "torch mobile program", "torch.jit.load reads it (a flatbuffer for mobile devices)."),
    Magic(4, b"TFL3", "TensorFlow Lite model", "tf.lite.Interpreter loads it; its weights are for inference only."),
    Magic(8, b"\x03\x00\x00\x00V 1", "Torch7 file", "The package torchfile reads files of the Lua version of Torch."),
    Magic(
        0, b"ptrt", "TensorRT engine", "TensorRT's runtime loads it; look for the checkpoint that it was built from."
    ),
    Magic(0, b"MATLAB 5.0 MAT-file", "MATLAB file", "scipy.io.loadmat reads it."),
    Magic(0, b"7z\xbc\xaf\x27\x1c", "7z archive", "Unpack it (7z x FILE) and open the checkpoint inside."),
    Magic(0, b"Rar!\x1a\x07", "RAR archive", "Unpack it (unrar x FILE) and open the checkpoint inside."),
    Magic(0, b"\x28\xb5\x2f\xfd", "zstd file", "Unpack it (zstd -d FILE) and open the result."),
    Magic(0, b"\x04\x22\x4d\x18", "lz4 file", "Unpack it (lz4 -d FILE) and open the result."),
    Magic(0, b"SQLite format 3\x00", "SQLite database", "sqlite3 opens it; it is not a checkpoint."),
    Magic(0, b"PAR1", "Parquet file", "pyarrow and pandas read it; it holds data, not weights."),
    Magic(0, b"ARROW1", "Arrow file", "pyarrow reads it; it holds data, not weights."),
    Magic(0, b"%PDF-", "PDF document", "It is a document, so the wrong file was saved or named."),
    Magic(0, b"\x89PNG\r\n\x1a\n", "PNG image", _IMAGE),
    Magic(0, b"\xff\xd8\xff", "JPEG image", _IMAGE),
    Magic(0, b"GIF8", "GIF image", _IMAGE),
    Magic(0, b"\x7fELF", "ELF program", "It is a program or a library, so the wrong file was saved or named."),
    Magic(
        0, b"\xcf\xfa\xed\xfe", "Mach-O program", "It is a program or a library, so the wrong file was saved or named."
    ),
)

# how the contents of a compressed file are called, by their first bytes
_INSIDE = (
    (0, b"PK\x03\x04", "a zip archive, as torch.save writes it"),
    (0, b"\x80\x02\x8a\x0a", "a torch file from before 1.6"),
    (257, b"ustar", "a tar archive"),
    (8, b'{"', "a safetensors file"),
    (0, b"\x80", "a pickle"),
)


def sniff(head: bytes) -> Found | None:
    """Return what the first bytes of the file are known for, or None when they are known for nothing."""
    for magic in MAGICS:
        if head.startswith(magic.bytes_, magic.offset):
            return Found(magic.name, magic.guidance)
    return None


def inside(head: bytes) -> str:
    """Return what the first bytes of unpacked contents look like, or "" when that cannot be told."""
    return next((name for offset, magic, name in _INSIDE if head.startswith(magic, offset)), "")
