"""Says which suffixes fit which contents, what is wrong with others, and what one asks for in an output's name."""

from __future__ import annotations

import os
import os.path

from ckptdoctor.checkpoint import Container, Note, NoteKind
from ckptdoctor.errors import UsageError
from ckptdoctor.shell import quote
from ckptdoctor.wording import did_you_mean, format_name

# suffixes of files that are written for torch, and those by which programs choose torch or safetensors
TORCH_OUTPUTS = (".pt", ".pth", ".ckpt", ".bin")
TORCH = frozenset({*TORCH_OUTPUTS, ".pt2", ".pth.tar"})
SAFETENSORS = (".safetensors", ".sft")

# suffixes that belong to one format alone, none of which torch.load is ever used on
_FOREIGN = frozenset({".gguf", ".onnx", ".h5", ".hdf5", ".keras", ".npz", ".npy", ".json", ".msgpack", ".tflite"})

# other contents that carry torch's or safetensors' suffixes by right or by old custom
_AT_HOME = {
    "TorchScript archive": TORCH,
    "torch tar": TORCH,
    "torch.export program": TORCH,
    "ExecuTorch program": frozenset({".bin"}),
    "GGML file": frozenset({".bin", ".pt"}),
    "TensorFlow checkpoint": frozenset({".ckpt"}),
    "pickle": frozenset({".bin", ".ckpt"}),
    "torch distributed checkpoint shard": TORCH,
}

# what other contents are called when they are named for torch; the first suffix is the one people expect
OWN = {
    "GGUF file": ".gguf",
    "HDF5 file": ".h5",
    "NumPy array": ".npy",
    "NumPy archive": ".npz",
    "ONNX model": ".onnx",
}


def suffix_notes(container: Container) -> tuple[Note, ...]:
    """Return a note when the file's suffix promises another format than its contents have.

    Names without a suffix, with an unknown one, and of unfinished downloads (``.incomplete``) promise nothing.
    """
    suffix = os.path.splitext(container.path)[1].lower()
    fitting = _fitting(container, suffix)
    if not fitting:
        return ()
    message = f"the suffix is {suffix}, but the contents are {format_name(container.format)}, which fits {fitting}"
    return (Note(NoteKind.WRONG_SUFFIX, message),)


def _fitting(container: Container, suffix: str) -> str:
    """Return the suffix that the file should have, or "" where its own will do."""
    name = container.format
    if name == "safetensors":
        return ".safetensors" if suffix in TORCH or suffix in _FOREIGN else ""
    if name.startswith("torch ") and container.readable:
        return ".pt" if suffix in SAFETENSORS or suffix in _FOREIGN else ""
    if suffix in _AT_HOME.get(name, frozenset()):
        return ""
    return OWN.get(name, "") if suffix in TORCH or suffix in SAFETENSORS else ""


# ---- the container that the name of an output asks for


_WRITTEN = ".pt .pth .ckpt .bin .safetensors or a folder"
# what writes that which nothing here does
_WRITERS = {".gguf": ("GGUF", "llama.cpp's convert_hf_to_gguf.py"), ".onnx": ("ONNX", "torch.onnx.export")}


def not_written(output: str) -> str:
    """Return the sentence for an output whose name asks for nothing that is written here."""
    suffix = os.path.splitext(output)[1].lower()
    if suffix in _WRITERS:
        name, writer = _WRITERS[suffix]
        return f"ckptdoctor cannot write {name}. It writes {_WRITTEN}. For {name} use {writer}."
    if not suffix:
        return f"{output}: an output without a suffix. ckptdoctor writes {_WRITTEN}: {output}.safetensors, or {output}/"
    offer = did_you_mean(suffix, TORCH_OUTPUTS + SAFETENSORS)
    return f"{output}: ckptdoctor cannot write {suffix} files. It writes {_WRITTEN}.{offer}"


TORCH_ZIP, SINGLE, SHARDED = "torch zip", "safetensors", "sharded safetensors"
DISTRIBUTED = "torch distributed checkpoint"
_OF_TORCH = (TORCH_ZIP, "torch legacy")


def asked_for(output: str | None, own: str) -> str | None:
    """Return the container that the name of a repair's output asks for, or None where it is ``own``.

    A folder that is there takes a file of the original's name, and a suffix that says nothing leaves the container.
    Raises UsageError for one of a container that others write.
    """
    if output is None or os.path.isdir(output):
        return None
    if os.path.splitext(output)[1].lower() in _WRITERS:
        raise UsageError(not_written(output))
    if output.endswith(("/", os.sep)):
        return SHARDED
    suffix = os.path.splitext(output)[1].lower()
    if suffix in SAFETENSORS:
        return None if own == SINGLE else SINGLE
    return TORCH_ZIP if suffix in TORCH_OUTPUTS and own not in _OF_TORCH else None


def require_own_format(command: str, path: str, output: str | None, own: str) -> None:
    """Raise UsageError, with two commands that do it, for an output whose name asks for another container than ``own``.

    ``command`` keeps the container of the file at ``path``, as ``salvage`` and ``graft`` do. A suffix that this file
    has itself is taken as it is: the file may have the wrong one.
    """
    if output is None:
        return
    stem, suffix = os.path.splitext(output)
    wanted = asked_for(output, own)
    if wanted not in (SINGLE, TORCH_ZIP) or suffix.lower() == os.path.splitext(path)[1].lower():
        return
    kept = stem + (".safetensors" if own == SINGLE else ".pt")
    raise UsageError(
        f"{output}: {command} keeps the format of {path}, which is {format_name(own)}, but {suffix} asks for "
        f"{format_name(wanted)}. Use -o {quote(kept)}, and afterwards: ckptdoctor convert {quote(kept)} {quote(output)}"
    )


# ---- what a packed checkpoint is called once it is unpacked


# what is left out of the name of a packed file, from the end
_PACKING = (".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".z", ".lzma", ".zip", ".tar", ".mar")

# what other contents are called; torch's own come first
_OTHERS = {"NumPy archive": (".npz",), "NumPy array": (".npy",), "pickle": (".pkl", ".pickle", ".joblib")}


def unwrapped_path(container: Container) -> str | None:
    """Return where the inside of a packed file goes: next to it, under its name without what says how it was packed.

    Only its own name counts, or the one that the person gave (``weights.zip/epoch_9.pt``), and not names inside of the
    file, which could be anything. None where it is not packed.
    """
    wrapped = next((note for note in container.notes if note.kind is NoteKind.ARCHIVE_WRAPPED), None)
    if wrapped is None:
        return None
    path, member = container.path, wrapped.member
    if member and path.endswith(f"/{member}"):
        path = os.path.join(os.path.dirname(path[: -len(member) - 1]), member.rpartition("/")[2])
    stem = path
    while stem.lower().endswith(_PACKING):
        stem = os.path.splitext(stem)[0]
    fitting = _suffixes_of(container.format)
    known, suffix = os.path.splitext(stem)
    if suffix.lower() in fitting:
        return stem
    if suffix.lower() in (*TORCH_OUTPUTS, *SAFETENSORS):
        stem = known
    return stem + fitting[0]


def _suffixes_of(format_: str) -> tuple[str, ...]:
    if format_ == "safetensors":
        return SAFETENSORS
    return _OTHERS.get(format_, TORCH_OUTPUTS)
