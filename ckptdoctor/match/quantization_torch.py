"""Layers that torch itself quantised (``torch.ao.quantization``, eager and FX), and the observers of such training.

Sources: ``torch.ao.nn.quantized`` (``Linear``, ``LinearPackedParams``, ``_ConvNd``, ``EmbeddingPackedParams``), the
buffers that ``convert_fx`` registers, ``torch.ao.quantization.observer`` and ``fake_quantize``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ckptdoctor.checkpoint import Checkpoint, KeyPath, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.names import keys_of, mentions
from ckptdoctor.facts.quantization import dtype_of
from ckptdoctor.facts.telltale_words import OBSERVERS
from ckptdoctor.match.comparing import Comparison
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

_PACKED = "._packed_params._packed_params"  # (weight, bias) of a linear layer
_EMBEDDED = "._packed_params._packed_weight"  # of an embedding
_LEAVES = ("scale", "zero_point")
# what convert_fx keeps for values that no layer makes: input_scale_0, _scale_0, conv_input_zero_point_0
_BUFFER = regex(r"(?:.*_)?(?:scale|zero_point)_\d+")
# torch's own observers, as they are called in eager mode and by FX; torchao's and torchtune's
_OBSERVER = regex(
    r"(?:^|\.)(?:activation_post_process(?:_\d+)?|weight_fake_quant|\w+_fake_quantizer|_observer_\d+"
    r"|fake_quant_enabled|observer_enabled)(?:\.|$)"
)


@noun(eq=False)
class TorchLayer:
    """A layer of torch: the plain names of what it holds, and the entries that go when it becomes plain.

    ``gone`` are key paths of entries beside those of the tensors: the output's scale and zero point, the dtype.
    """

    key: str
    weight: Tensor
    bias_key: str = ""
    bias: Tensor | None = None
    gone: tuple[KeyPath, ...] = ()


@noun(eq=False)
class TorchQuantized:
    """The layers of one state dict, and ``buffers``: scales and zero points of values that no layer makes."""

    layers: tuple[TorchLayer, ...] = ()
    buffers: tuple[KeyPath, ...] = ()


def is_observer(key: str) -> bool:
    """Whether a key belongs to an observer or to fake quantisation, whatever it keeps."""
    return _OBSERVER.search(key) is not None


def observers_in(state_dict: StateDict) -> tuple[str, ...]:
    """The keys of a state dict that belong to observers or to fake quantisation."""
    keys = keys_of(state_dict) if mentions(state_dict, OBSERVERS) else ()
    return tuple(filter(is_observer, keys))


def quantized_tensors(checkpoint: Checkpoint) -> list[Tensor]:
    """The quantised tensors anywhere in a checkpoint."""
    return [tensor for tensor in checkpoint.tensors if tensor.dtype.kind == "quantized"]


@cached_by_identity
def unfit_of(comparison: Comparison) -> TorchQuantized:
    """The layers of the compared state dict that the target wants plain, by their names after all cures."""
    if comparison.state_dict is None:
        return TorchQuantized()
    found = layers_of(comparison.checkpoint, comparison.state_dict, comparison.final_name)
    wanted = comparison.reference.tensors
    plain = [
        layer
        for layer in found.layers
        if layer.key in wanted
        and wanted[layer.key].shape == layer.weight.shape
        and dtype_of(wanted[layer.key]) in ("", "float64", "float32", "float16", "bfloat16")
    ]
    if not plain:
        return TorchQuantized()
    loose = set(comparison.cured.unexpected)
    buffers = [path for path in found.buffers if comparison.final_name(str(path[-1])) in loose]
    return TorchQuantized(tuple(plain), tuple(buffers))


def layers_of(checkpoint: Checkpoint, state_dict: StateDict, named: Callable[[str], str]) -> TorchQuantized:
    """The layers of a state dict; ``named`` says what a key is called."""
    place, depth = state_dict.path, len(state_dict.path)
    keys = {*state_dict.keys, *state_dict.others}
    inside = [each for each in checkpoint.tensors if each.path[:depth] == place and len(each.path) > depth]
    beside = {each.path: each for each in inside}
    layers = []
    for tensor in inside:
        layer = _layer(tensor, depth, beside, named, keys) if tensor.dtype.kind == "quantized" else None
        if layer is not None:
            layers.append(layer)
    if not layers:
        return TorchQuantized()
    taken = {path for layer in layers for path in layer.gone}
    buffers = [(*place, key) for key in state_dict.keys if _is_buffer(key, keys)]
    return TorchQuantized(tuple(layers), tuple([path for path in buffers if path not in taken]))


def _layer(
    tensor: Tensor, depth: int, beside: dict[KeyPath, Tensor], named: Callable[[str], str], keys: Iterable[str]
) -> TorchLayer | None:
    place, key, inner = tensor.path[:depth], str(tensor.path[depth]), tensor.path[depth + 1 :]
    if key.endswith(_PACKED) and inner == (0,):
        module = key.removesuffix(_PACKED)
        bias = beside.get((*place, key, 1))
        gone = _gone(place, module, (*_LEAVES, "_packed_params.dtype"), keys)
        return TorchLayer(named(f"{module}.weight"), tensor, named(f"{module}.bias"), bias, gone)
    if inner:
        return None
    if key.endswith(_EMBEDDED):
        module = key.removesuffix(_EMBEDDED)
        return TorchLayer(named(f"{module}.weight"), tensor, gone=_gone(place, module, ("_packed_params.dtype",), keys))
    module, dot, leaf = key.rpartition(".")
    return TorchLayer(named(key), tensor, gone=_gone(place, module, _LEAVES, keys) if dot and leaf == "weight" else ())


def _gone(place: KeyPath, module: str, names: Iterable[str], keys: Iterable[str]) -> tuple[KeyPath, ...]:
    return tuple([(*place, f"{module}.{name}") for name in names if f"{module}.{name}" in keys])


def _is_buffer(key: str, keys: set[str]) -> bool:
    """Whether it is a scale or a zero point, and the other one is there as well."""
    leaf = key.rpartition(".")[2]
    if leaf in _LEAVES:
        other = _LEAVES[leaf == _LEAVES[0]]
        return f"{key.removesuffix(leaf)}{other}" in keys
    if not _BUFFER.fullmatch(leaf):
        return False
    swapped = leaf.replace("zero_point_", "scale_") if "zero_point_" in leaf else leaf.replace("scale_", "zero_point_")
    return f"{key.removesuffix(leaf)}{swapped}" in keys
