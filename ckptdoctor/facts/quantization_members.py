"""Which tensors the layers of each scheme of quantising consist of, and what is missing of them.

A member is needed where the scheme cannot be read without it, or where most layers of the same place in the model
(``model.layers.*.mlp.up_proj``) have it: what else belongs to a layer depends on how it was quantised.

Sources: as in ``facts.quantization``; for what belongs to NVFP4 the export of ModelOpt and compressed-tensors.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.facts.marks import QUANTIZED
from ckptdoctor.facts.names import mentions
from ckptdoctor.facts.once import once
from ckptdoctor.facts.quantization import FLOAT8, dtype_of
from ckptdoctor.noun import noun

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_BNB_STATE = re.compile(r"weight\.quant_state\.bitsandbytes__(?:nf4|fp4)")
_BNB4 = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")
_STATE = "weight.quant_state"  # whichever of the two it is
_SCALES = ("weight_scale", "weight_scale_inv", "scale_weight")
_SCALED = (
    *("weight", "input_scale", "input_scale_inv", "scale_input", "weight_scale_2", "weight_zero_point"),
    *("input_zero_point", "pre_quant_scale"),
)
_PACKED = (
    *("weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_global_scale", "weight_g_idx"),
    *("input_scale", "input_global_scale", "input_zero_point"),
)
_GPTQ = ("qweight", "qzeros", "scales", "g_idx")
_INT8 = ("weight", "SCB", "weight_format")
_FEWEST = 2  # layers of the same place that show what belongs to one


@noun
class Incomplete:
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


@once
def incomplete(state_dict: StateDict) -> tuple[Incomplete, ...]:
    """The quantised layers of which a member is missing."""
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
                found.append(Incomplete(layer.scheme, layer.module, keys, tuple(layer.members.values())))
    return tuple(found)


def _key(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def _layers(tensors: Mapping[str, Tensor]) -> list[_Layer]:
    """The layers of all schemes, each with the members that are there."""
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
    """The module of a key and its member: bitsandbytes puts more behind ``weight``."""
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
    """The quantised layer that a module is, as far as it is there; None where it is none.

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
        return of("GPTQ or AWQ", _GPTQ, "qweight", "scales")
    if "SCB" in members:
        return of("bitsandbytes int8", _INT8, "weight", "SCB") if kind in ("int8", "") else None
    if "weight_packed" in members:
        second = ("weight_global_scale",) if dtype_of(tensors[members["weight_packed"]]) == "uint8" else ()
        return of("compressed-tensors", _PACKED, "weight_packed", "weight_scale", *second)
    if scale and kind in (*FLOAT8, "int8", ""):
        return of("scaled", (*_SCALED, *_SCALES), "weight", scale)
    if scale and kind == "uint8" and dtype_of(tensors[members[scale]]) in FLOAT8:
        return of("NVFP4", (*_SCALED, *_SCALES), "weight", scale, "weight_scale_2")
    if kind == "uint8" and "weight_scale_2" in members:
        return of("NVFP4", (*_SCALED, *_SCALES), "weight", "weight_scale")
    # whether these need a scale the others of their place show
    if "scaled" in marks and kind in FLOAT8:
        return of("scaled", (*_SCALED, *_SCALES))
    return of("bitsandbytes int8", _INT8) if "SCB" in marks and kind == "int8" else None


def _blocks(tensors: Mapping[str, Tensor]) -> list[_Layer]:
    """The layers of MXFP4, whose members have a name in common: ``gate_up_proj_blocks`` and ``gate_up_proj_scales``."""
    ends = ("_blocks", "_scales")
    names = {key.rpartition("_")[0] for key in tensors if key.endswith(ends) and dtype_of(tensors[key]) == "uint8"}
    made = []
    for name in sorted(names):
        module, _, leaf = name.rpartition(".")
        needed = (f"{leaf}_blocks", f"{leaf}_scales")
        there = {each: _key(module, each) for each in needed if _key(module, each) in tensors}
        made.append(_Layer("MXFP4", module, there, needed))
    return made
