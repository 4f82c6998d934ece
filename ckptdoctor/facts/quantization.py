"""Recognises quantised layers by the names, dtypes and shapes of what libraries save of them.

Sources: ``QuantState.as_dict`` and ``Linear8bitLt._save_to_state_dict`` of bitsandbytes; the ``QuantLinear`` of
AutoGPTQ and GPTQModel, ``WQLinear_GEMM`` of AutoAWQ; the compressors of compressed-tensors; the export of ModelOpt;
``weight_dequant`` of DeepSeek-V3; the integration of mxfp4 in transformers; ``QTensor.save_to_state_dict`` of quanto
0.2.7 and ``HQQLinear.state_dict`` of HQQ 0.2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, prod

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts.names import QUANTIZED, mentions
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

# the schemes
BNB4, BNB8, GPTQ, AWQ, SCALED, PACKED, NVFP4, MXFP4, QUANTO, HQQ = (
    *("bitsandbytes 4-bit", "bitsandbytes int8", "GPTQ", "AWQ"),
    *("scaled", "packed", "NVFP4", "MXFP4", "quanto", "HQQ"),
)
BY_RULE = {
    "Q951": (BNB4,),
    "Q952": (BNB8,),
    "Q953": (GPTQ, AWQ),
    "Q956": (SCALED, PACKED, NVFP4, MXFP4),
    "Q960": (QUANTO, HQQ),
}

FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_NARROW = (*FLOAT8, "int8")
_PLAIN = ("float64", "float32", "float16", "bfloat16")

_BLOCKSIZES = (4096, 2048, 1024, 512, 256, 128, 64, 32)  # those that bitsandbytes has
_SIDES = (16, 32, 64, 128, 256, 512)  # of blocks of scaled weights, as they are written
_STATE = regex(r"(.+)\.quant_state\.bitsandbytes__(nf4|fp4)")
_BNB = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
_GPTQ = ("qweight", "qzeros", "scales", "g_idx")
# what a scale is called, behind the name of its weight; ComfyUI puts "scale_" before it
_SCALES = ("_scale_inv", "_scale")
_COMFY = "scale_weight"
# what else may stand beside a scaled weight; of these the first changes what the weight means
_OF_WEIGHT = ("_zero_point", "_scale_2", "_global_scale", "_shape", "_g_idx")
_OF_MODULE = (
    *("input_scale", "input_scale_inv", "input_scale_ub", "input_global_scale", "input_zero_point", "scale_input"),
    *("output_scale", "output_zero_point", "k_scale", "v_scale", "q_scale", "prob_scale"),
)

# what HQQ keeps beside its codes
_HQQ = (
    *("scale", "zero", "nbits", "group_size", "shape", "axis", "packing", "unpack_view_dtype", "view_as_float"),
    *("quant_scale", "quant_zero", "compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config"),
    *("channel_wise", "optimize", "round_zero", "scale_q", "zero_q", "meta_scale", "meta_zero"),
)

Described = Tensor | Expected


@noun(eq=False)
class Layer:
    """One quantised weight. ``key`` is what it is called where it is plain, ``parts`` are its own keys by what they do.

    ``weight`` and ``scale`` are among the parts where there are such. ``shape`` is that of the plain weight, as far as
    shapes tell. ``block`` is what shares a scale: so many rows and columns (or, of a flat weight, one number); 0 is
    for all of them. ``kind`` says more of the scheme: ``nf4``, ``float8_e4m3fn``.
    """

    scheme: str
    key: str
    parts: Mapping[str, str]
    kind: str = ""
    bits: int = 0
    shape: tuple[int, ...] | None = None
    block: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all parts."""
        return tuple(self.parts.values())


@noun(eq=False)
class Quantized:
    """The quantised layers of a state dict, and ``others``: scales that belong to activations or caches."""

    layers: tuple[Layer, ...] = ()
    others: tuple[str, ...] = ()

    def of(self, code: str) -> tuple[Layer, ...]:
        """Return those that the rule ``code`` speaks of."""
        return tuple([layer for layer in self.layers if layer.scheme in BY_RULE[code]])


@cached_by_identity
def quantized_in(state_dict: StateDict) -> Quantized:
    """Return the quantised layers of a state dict."""
    if not mentions(state_dict, QUANTIZED):
        return Quantized()
    return quantized({tensor.key: tensor for tensor in state_dict.tensors})


@cached_by_identity
def quantized(tensors: Mapping[str, Described]) -> Quantized:
    """Return the quantised layers among these tensors."""
    found: dict[str, Layer] = {}
    for key in tensors:
        if key.endswith(QUANTIZED):
            for layer in _layer(key, tensors):
                found.setdefault(layer.key, layer)
    if not found:
        return Quantized()
    taken = {key for layer in found.values() for key in layer.keys}
    others = [key for key in tensors if key.rpartition(".")[2] in _OF_MODULE and key not in taken]
    return Quantized(tuple(found.values()), tuple(others))


def dtype_of(tensor: Described | None) -> str:
    """Return the name of a dtype, or "" where it is not known, and for no tensor."""
    return tensor.dtype.name if tensor is not None and tensor.dtype is not None else ""


def _layer(key: str, tensors: Mapping[str, Described]) -> Iterator[Layer]:
    """Yield the layer of which this key is the mark."""
    module, dot, leaf = key.rpartition(".")
    maker: Callable[[str, str, Mapping[str, Described]], Layer | None] | None = {
        "SCB": _bnb8, "qweight": _gptq, "weight_packed": _packed, _COMFY: _comfy, "_scale": _quanto, "W_q": _hqq,
    }.get(leaf)  # fmt: skip
    state = _STATE.fullmatch(key)
    if maker is not None:
        layer = maker(key, f"{module}{dot}", tensors)
    elif state is not None:
        layer = _bnb4(key, state[1], state[2], tensors)
    elif leaf.endswith("_blocks"):
        layer = _mxfp4(key, key.removesuffix("_blocks"), tensors)
    else:
        ending = next((ending for ending in _SCALES if leaf.endswith(ending)), "")
        layer = _scaled(key, key.removesuffix(ending), f"{module}{dot}", tensors) if ending else None
    if layer is not None:
        yield layer


def _there(tensors: Mapping[str, Described], **keys: str) -> dict[str, str]:
    return {role: key for role, key in keys.items() if key in tensors}


def _bnb4(key: str, weight: str, kind: str, tensors: Mapping[str, Described]) -> Layer | None:
    parts = {**_there(tensors, weight=weight, **{name: f"{weight}.{name}" for name in _BNB}), "quant_state": key}
    block: tuple[int, ...] = ()
    if "weight" in parts and dtype_of(tensors[weight]) in _PLAIN and tensors[weight].shape[-1:] != (1,):
        del parts["weight"]  # not packed: a stray state beside a plain weight
    elif "weight" in parts and "absmax" in parts:
        size = _bytes(tensors[weight]) * 2
        fitting = [each for each in _BLOCKSIZES if ceil(size / each) == prod(tensors[parts["absmax"]].shape)]
        block = (fitting[0],) if len(fitting) == 1 else ()
    return Layer(BNB4, weight, parts, kind, 4, None, block)


def _bytes(tensor: Described) -> int:
    """Return how many bytes a packed weight has, which may be kept in another dtype (``quant_storage``)."""
    return prod(tensor.shape) * (tensor.dtype.bits // 8 if tensor.dtype is not None else 1)


def _bnb8(key: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    weight = tensors.get(f"{prefix}weight")
    if weight is not None and dtype_of(weight) == "int8":
        parts = _there(tensors, weight=f"{prefix}weight", scale=key, weight_format=f"{prefix}weight_format")
        return Layer(BNB8, f"{prefix}weight", parts, "int8", 8, weight.shape, (1, 0))
    return Layer(BNB8, f"{prefix}weight", _there(tensors, scale=key, weight_format=f"{prefix}weight_format"), "int8", 8)


def _gptq(key: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    parts = _there(tensors, **{name: f"{prefix}{name}" for name in _GPTQ})
    packed, scales = tensors[key].shape, tensors[parts["scales"]].shape if "scales" in parts else ()
    if dtype_of(tensors[key]) not in ("int32", "") or len(packed) != 2 or len(scales) != 2:
        return None
    zeros = tensors[parts["qzeros"]].shape if "qzeros" in parts else ()
    zeros_bits = 32 * zeros[1] // max(1, scales[1]) if len(zeros) == 2 else 0
    if packed[1] != scales[1]:  # AWQ packs columns, GPTQ rows
        bits = 32 * packed[1] // max(1, scales[1])
        scheme, shape = AWQ, (scales[1], packed[0])
    else:
        inputs = tensors[parts["g_idx"]].shape[0] if "g_idx" in parts and tensors[parts["g_idx"]].shape else 0
        bits = 32 * packed[0] // inputs if inputs else zeros_bits
        scheme, shape = GPTQ, (scales[1], inputs or (32 * packed[0] // bits if bits else 0))
    if not 1 <= bits <= 8 or not shape[1]:
        return Layer(scheme, f"{prefix}weight", parts)
    groups = scales[0]
    size = 0 if groups == 1 else ceil(shape[1] / max(1, groups))
    return Layer(scheme, f"{prefix}weight", parts, "", bits, shape, (1, size))


def _scaled(key: str, base: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    weight = tensors.get(base)
    name = dtype_of(weight)
    if weight is None or (name != "uint8" and name not in _NARROW):
        return None
    extra = {ending[1:]: f"{base}{ending}" for ending in _OF_WEIGHT}
    parts = _there(tensors, weight=base, scale=key, **extra, **_of_module(prefix, tensors))
    if name == "uint8":  # two numbers of four bits to a byte, each sixteen of which share a scale
        if dtype_of(tensors[key]) not in FLOAT8 or not weight.shape:
            return None
        return Layer(NVFP4, base, parts, "nvfp4", 4, (*weight.shape[:-1], 2 * weight.shape[-1]), (1, 16))
    return Layer(SCALED, base, parts, name, 8, weight.shape, block_of(weight.shape, tensors[key].shape))


def _comfy(key: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    weight = tensors.get(f"{prefix}weight")
    if weight is None or dtype_of(weight) not in _NARROW:
        return None
    parts = _there(tensors, weight=f"{prefix}weight", scale=key, **_of_module(prefix, tensors))
    block = block_of(weight.shape, tensors[key].shape)
    return Layer(SCALED, f"{prefix}weight", parts, dtype_of(weight), 8, weight.shape, block)


def _of_module(prefix: str, tensors: Mapping[str, Described]) -> dict[str, str]:
    return _there(tensors, **{name: f"{prefix}{name}" for name in _OF_MODULE})


def _packed(key: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    base, packed = f"{prefix}weight", tensors[key]
    scale = tensors.get(f"{base}_scale")
    extra = {ending[1:]: f"{base}{ending}" for ending in _OF_WEIGHT}
    parts = _there(tensors, weight=key, scale=f"{base}_scale", **extra, **_of_module(prefix, tensors))
    if scale is None or len(packed.shape) != 2:
        return None
    if dtype_of(packed) == "uint8":
        return Layer(NVFP4, base, parts, "nvfp4", 4, (packed.shape[0], 2 * packed.shape[1]), (1, 16))
    return Layer(PACKED, base, parts, "packed integers")


def _mxfp4(key: str, base: str, tensors: Mapping[str, Described]) -> Layer | None:
    blocks, scales = tensors[key], tensors.get(f"{base}_scales")
    if scales is None or dtype_of(blocks) != "uint8" or blocks.shape[:-1] != scales.shape:
        return None
    return Layer(MXFP4, base, {"weight": key, "scale": f"{base}_scales"}, "mxfp4", 4, None, (1, 32))


def _quanto(key: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    """Return a weight of quanto: its own parts are below the weight's name, those of inputs and outputs next to it."""
    weight = prefix[:-1]
    data = next((f"{weight}.{leaf}" for leaf in ("_data", "_data._data") if f"{weight}.{leaf}" in tensors), None)
    if data is None:
        return None
    module, dot, _ = weight.rpartition(".")
    beside = {name: f"{module}{dot}{name}" for name in ("input_scale", "output_scale")}
    parts = {"weight": data, "scale": key, **_there(tensors, shift=f"{weight}._shift", **beside)}
    packed = data.endswith("._data._data") or "shift" in parts
    shape, name = tensors[data].shape, dtype_of(tensors[data])
    block = () if packed else block_of(shape, tensors[key].shape)
    return Layer(
        QUANTO, weight, parts, "packed" if packed else name, 0 if packed else 8, None if packed else shape, block
    )


def _hqq(key: str, prefix: str, tensors: Mapping[str, Described]) -> Layer | None:
    """Find codes of HQQ: any parameter may have that name, but only codes have a scale and a zero point with them."""
    parts = {"weight": key, **_there(tensors, **{name: f"{prefix}{name}" for name in _HQQ})}
    whole = dtype_of(tensors[key]) in ("uint8", "int32") or "nbits" in parts  # codes may be viewed as floats
    return Layer(HQQ, f"{prefix}weight", parts) if whole and {"scale", "zero"} <= parts.keys() else None


def block_of(weight: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rows and columns that share a scale, 0 for all of them; () where the shapes are not those of a scale.

    A scale for all is one number, for each row [rows] or [rows, 1]; for blocks there are as many as it takes to cover.
    """
    if prod(scale) == 1:
        return (0, 0)
    if len(weight) < 2:
        return ()
    rows, columns = weight[-2:]
    if scale in (weight[:-1], (*weight[:-1], 1)):
        return (1, 0)
    if len(scale) != len(weight) or scale[:-2] != weight[:-2]:
        return ()
    sides = [_side(size, count) for size, count in zip((rows, columns), scale[-2:], strict=True)]
    return (sides[0], sides[1]) if sides[0] is not None and sides[1] is not None else ()


def _side(size: int, count: int) -> int | None:
    """Return how many indices share a scale, or None.

    They are as few as the sizes that are written, where several would do.
    """
    if count == 1:
        return 0
    if count == size:
        return 1
    fitting = [each for each in _SIDES if ceil(size / each) == count]
    if len(fitting) == 1:
        return fitting[0]
    return size // count if not fitting and count and size % count == 0 else None


# ---- observers of training with quantisation in mind
#
# Sources: ``torch.ao.quantization.observer`` and ``fake_quantize``


# torch's own observers, as they are called in eager mode and by FX; torchao's and torchtune's
_OBSERVER = regex(
    r"(?:^|\.)(?:activation_post_process(?:_\d+)?|weight_fake_quant|\w+_fake_quantizer|_observer_\d+"
    r"|fake_quant_enabled|observer_enabled)(?:\.|$)"
)


def is_observer(key: str) -> bool:
    """Return whether a key belongs to an observer or to fake quantisation, whatever it keeps."""
    return _OBSERVER.search(key) is not None
