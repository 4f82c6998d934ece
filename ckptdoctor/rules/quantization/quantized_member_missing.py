"""A quantised layer lacks a part: its scale, its zeros, the state that says how it was packed.

What it means
    Quantised weights consist of several tensors: ``qweight`` with ``qzeros``, ``scales`` and ``g_idx``; a float8
    ``weight`` with ``weight_scale`` or ``weight_scale_inv``; NVFP4 with ``weight_scale_2`` and ``input_scale`` as well;
    MXFP4 blocks with scales; bitsandbytes with ``absmax``, ``quant_map`` and ``quant_state``. Of some layers one of
    these is not in the file: a shard was left out, a key was filtered, or the calibration never reached an expert.

Why it matters
    Serving engines load what there is and start. What is missing stays as it was made, at 1 or at whatever lay in
    memory, and the model answers wrongly without a word.

What you see
    Often nothing. In transformers: Some weights of the model checkpoint were newly initialized: ['…weight_scale']

How it is found
    By what each scheme needs, and by what most layers of the same place in the model have (``model.layers.*.up_proj``).
    A shard alone is not held to it, nor a folder of which a file is missing.

Repair
    None: the values are not in the file. Take it from its source again, or quantise anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind, StateDict
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.notes import notes_of
from ckptdoctor.facts.quantization_members import Incomplete, incomplete
from ckptdoctor.facts.siblings import is_shard
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import quantized_keys

_SHOWN = 3


def _model(layer: dict[str, object], *without: str) -> dict[str, object]:
    """Four layers that consist of the same tensors, but for some keys."""
    made = {f"model.layers.{number}.up.{name}": tensor for number in range(4) for name, tensor in layer.items()}
    return {key: tensor for key, tensor in made.items() if key not in without}


_GPTQ: dict[str, object] = {
    "qweight": T((8, 16), "int32"),
    "qzeros": T((1, 2), "int32"),
    "scales": T((1, 16), "float16"),
    "g_idx": T((64,), "int32"),
}
_FP8: dict[str, object] = {"weight": T((32, 32), "float8_e4m3fn"), "weight_scale_inv": T((1, 1))}
_STATIC: dict[str, object] = {
    "weight": T((8, 16), "float8_e4m3fn"),
    "weight_scale": T((1,)),
    "input_scale": T((1,)),
}
_NVFP4: dict[str, object] = {
    "weight": T((8, 16), "uint8"),
    "weight_scale": T((8, 2), "float8_e4m3fn"),
    "weight_scale_2": T(()),
    "input_scale": T(()),
}
_PACKED: dict[str, object] = {
    "weight_packed": T((8, 4), "int32"),
    "weight_scale": T((8, 1), "float16"),
    "weight_shape": T((2,), "int64"),
}
_MXFP4: dict[str, object] = {
    "gate_up_proj_blocks": T((4, 8, 2, 16), "uint8"),
    "gate_up_proj_scales": T((4, 8, 2), "uint8"),
}
_NF4: dict[str, object] = {
    "weight": T((64, 1), "uint8"),
    "weight.absmax": T((2,)),
    "weight.quant_map": T((16,)),
    "weight.quant_state.bitsandbytes__nf4": T((80,), "uint8"),
}
_INT8: dict[str, object] = {"weight": T((8, 8), "int8"), "SCB": T((8,))}
_SCHEMES = {
    "GPTQ without zeros": (_GPTQ, "qzeros"),
    "GPTQ without its order": (_GPTQ, "g_idx"),
    "GPTQ without scales": (_GPTQ, "scales"),
    "float8 without a scale": (_FP8, "weight_scale_inv"),
    "a scale without its weight": (_FP8, "weight"),
    "float8 without a scale of inputs": (_STATIC, "input_scale"),
    "NVFP4 without its second scale": (_NVFP4, "weight_scale_2"),
    "NVFP4 without a scale of inputs": (_NVFP4, "input_scale"),
    "compressed-tensors without a scale": (_PACKED, "weight_scale"),
    "MXFP4 without scales": (_MXFP4, "gate_up_proj_scales"),
    "bitsandbytes without absmax": (_NF4, "weight.absmax"),
    "bitsandbytes without its state": (_NF4, "weight.quant_state.bitsandbytes__nf4"),
    "int8 without its weight": (_INT8, "weight"),
}
SICK = tuple(
    [
        Example(title, _model(layer, f"model.layers.2.up.{gone}"), "safetensors", suffix=".safetensors")
        for title, (layer, gone) in _SCHEMES.items()
    ]
)
HEALTHY = (
    *(
        Example(f"whole: {title}", _model(layer), "safetensors", suffix=".safetensors")
        for title, layer in {title.partition(" without")[0]: layer for title, (layer, _) in _SCHEMES.items()}.items()
    ),
    Example(
        "a layer that was left plain",
        {
            **_model(_FP8, "model.layers.3.up.weight", "model.layers.3.up.weight_scale_inv"),
            "model.layers.3.up.weight": T((32, 32), "bfloat16"),
        },
        "safetensors",
        suffix=".safetensors",
    ),
    Example(
        "a shard alone",
        _model(_GPTQ, "model.layers.2.up.qzeros"),
        "safetensors",
        name="model-00001-of-00002.safetensors",
    ),
)


@rule("Q958", "quantized-member-missing", Severity.ERROR, when=quantized_keys)
def quantized_member_missing(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Quantised layers that are not whole."""
    if is_shard(checkpoint.path) or notes_of(checkpoint, NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED):
        return
    for state_dict in weights_among(checkpoint.state_dicts):
        schemes: dict[str, list[Incomplete]] = {}
        for layer in incomplete(state_dict):
            schemes.setdefault(layer.scheme, []).append(layer)
        for scheme, layers in schemes.items():
            yield _problem(state_dict, scheme, layers)


def _problem(state_dict: StateDict, scheme: str, layers: list[Incomplete]) -> Problem:
    missing = [key for layer in layers for key in layer.missing]
    lack = "lacks" if len(layers) == 1 else "lack"
    return Problem(
        message=f"{wording.count(len(layers), 'quantised layer')}{wording.in_place(state_dict.path)} ({scheme}) {lack} "
        f"a part: {wording.abridged(missing, _SHOWN)}",
        cause="The layer means nothing without it. Serving engines load what there is, leave the rest as it was made, "
        "and answer wrongly without a word.",
        advice="Take the file from its source again, or quantise the model anew: the values are not in the file.",
        keys=tuple([(*state_dict.path, key) for layer in layers for key in layer.present]),
        location=Location(path=state_dict.path),
    )
