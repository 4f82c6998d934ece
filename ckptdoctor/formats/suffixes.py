"""Which suffixes fit which contents, and what is said when a file's does not."""

from __future__ import annotations

import os.path

from ckptdoctor.checkpoint import Container, Note, NoteKind

# suffixes by which programs choose torch, and those by which they choose safetensors
TORCH = frozenset({".pt", ".pth", ".ckpt", ".bin", ".pt2", ".pth.tar"})
SAFETENSORS = frozenset({".safetensors", ".sft"})

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
    """A note when the file's suffix promises another format than its contents have.

    Names without a suffix, with an unknown one, and of unfinished downloads (``.incomplete``) promise nothing.
    """
    suffix = os.path.splitext(container.path)[1].lower()
    fitting = _fitting(container, suffix)
    if not fitting:
        return ()
    message = f"the suffix is {suffix}, but the contents are {container.format}, which fits {fitting}"
    return (Note(NoteKind.WRONG_SUFFIX, message),)


def _fitting(container: Container, suffix: str) -> str:
    """The suffix that the file should have; "" where its own will do."""
    name = container.format
    if name == "safetensors":
        return ".safetensors" if suffix in TORCH or suffix in _FOREIGN else ""
    if name.startswith("torch ") and container.readable:
        return ".pt" if suffix in SAFETENSORS or suffix in _FOREIGN else ""
    if suffix in _AT_HOME.get(name, frozenset()):
        return ""
    return OWN.get(name, "") if suffix in TORCH or suffix in SAFETENSORS else ""
