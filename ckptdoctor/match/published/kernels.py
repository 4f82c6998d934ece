"""Converts weights of Keras and Flax under the names of their layers: kernels with the outputs last, other leaves.

A layer's ``kernel`` is (spatial sizes, inputs, outputs) in both, where torch's ``weight`` is (outputs, inputs, spatial
sizes), so the leaf's name gives the order of its values, even where all sizes are equal. Sources: layers/core/dense.py,
layers/convolutional/base_conv.py and base_depthwise_conv.py, layers/normalization/batch_normalization.py of keras 3;
linen/linear.py and normalization.py of flax.

An LSTM of Keras has its gates in torch's order (i, f, c, o), and one bias where torch adds two: the second is zero
(keras 3, layers/rnn/lstm.py). A GRU has them as z, r, h where torch has r, z, n, and both biases as rows of one tensor
(layers/rnn/gru.py). That is a GRU with ``reset_after``: without it, the reset gate comes before the product with the
recurrent kernel, which no GRU of torch does, and its one bias has no rows. Without a bias nothing tells the two apart.
Both are refused. ``Bidirectional`` calls its layers ``forward_…`` and ``backward_…`` (layers/rnn/bidirectional.py);
torch's module is called like it, or like the layer inside it, or has the one inside the other.

Two things no name tells, and they are refused: transposed convolutions, whose kernels Flax turns by 180° and Keras does
not (the lists that torchvision calls features have none); and linear layers behind a flattened image, whose inputs come
in another order (channels last).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.match.buffers import is_derived
from ckptdoctor.match.published.table import DEPTHWISE, GATE_BIASES, GATES, KERNEL, SAME, Published

Here = Mapping[str, Tensor]
Wanted = Mapping[str, Expected]
Shape = tuple[int, ...]
Found = tuple[str, tuple[str, ...], str, Shape]  # old key, new keys, what becomes of it, and their shape

KERNELS = Published(
    "Keras or Flax", "torch", "layers/convolutional/base_conv.py of keras 3, linen/linear.py of flax", ()
)

_KERNELS = ("kernel", "depthwise_kernel")
_CELL = re.compile(r"(?:^|\.)(?:lstm|gru)_cell(?:_\d+)?$")
_WAYS = re.compile(r"^(forward|backward)_(?=.)")
_LSTM, _GRU = 4, 3  # gates
_RECURRENT = {"kernel": "weight_ih_l0", "recurrent_kernel": "weight_hh_l0", "bias": "bias_ih_l0"}
_FIRST, _SECOND = "bias_ih_l0", "bias_hh_l0"  # torch adds one to the other
_REVERSE = "_reverse"
_BEFORE = (
    "the GRU {} was made with reset_after=False, as its bias of one row shows: its reset gate comes before "
    "the product with the recurrent kernel, and torch's GRU applies it afterwards, so no torch weights "
    "compute the same"
)
_UNTOLD = (
    "the GRU {} has no bias, whose shape alone distinguishes a GRU with reset_after=True, which torch's GRU "
    "computes, from one with reset_after=False, which no torch weights can compute"
)
_KERAS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
_LEAVES = {
    **_KERAS,
    **dict.fromkeys((*_KERNELS, "scale", "embedding", "embeddings"), "weight"),
    "mean": "running_mean",
    "var": "running_var",
    "bias": "bias",
}
_COLLECTIONS = re.compile(r"^(?:params|batch_stats)\.")
_NUMBER = re.compile(r":\d+$")
_TRANSPOSED = re.compile(r"transpos|deconv|upconv", re.IGNORECASE)
_FORWARD = re.compile(r"conv|downsampl", re.IGNORECASE)  # what makes an image smaller is no transposed convolution
# the list of layers before the classifier in torchvision's VGG, AlexNet, SqueezeNet, DenseNet and MobileNet
_FEATURES = re.compile(r"(?:^|\.)features\.\d+$")
_MANY = 256  # different widths: far more than a network of layers has
_COUNTER = "num_batches_tracked"


def kernels(here: Here, reference: Reference) -> tuple[list[Found], str]:
    """Return what every tensor becomes.

    There is nothing where one of them has no place, or where names do not give the order of values.

    The text says why none of it computes the same in torch; "" where all of it does.
    """
    wanted = reference.tensors
    plain = {key: _plain(key) for key in here}
    leaves = {name.rpartition(".")[2] for name in plain.values()}
    if leaves.isdisjoint(_KERNELS):
        return [], ""
    lead = _lead(plain.values(), wanted)
    keras = any(":" in key for key in here) or not leaves.isdisjoint((*_KERAS, "embeddings", "depthwise_kernel"))
    lists = _feature_lists(plain, here, wanted, lead)
    found: list[Found] = []
    for key, tensor in here.items():
        name = plain[key][len(lead) :]
        made = _recurrent(key, name, tensor, wanted) or _found(key, name, tensor, wanted, keras, lists)
        if made is None:
            return [], ""
        found.append(made)
    names = [name for _, new, _, _ in found for name in new]
    zeros = {key for key, _ in second_biases(names, wanted)}
    why = _without_a_counterpart(found, here)
    missing = {key: wanted[key] for key in wanted if key not in zeros.union(names) and not key.endswith(_COUNTER)}
    if why:  # biases that are not there are part of it
        missing = {key: missing[key] for key in missing if _second(key, _FIRST) is _second(key, _SECOND) is None}
    if len(set(names)) < len(names) or not all(is_derived(key, of.shape, of.dtype) for key, of in missing.items()):
        return [], ""
    return (found, why) if _flows(_widths(found, wanted)) else ([], "")


def second_biases(names: Iterable[str], wanted: Wanted) -> list[tuple[str, str]]:
    """Return the biases of LSTMs that Keras does not have, each with the one that it is added to; they are zero."""
    names = set(names)
    pairs = [(_second(name, _FIRST), name) for name in sorted(names)]
    return [
        (key, first)
        for key, first in pairs
        if key is not None and key not in names and key in wanted and wanted[key].shape == wanted[first].shape
    ]


def _second(name: str, leaf: str) -> str | None:
    """Return the second bias of the same layer and direction, of a name with this leaf, or None for any other name."""
    module, _, last = name.rpartition(".")
    if last.removesuffix(_REVERSE) != leaf:
        return None
    made = _SECOND + last[len(leaf) :]
    return f"{module}.{made}" if module else made


def _recurrent(key: str, plain: str, tensor: Tensor, wanted: Wanted) -> Found | None:
    """Return what a tensor of an LSTM or GRU becomes.

    It is None for any other one, and where the target has not these gates.
    """
    layer, _, leaf = plain.rpartition(".")
    if leaf not in _RECURRENT or tensor.parts or tensor.layout != "strided" or tensor.dtype.kind != "float":
        return None
    for module, end in _modules(_CELL.sub("", layer), wanted):
        inner, name = wanted[f"{module}{_RECURRENT['recurrent_kernel']}{end}"], f"{module}{_RECURRENT[leaf]}{end}"
        gates, width = inner.shape[0] // max(1, inner.shape[1]), inner.shape[1]
        if name not in wanted or inner.shape[0] != gates * width or gates not in (_LSTM, _GRU):
            return None
        shape = wanted[name].shape
        if leaf != "bias":
            how = GATES if gates == _GRU else KERNEL
            return (key, (name,), how, shape) if tensor.shape[::-1] == shape else None
        if gates == _LSTM:
            return (key, (name,), SAME, shape) if tensor.shape == shape else None
        second = f"{module}{_SECOND}{end}"
        rows = (shape, (2, *shape))  # the first is refused, with its reason
        both = second in wanted and wanted[second].shape == shape
        return (key, (name, second), GATE_BIASES, shape) if both and tensor.shape in rows else None
    return None


def _modules(layer: str, wanted: Wanted) -> list[tuple[str, str]]:
    """Return the one module of the target, with a dot behind it, that a layer is, and the end of its names.

    A layer in ``Bidirectional`` is one direction of it.
    """
    place, _, last = layer.rpartition(".")
    found = _WAYS.match(last)
    if found is None:
        names, end = [layer], ""
    else:
        inner = last[found.end() :]
        above = place.rpartition(".")[0]
        names, end = [place, f"{above}.{inner}", f"{place}.{inner}"], _REVERSE if found[1] == "backward" else ""
    made = list(dict.fromkeys([f"{name}." if name else "" for name in [name.strip(".") for name in names]]))
    whole = [each for each in made if f"{each}{_RECURRENT['recurrent_kernel']}{end}" in wanted]
    if found is not None:  # a layer of one direction is not in two
        whole = [each for each in whole if f"{each}{_RECURRENT['recurrent_kernel']}{_REVERSE}" in wanted]
    return [(whole[0], end)] if len(whole) == 1 else []


def _without_a_counterpart(found: Iterable[Found], here: Here) -> str:
    """Return why a GRU among these computes what torch's cannot, or may do so, or "" where none does."""
    biases = {new[0] for _, new, how, _ in found if how == GATE_BIASES}
    for key, new, how, _ in found:
        layer = re.split(r"[./](?=[^./]*$)", key)[0]
        if how == GATE_BIASES and len(here[key].shape) == 1:
            return _BEFORE.format(layer)
        first = new[0].replace(_RECURRENT["recurrent_kernel"], _FIRST)
        if how == GATES and first != new[0] and first not in biases:
            return _UNTOLD.format(layer)
    return ""


def _plain(key: str) -> str:
    """Return the key with dots, without the collection of Flax and the number of TensorFlow."""
    return _COLLECTIONS.sub("", _NUMBER.sub("", key).replace("/", "."))


def _lead(keys: Iterable[str], wanted: Wanted) -> str:
    """Return the model's own name, where every key begins with it and none that is wanted does."""
    firsts = {key.partition(".")[0] for key in keys}
    lead = f"{firsts.pop()}." if len(firsts) == 1 else ""
    return "" if any(key.startswith(lead) for key in wanted) else lead


def _feature_lists(names: Mapping[str, str], here: Here, wanted: Wanted, lead: str) -> set[str]:
    """Return the lists that are called as those in front of a classifier, where a kernel shows that it is turned.

    In the kernel of a transposed convolution inputs and outputs would have the other order, which shows where it has
    not as many of both.
    """
    found = set()
    for key, name in names.items():
        layer, _, leaf = name[len(lead) :].rpartition(".")
        shape, expected = here[key].shape, wanted.get(f"{layer}.weight")
        if leaf != _KERNELS[0] or expected is None or len(shape) < 3 or not _FEATURES.search(layer):
            continue
        if shape[-1] != shape[-2] and (shape[-1], shape[-2], *shape[:-2]) == expected.shape:
            found.add(layer.rpartition(".")[0])
    return found


def _found(key: str, plain: str, tensor: Tensor, wanted: Wanted, keras: bool, lists: Collection[str]) -> Found | None:
    """Return what one tensor becomes, or None where nothing of that name and shape is wanted."""
    layer, _, leaf = plain.rpartition(".")
    name = f"{layer}.{_LEAVES.get(leaf, leaf)}" if layer else _LEAVES.get(leaf, leaf)
    expected = wanted.get(name)
    if expected is None or tensor.parts or tensor.layout != "strided" or tensor.dtype.kind != "float":
        return None
    shape, there = tensor.shape, expected.shape
    if leaf not in _KERNELS:
        # what stays a weight, such as a table beside kernels, is one where its sizes tell that it is not turned
        known = leaf in _LEAVES or len(shape) < 2 or shape != shape[::-1]
        return (key, (name,), SAME, shape) if shape == there and known else None
    if len(shape) < 2 or (len(shape) > 2 and _TRANSPOSED.search(layer)):
        return None
    turned = (shape[-1], shape[-2], *shape[:-2])
    if leaf == "kernel" and turned == there:
        square = len(shape) > 2 and shape[-1] == shape[-2]
        # of a transposed convolution of Flax nothing else would tell, where it has as many inputs as outputs
        told = keras or _FORWARD.search(layer) is not None or layer.rpartition(".")[0] in lists
        return None if square and not told else (key, (name,), KERNEL, there)
    each = (shape[-2] * shape[-1], 1, *shape[:-2])
    return (key, (name,), DEPTHWISE, there) if len(shape) == 4 and each == there else None


def _widths(found: Iterable[Found], wanted: Wanted) -> list[Shape]:
    """Return the widths of layers: (outputs, inputs, …) of each.

    Two directions are added, or are side by side.
    """
    made: list[Shape] = []
    for _, new, how, shape in found:
        module, dot, leaf = new[0].rpartition(".")
        name, end = leaf.removesuffix(_REVERSE), leaf[len(leaf.removesuffix(_REVERSE)) :]
        if name == _RECURRENT["kernel"]:
            width = wanted[f"{module}{dot}{_RECURRENT['recurrent_kernel']}{end}"].shape[1]
            made.append((width, shape[1]))
            made += [(2 * width, shape[1])] if end else []
        elif how not in (SAME, GATE_BIASES) and name != _RECURRENT["recurrent_kernel"]:
            made.append(shape)
    return made


def forward(layer: str) -> bool:
    """Return whether the name of a layer says that it is not a transposed convolution."""
    return _FORWARD.search(layer) is not None or _FEATURES.search(layer) is not None


def _flows(weights: Iterable[Shape]) -> bool:
    """Return whether no linear layer comes after a flattened image, or before one, as far as widths show.

    A linear layer then takes the last width of the convolutions, or the outputs of another such linear layer.
    """
    weights = list(weights)
    flat = {shape for shape in weights if len(shape) == 2}
    edges = {(shape[0] if shape[1] == 1 else shape[1], shape[0]) for shape in weights if len(shape) > 2}
    if not edges or not flat:
        return True
    given = _ends(edges)
    while flat:
        taken = {shape for shape in flat if shape[1] in given}
        if not taken:
            return False
        given |= {shape[0] for shape in taken}
        flat = flat - taken
    return True


def _ends(edges: set[tuple[int, int]]) -> set[int]:
    """Return the widths that convolutions can end with: where no way leads on without a way back, the largest."""
    reach = {width: {width} for edge in edges for width in edge}
    if len(reach) > _MANY:
        return set()
    for _ in reach:
        for one, other in edges:
            for found in reach.values():
                if one in found:
                    found.add(other)
    return {max(found) for width, found in reach.items() if all(width in reach[other] for other in found)}
