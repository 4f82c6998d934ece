"""Plain and quantised weights of the same layers lie together, and loaders mix them.

What it means
    A quantised file was left in the folder of the plain model (or the other way round), or both were merged into one.

Why it matters
    Loaders that read every ``*.safetensors`` of a folder (mlx, vLLM, many scripts) merge the two: some layers get
    packed numbers for weights, others keep scales that belong to nothing.

What you see
    A shape that does not fit, an unknown key such as ``fc.weight.absmax``, or garbage without a word.

How it is found
    A layer has its plain weight and packed ones of GPTQ, AWQ or bitsandbytes; or, beside ``model.safetensors`` or its
    shards in a folder with ``config.json``, the header of another ``*.safetensors`` that the index does not name has
    the same layers quantised, or plain where these are quantised.

Repair
    None: decide which one counts, and move the other out of the folder.
    ``ckptdoctor fix FILE --drop PATTERN`` takes the ones or the others out of a single file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.quantization_mixed import Stray, both, strays
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import any_of, file_beside, quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((64, 256), "float16")}
_GPTQ: dict[str, object] = {
    "fc.qweight": T((32, 64), "int32"),
    "fc.qzeros": T((2, 8), "int32"),
    "fc.scales": T((2, 64), "float16"),
    "fc.g_idx": T((256,), "int32"),
}


def _file(entries: str) -> bytes:
    """A safetensors file with this header, which is all that is read of it."""
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
    Example("a quantised file beside the plain one", _PLAIN, "safetensors", metadata={"format": "pt"},
            name="model.safetensors", beside={**_CONFIG, "model-4bit.safetensors": _STRAY}),
)  # fmt: skip
HEALTHY = (
    Example("quantised layers beside plain ones", {**_GPTQ, "norm.weight": T((4,), "float16")}),
    Example("a file of other things", _PLAIN, "safetensors", metadata={"format": "pt"},
            name="model.safetensors", beside={**_CONFIG, "adapter.safetensors": _OTHER}),
)  # fmt: skip


@rule("Q957", "mixed-quant-dir", Severity.ERROR, when=any_of(file_beside("config.json"), quantized_keys))
def mixed_quant_dir(checkpoint: Checkpoint) -> Iterator[Problem]:
    """The same layers twice, plain and quantised."""
    for state_dict in weights_among(checkpoint.state_dicts):
        layers = both(state_dict)
        if layers:
            yield Problem(
                message=f"{wording.count(len(layers), 'layer')}{wording.of_place(state_dict.path)} "
                f"{'has' if len(layers) == 1 else 'have'} a plain weight and one of {layers[0].scheme}",
                cause="Two checkpoints were merged, or files of both were read together: loaders take one of the two, "
                "or stumble over the other.",
                advice="Drop the keys of one of them, or read only the files that belong together.",
                keys=tuple([(*state_dict.path, key) for layer in layers for key in (layer.key, *layer.keys)]),
                location=Location(path=state_dict.path),
            )
    for stray in strays(checkpoint):
        yield _beside(stray)


def _beside(stray: Stray) -> Problem:
    layers = wording.count(stray.layers, "layer")
    theirs = f"{layers} of this model as {stray.scheme}" if stray.quantized else f"{layers} of this model plain"
    return Problem(
        message=f"{stray.name} lies beside it, with {theirs}",
        cause="Loaders that read every .safetensors file of a folder mix the two.",
        advice="Move the one that does not count out of the folder.",
        severity=Severity.WARNING,
    )
