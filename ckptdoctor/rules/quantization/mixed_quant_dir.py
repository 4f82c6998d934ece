"""Plain and quantised weights of the same layers are together, and loaders mix them.

Meaning
    A quantised file was left in the folder of the plain model (or the reverse), or both were merged into one.

Why it matters
    Loaders that read every ``*.safetensors`` of a folder (mlx, vLLM, many scripts) merge the two: some layers get
    packed numbers as weights, others keep scales that belong to nothing.

Symptoms
    A shape that does not fit, an unknown key such as ``fc.weight.absmax``, or garbage without an error.

Detection
    A layer has its plain weight and packed ones of GPTQ, AWQ or bitsandbytes; or, next to ``model.safetensors`` or its
    shards in a folder with ``config.json``, the header of another ``*.safetensors`` that the index does not name has
    the same layers quantised, or plain where these are quantised.

Repair
    None: decide which one is right, and move the other out of the folder. ``ckptdoctor fix FILE --drop PATTERN``
    removes one of them from a single file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.dtypes import BY_SAFETENSORS
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.checkpoint.source import READING
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.quantization import AWQ, BNB4, GPTQ, Layer, dtype_of, quantized, quantized_in
from ckptdoctor.facts.siblings import Folder, blob_of, folder_of
from ckptdoctor.findings import Location, Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import any_of, file_beside, quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((64, 256), "float16")}
_GPTQ: dict[str, object] = {
    "fc.qweight": T((32, 64), "int32"),
    "fc.qzeros": T((2, 8), "int32"),
    "fc.scales": T((2, 64), "float16"),
    "fc.g_idx": T((256,), "int32"),
}


def _file(entries: str) -> bytes:
    """Return a safetensors file with this header, which is all that is read of it."""
    return len(entries).to_bytes(8, "little") + entries.encode()


_STRAY = _file(
    '{"fc.qweight": {"dtype": "I32", "shape": [32, 64], "data_offsets": [0, 0]},'
    ' "fc.qzeros": {"dtype": "I32", "shape": [2, 8], "data_offsets": [0, 0]},'
    ' "fc.scales": {"dtype": "F16", "shape": [2, 64], "data_offsets": [0, 0]},'
    ' "fc.g_idx": {"dtype": "I32", "shape": [256], "data_offsets": [0, 0]}}'
)
_OTHER = _file('{"lora.weight": {"dtype": "F16", "shape": [4, 4], "data_offsets": [0, 0]}}')
_CONFIG = {"config.json": b"{}"}
SICK = (
    Example("both in one file", {**_PLAIN, **_GPTQ}),
    Example("a quantised file next to the plain one", _PLAIN, "safetensors", metadata={"format": "pt"},
            name="model.safetensors", beside={**_CONFIG, "model-4bit.safetensors": _STRAY}),
)  # fmt: skip
HEALTHY = (
    Example("quantised layers next to plain ones", {**_GPTQ, "norm.weight": T((4,), "float16")}),
    Example("a file of other things", _PLAIN, "safetensors", metadata={"format": "pt"},
            name="model.safetensors", beside={**_CONFIG, "adapter.safetensors": _OTHER}),
)  # fmt: skip


@rule("Q957", "mixed-quant-dir", Severity.ERROR, when=any_of(file_beside("config.json"), quantized_keys))
def mixed_quant_dir(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report the same layers twice, plain and quantised."""
    for state_dict in weights_among(checkpoint.state_dicts):
        layers = _both(state_dict)
        if layers:
            yield Problem(
                message=f"{wording.plural(len(layers), 'layer')}{wording.of_place(state_dict.path)} "
                f"{'has' if len(layers) == 1 else 'have'} a plain weight and one of {layers[0].scheme}",
                cause="Two checkpoints were merged, or files of both were read together: loaders take one of the "
                "two, or fail on the other.",
                advice="Drop the keys of one of them, or read only the files that belong together.",
                keys=tuple([(*state_dict.path, key) for layer in layers for key in (layer.key, *layer.keys)]),
                location=Location(path=state_dict.path),
            )
    for stray in _strays(checkpoint):
        yield _beside(stray)


def _beside(stray: _Stray) -> Problem:
    layers = wording.plural(stray.layers, "layer")
    theirs = f"{layers} of this model as {stray.scheme}" if stray.quantized else f"{layers} of this model plain"
    return Problem(
        message=f"{stray.name} is next to it, with {theirs}",
        cause="Loaders that read every .safetensors file of a folder mix the two.",
        advice="Move the wrong one out of the folder.",
        severity=Severity.WARNING,
    )


# Plain and quantised weights of the same layers, in one checkpoint or in one folder

_PLAIN_DTYPES = ("float64", "float32", "float16", "bfloat16")
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_OWN = frozenset({"model.safetensors"})
_INDEX = "model.safetensors.index.json"
_LOOKED_AT = 8  # files beside the checkpoint, at most
_LONGEST = 8 << 20  # bytes of a header that are read, at most


@noun
class _Stray:
    """A file next to the checkpoint: its name, what it holds of the same layers, and how many of those there are."""

    name: str
    scheme: str
    quantized: bool
    layers: int


def _both(state_dict: StateDict) -> tuple[Layer, ...]:
    """Return the layers of a state dict that are there twice: packed, and plain under the plain name."""
    tensors = {tensor.key: tensor for tensor in state_dict.tensors}
    return tuple(
        [
            layer
            for layer in quantized_in(state_dict).layers
            if layer.scheme in (BNB4, GPTQ, AWQ)
            and layer.parts.get("weight") != layer.key
            and dtype_of(tensors.get(layer.key)) in _PLAIN_DTYPES
        ]
    )


def _strays(checkpoint: Checkpoint) -> list[_Stray]:
    """Return files that a loader of all ``*.safetensors`` in the folder of a Hugging Face model reads with this one."""
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


def _stray(folder: Folder, name: str, weights: StateDict) -> _Stray | None:
    there = _header(os.path.join(folder.path, name))
    ours, theirs = quantized_in(weights).layers, quantized(there).layers
    here = {tensor.key: tensor for tensor in weights.tensors}
    packed = [layer for layer in theirs if dtype_of(here.get(layer.key)) in _PLAIN_DTYPES]
    if packed:
        return _Stray(name, packed[0].scheme, True, len(packed))
    plain = [layer for layer in ours if dtype_of(there.get(layer.key)) in _PLAIN_DTYPES]
    return _Stray(name, plain[0].scheme, False, len(plain)) if plain else None


def _header(path: str) -> dict[str, Expected]:
    """Return the tensors of a safetensors file, as far as its header is small and sound."""
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
    """Return the bytes of a header; none of one that is longer than is read."""
    target = os.path.join(os.path.dirname(path), os.readlink(path)) if blob_of(path) else path
    handle = os.open(target, READING | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        length = int.from_bytes(file.read(8), "little")
        return file.read(length) if length <= _LONGEST else b""
