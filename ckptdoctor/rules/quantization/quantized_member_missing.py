"""A quantised layer lacks a part: its scale, its zeros, or the state that describes how it was packed.

Meaning
    Quantised weights consist of several tensors: ``qweight`` with ``qzeros``, ``scales`` and ``g_idx``; a float8
    ``weight`` with ``weight_scale`` or ``weight_scale_inv``; NVFP4 with ``weight_scale_2`` and ``input_scale`` as well;
    MXFP4 blocks with scales; bitsandbytes with ``absmax``, ``quant_map`` and ``quant_state``. Some layers lack one of
    these: a shard was left out, a key was filtered, or the calibration never reached an expert.

Why it matters
    Serving engines load what there is and start. The missing part keeps its initial value, 1 or whatever was in memory,
    and the model silently gives wrong answers.

Symptoms
    Often nothing. In transformers: Some weights of the model checkpoint were newly initialized: ['…weight_scale']

Detection
    By the parts that each scheme needs, and that most layers in the same place of the model have
    (``model.layers.*.up_proj``). A single shard is not checked, nor a folder with a missing file.

Repair
    None: the values are not in the file. Download it from its source again, or quantise again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, NoteKind, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.names import QUANTIZED, mentions
from ckptdoctor.facts.quantization import FLOAT8, dtype_of
from ckptdoctor.facts.siblings import is_shard
from ckptdoctor.findings import Location, Severity
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import notes_of
from ckptdoctor.rules.when import quantized_keys

_SHOWN = 3


def _model(layer: dict[str, object], *without: str) -> dict[str, object]:
    """Return four layers that consist of the same tensors, except for some keys."""
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
    "float8 without an input scale": (_STATIC, "input_scale"),
    "NVFP4 without its second scale": (_NVFP4, "weight_scale_2"),
    "NVFP4 without an input scale": (_NVFP4, "input_scale"),
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
        Example(f"complete: {title}", _model(layer), "safetensors", suffix=".safetensors")
        for title, layer in {title.partition(" without")[0]: layer for title, (layer, _) in _SCHEMES.items()}.items()
    ),
    Example(
        "a layer that was not quantised",
        {
            **_model(_FP8, "model.layers.3.up.weight", "model.layers.3.up.weight_scale_inv"),
            "model.layers.3.up.weight": T((32, 32), "bfloat16"),
        },
        "safetensors",
        suffix=".safetensors",
    ),
    Example(
        "a single shard",
        _model(_GPTQ, "model.layers.2.up.qzeros"),
        "safetensors",
        name="model-00001-of-00002.safetensors",
    ),
)


@rule("Q958", "quantized-member-missing", Severity.ERROR, when=quantized_keys)
def quantized_member_missing(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report quantised layers that are not whole."""
    if is_shard(checkpoint.path) or notes_of(checkpoint, NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED):
        return
    for state_dict in weights_among(checkpoint.state_dicts):
        schemes: dict[str, list[_Incomplete]] = {}
        for layer in _incomplete(state_dict):
            schemes.setdefault(layer.scheme, []).append(layer)
        for scheme, layers in schemes.items():
            yield _problem(state_dict, scheme, layers)


def _problem(state_dict: StateDict, scheme: str, layers: list[_Incomplete]) -> Problem:
    missing = [key for layer in layers for key in layer.missing]
    lack = "lacks" if len(layers) == 1 else "lack"
    return Problem(
        message=f"{wording.plural(len(layers), 'quantised layer')}{wording.in_place(state_dict.path)} ({scheme}) "
        f"{lack} a part: {wording.abridged(missing, _SHOWN)}",
        cause="The layer is meaningless without it. Serving engines load what there is, leave the rest at its "
        "initial value, and silently give wrong answers.",
        advice="Download the file from its source again, or quantise the model again: the values are not in the file.",
        keys=tuple([(*state_dict.path, key) for layer in layers for key in layer.present]),
        location=Location(path=state_dict.path),
    )


# Which tensors the layers of each scheme of quantising consist of, and what is missing of them.
#
# A member is needed where the scheme cannot be read without it, or where most layers of the same place in the model
# (``model.layers.*.mlp.up_proj``) have it: what else belongs to a layer depends on how it was quantised.
#
# Sources: as in ``facts.quantization``; for what belongs to NVFP4 the export of ModelOpt and compressed-tensors.

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_BNB_STATE = re.compile(r"weight\.quant_state\.bitsandbytes__(?:nf4|fp4)")
_BNB4 = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")
_STATE = "weight.quant_state"  # whichever of the two it is
_SCALES = ("weight_scale", "weight_scale_inv", "scale_weight")
_SCALED = (
    *("weight", "input_scale", "input_scale_inv", "scale_input", "weight_scale_2", "weight_zero_point"),
    *("input_zero_point", "pre_quant_scale"),
)
_PACKED_MEMBERS = (
    *("weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_global_scale", "weight_g_idx"),
    *("input_scale", "input_global_scale", "input_zero_point"),
)
_GPTQ_MEMBERS = ("qweight", "qzeros", "scales", "g_idx")
_INT8_MEMBERS = ("weight", "SCB", "weight_format")
_FEWEST = 2  # layers of the same place that show what belongs to one


@noun
class _Incomplete:
    """A quantised layer, and the keys of the members that it lacks; ``present`` are those it has."""

    scheme: str
    module: str
    missing: tuple[str, ...]
    present: tuple[str, ...]


@noun
class _Layer:
    scheme: str
    module: str
    members: Mapping[str, str]  # what it has: name of the member → key
    needed: tuple[str, ...]


@cached_by_identity
def _incomplete(state_dict: StateDict) -> tuple[_Incomplete, ...]:
    """Return the quantised layers of which a member is missing."""
    if not mentions(state_dict, QUANTIZED):
        return ()
    layers = _layers({tensor.key: tensor for tensor in state_dict.tensors})
    places: dict[tuple[str, str], list[_Layer]] = defaultdict(list)
    for layer in layers:
        places[layer.scheme, _NUMBER.sub("*", layer.module)].append(layer)
    found = []
    for alike in places.values():
        counts = Counter(name for layer in alike for name in layer.members)
        usual = {name for name, count in counts.items() if count >= _FEWEST and 2 * count > len(alike)}
        for layer in alike:
            missing = [name for name in (*layer.needed, *sorted(usual)) if name not in layer.members]
            if missing:
                keys = tuple([_key(layer.module, name) for name in dict.fromkeys(missing)])
                found.append(_Incomplete(layer.scheme, layer.module, keys, tuple(layer.members.values())))
    return tuple(found)


def _key(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def _layers(tensors: Mapping[str, Tensor]) -> list[_Layer]:
    """Return the layers of all schemes, each with the members that are there."""
    modules: dict[str, dict[str, str]] = defaultdict(dict)
    for key in tensors:
        module, name = _split(key)
        modules[module][name] = key
    made = []
    names = {name for members in modules.values() for name in members}
    marks = frozenset(names & {"SCB"}) | (frozenset({"scaled"}) if names & set(_SCALES) else frozenset())
    for module, members in modules.items():
        layer = _layer(module, members, tensors, marks)
        if layer is not None:
            made.append(layer)
    return [*made, *_blocks(tensors)]


def _split(key: str) -> tuple[str, str]:
    """Return the module of a key and its member: bitsandbytes puts more behind ``weight``."""
    for mark in _BNB4:
        if key == mark or key.endswith(f".{mark}"):
            return key[: -len(mark)].rstrip("."), mark
    state = _BNB_STATE.search(key)
    if state is not None and state.end() == len(key):
        return key[: state.start()].rstrip("."), _STATE
    module, _, leaf = key.rpartition(".")
    return module, leaf


def _layer(
    module: str, members: Mapping[str, str], tensors: Mapping[str, Tensor], marks: frozenset[str]
) -> _Layer | None:
    """Return the quantised layer that a module is, as far as it is there, or None where it is none.

    ``marks``: which kinds of scales there are among the tensors, so that narrow numbers without one mean nothing.
    """

    def of(scheme: str, names: tuple[str, ...], *needed: str) -> _Layer:
        return _Layer(scheme, module, {name: members[name] for name in names if name in members}, needed)

    kind = dtype_of(tensors.get(members.get("weight", "")))
    scale = next((name for name in _SCALES if name in members), "")
    if _STATE in members or any(name in members for name in _BNB4):
        if kind in ("float32", "float16", "bfloat16") and tensors[members["weight"]].shape[-1:] != (1,):
            return None  # a stray state beside a plain weight: Q957 tells of it
        return of(
            "bitsandbytes 4-bit", ("weight", *_BNB4, _STATE), "weight", "weight.absmax", "weight.quant_map", _STATE
        )
    if "qweight" in members or ("qzeros" in members and "scales" in members):
        return of("GPTQ or AWQ", _GPTQ_MEMBERS, "qweight", "scales")
    if "SCB" in members:
        return of("bitsandbytes int8", _INT8_MEMBERS, "weight", "SCB") if kind in ("int8", "") else None
    if "weight_packed" in members:
        second = ("weight_global_scale",) if dtype_of(tensors[members["weight_packed"]]) == "uint8" else ()
        return of("compressed-tensors", _PACKED_MEMBERS, "weight_packed", "weight_scale", *second)
    if scale and kind in (*FLOAT8, "int8", ""):
        return of("scaled", (*_SCALED, *_SCALES), "weight", scale)
    if scale and kind == "uint8" and dtype_of(tensors[members[scale]]) in FLOAT8:
        return of("NVFP4", (*_SCALED, *_SCALES), "weight", scale, "weight_scale_2")
    if kind == "uint8" and "weight_scale_2" in members:
        return of("NVFP4", (*_SCALED, *_SCALES), "weight", "weight_scale")
    # whether these need a scale the others of their place show
    if "scaled" in marks and kind in FLOAT8:
        return of("scaled", (*_SCALED, *_SCALES))
    return of("bitsandbytes int8", _INT8_MEMBERS) if "SCB" in marks and kind == "int8" else None


def _blocks(tensors: Mapping[str, Tensor]) -> list[_Layer]:
    """Return the layers of MXFP4 with members such as ``gate_up_proj_blocks`` and ``gate_up_proj_scales``."""
    ends = ("_blocks", "_scales")
    names = {key.rpartition("_")[0] for key in tensors if key.endswith(ends) and dtype_of(tensors[key]) == "uint8"}
    made = []
    for name in sorted(names):
        module, _, leaf = name.rpartition(".")
        needed = (f"{leaf}_blocks", f"{leaf}_scales")
        there = {each: _key(module, each) for each in needed if _key(module, each) in tensors}
        made.append(_Layer("MXFP4", module, there, needed))
    return made
