"""Plain and quantised weights of the same layers, in one checkpoint or in one folder."""

from __future__ import annotations

import os
import re
import stat

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.descriptors import READING
from ckptdoctor.checkpoint.dtypes import BY_SAFETENSORS
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts.quantization import AWQ, BNB4, GPTQ, Layer, dtype_of, quantized, quantized_in
from ckptdoctor.facts.siblings import Folder, blob_of, folder_of
from ckptdoctor.noun import noun

_PLAIN = ("float64", "float32", "float16", "bfloat16")
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_OWN = frozenset({"model.safetensors"})
_INDEX = "model.safetensors.index.json"
_LOOKED_AT = 8  # files beside the checkpoint, at most
_LONGEST = 8 << 20  # bytes of a header that are read, at most


@noun
class Stray:
    """A file beside the checkpoint: its name, what it holds of the same layers, and how many of those there are."""

    name: str
    scheme: str
    quantized: bool
    layers: int


def both(state_dict: StateDict) -> tuple[Layer, ...]:
    """The layers of a state dict that are there twice: packed, and plain under the plain name."""
    tensors = {tensor.key: tensor for tensor in state_dict.tensors}
    return tuple(
        [
            layer
            for layer in quantized_in(state_dict).layers
            if layer.scheme in (BNB4, GPTQ, AWQ)
            and layer.parts.get("weight") != layer.key
            and dtype_of(tensors.get(layer.key)) in _PLAIN
        ]
    )


def strays(checkpoint: Checkpoint) -> list[Stray]:
    """Files that a loader of all ``*.safetensors`` in the folder of a Hugging Face model reads with this one."""
    folder = folder_of(checkpoint.path)
    if "config.json" not in folder.names or (folder.name and not _is_own(folder.name)):
        return []
    weights = next((each for each in checkpoint.state_dicts if not each.path), None)
    if weights is None:
        return []
    named = folder.read(_INDEX)
    others = [name for name in sorted(folder.names) if _is_other(folder, name) and f'"{name}"' not in named]
    found = [_stray(folder, name, weights) for name in others[:_LOOKED_AT]]
    return [each for each in found if each is not None]


def _is_own(name: str) -> bool:
    return name in _OWN or _SHARD.fullmatch(name) is not None


def _is_other(folder: Folder, name: str) -> bool:
    return name.endswith(".safetensors") and name != folder.name and not _is_own(name)


def _stray(folder: Folder, name: str, weights: StateDict) -> Stray | None:
    there = _header(os.path.join(folder.path, name))
    ours, theirs = quantized_in(weights).layers, quantized(there).layers
    here = {tensor.key: tensor for tensor in weights.tensors}
    packed = [layer for layer in theirs if dtype_of(here.get(layer.key)) in _PLAIN]
    if packed:
        return Stray(name, packed[0].scheme, True, len(packed))
    plain = [layer for layer in ours if dtype_of(there.get(layer.key)) in _PLAIN]
    return Stray(name, plain[0].scheme, False, len(plain)) if plain else None


def _header(path: str) -> dict[str, Expected]:
    """The tensors of a safetensors file, as far as its header is small and sound."""
    import json

    try:
        data = _read(path)
        said = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    found: dict[str, Expected] = {}
    for key, entry in said.items() if isinstance(said, dict) else ():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        dtype = BY_SAFETENSORS.get(str(entry.get("dtype"))) if isinstance(entry, dict) else None
        if dtype is not None and isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape):
            found[key] = Expected(tuple(shape), dtype)
    return found


def _read(path: str) -> bytes:
    """The bytes of a header; none of one that is longer than is read."""
    target = os.path.join(os.path.dirname(path), os.readlink(path)) if blob_of(path) else path
    handle = os.open(target, READING | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        length = int.from_bytes(file.read(8), "little")
        return file.read(length) if length <= _LONGEST else b""
