"""Pairs quantised layers on one side of a comparison with the plain weights of the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ckptdoctor.checkpoint import Checkpoint, KeyPath, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.quantization import BY_RULE, Layer, Quantized, dtype_of, is_observer, quantized
from ckptdoctor.match.comparison import Comparison, Explained
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

_PLAIN = ("", "float64", "float32", "float16", "bfloat16")


@noun(eq=False)
class Unfit:
    """Layers that are quantised ``here`` and plain in the target, or ``there`` in the target and plain here.

    Names are those after all renames. ``others`` are scales of activations and caches here, without a layer of their
    own.
    """

    here: tuple[Layer, ...] = ()
    there: tuple[Layer, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def explained(self) -> Explained:
        """The keys that need no other word; narrowed to what is wrong by whoever asks."""
        return Explained(
            missing=frozenset(
                [*(layer.key for layer in self.here), *(key for layer in self.there for key in layer.keys)]
            ),
            unexpected=frozenset(
                [*(key for layer in self.here for key in layer.keys), *self.others, *(each.key for each in self.there)]
            ),
            mismatched=frozenset([layer.key for layer in (*self.here, *self.there)]),
        )


@cached_by_identity
def unfit(comparison: Comparison) -> Unfit:
    """Return the layers of which only one side is quantised."""
    renamed, wanted = comparison.renamed, comparison.reference.tensors
    loose, missing = set(renamed.unexpected), set(renamed.missing)
    if not loose and not missing:
        return Unfit()
    ours, theirs = quantized(renamed.here), quantized(wanted)
    here = tuple(
        [
            layer
            for layer in ours.layers
            if layer.key in wanted
            and dtype_of(wanted[layer.key]) in _PLAIN
            and layer.shape in (None, wanted[layer.key].shape)
            and not loose.isdisjoint(layer.keys)
        ]
    )
    there = tuple(
        [
            layer
            for layer in theirs.layers
            if layer.key in renamed.here
            and dtype_of(renamed.here[layer.key]) in _PLAIN
            and layer.shape in (None, renamed.here[layer.key].shape)
            and not missing.isdisjoint(layer.keys)
        ]
    )
    return Unfit(here, there, _others(ours, here, loose))


def _others(found: Quantized, here: tuple[Layer, ...], loose: set[str]) -> tuple[str, ...]:
    """Return scales that mean nothing without the weights that need scales."""
    scaled = any(layer.scheme in BY_RULE["Q956"] for layer in here)
    return tuple([key for key in found.others if key in loose]) if scaled else ()


def _explained_layers(comparison: Comparison) -> Explained:
    """Return the keys that rules about quantised layers explain, of those that do not fit."""
    found, renamed = unfit(comparison), comparison.renamed
    if not found.here and not found.there:
        return Explained()
    known = found.explained
    return Explained(
        known.missing.intersection(renamed.missing),
        known.unexpected.intersection(renamed.unexpected),
        known.mismatched.intersection(renamed.mismatched),
    )


# ---- layers that torch itself quantised (torch.ao.quantization, eager and FX)
#
# Sources: ``torch.ao.nn.quantized`` (``Linear``, ``LinearPackedParams``, ``_ConvNd``, ``EmbeddingPackedParams``), and
# the buffers that ``convert_fx`` registers


_PACKED = "._packed_params._packed_params"  # (weight, bias) of a linear layer
_EMBEDDED = "._packed_params._packed_weight"  # of an embedding
_LEAVES = ("scale", "zero_point")
# what convert_fx keeps for values that no layer makes: input_scale_0, _scale_0, conv_input_zero_point_0
_BUFFER = regex(r"(?:.*_)?(?:scale|zero_point)_\d+")


@noun(eq=False)
class TorchLayer:
    """A layer of torch: the plain names of what it holds, and the entries that go when it becomes plain.

    ``gone`` are key paths of entries next to those of the tensors: the output's scale and zero point, the dtype.
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


def _torch_layers(checkpoint: Checkpoint, state_dict: StateDict, named: Callable[[str], str]) -> TorchQuantized:
    """Return the layers of a state dict; ``named`` says what a key is called."""
    place, depth = state_dict.path, len(state_dict.path)
    keys = {*state_dict.keys, *state_dict.others}
    inside = [each for each in checkpoint.tensors if each.path[:depth] == place and len(each.path) > depth]
    beside = {each.path: each for each in inside}
    layers = []
    for tensor in inside:
        layer = _torch_layer(tensor, depth, beside, named, keys) if tensor.dtype.kind == "quantized" else None
        if layer is not None:
            layers.append(layer)
    if not layers:
        return TorchQuantized()
    taken = {path for layer in layers for path in layer.gone}
    buffers = [(*place, key) for key in state_dict.keys if _is_buffer(key, keys)]
    return TorchQuantized(tuple(layers), tuple([path for path in buffers if path not in taken]))


def _torch_layer(
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
    """Return whether it is a scale or a zero point, and the other one is there as well."""
    leaf = key.rpartition(".")[2]
    if leaf in _LEAVES:
        other = _LEAVES[leaf == _LEAVES[0]]
        return f"{key.removesuffix(leaf)}{other}" in keys
    if not _BUFFER.fullmatch(leaf):
        return False
    swapped = leaf.replace("zero_point_", "scale_") if "zero_point_" in leaf else leaf.replace("scale_", "zero_point_")
    return f"{key.removesuffix(leaf)}{swapped}" in keys


@cached_by_identity
def unfit_of(comparison: Comparison) -> TorchQuantized:
    """Return the layers of the compared state dict that the target wants plain, by their names after all renames."""
    if comparison.state_dict is None:
        return TorchQuantized()
    found = _torch_layers(comparison.checkpoint, comparison.state_dict, comparison.final_name)
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
    loose = set(comparison.renamed.unexpected)
    buffers = [path for path in found.buffers if comparison.final_name(str(path[-1])) in loose]
    return TorchQuantized(tuple(plain), tuple(buffers))


@cached_by_identity
def explained_by_quantization(comparison: Comparison) -> Explained:
    """Return missing, unexpected and mismatched keys that Q951 to Q956 explain."""
    renamed = comparison.renamed
    if not (renamed.missing or renamed.unexpected):
        return Explained()
    found = unfit_of(comparison)
    names = [name for layer in found.layers for name in (layer.key, layer.bias_key)]
    gone = [path for layer in found.layers for path in layer.gone]
    old = [comparison.final_name(str(path[-1])) for path in (*gone, *found.buffers)]
    whole = Explained(
        missing=frozenset(names).intersection(renamed.missing),
        unexpected=frozenset([*filter(is_observer, renamed.unexpected), *old]).intersection(renamed.unexpected),
    )
    return whole | _explained_layers(comparison)


def packed(comparison: Comparison) -> frozenset[str]:
    """Return keys whose numbers are not weights yet, so that casting them would be wrong.

    No rule reports their dtype.
    """
    here = [layer.key for layer in unfit(comparison).here]
    return frozenset([*here, *[layer.key for layer in unfit_of(comparison).layers]])
