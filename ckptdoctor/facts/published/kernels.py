"""Weights of Keras and Flax under the names of their layers: kernels with the outputs last, and other leaves.

A layer's ``kernel`` is (spatial sizes, inputs, outputs) in both, where torch's ``weight`` is (outputs, inputs, spatial
sizes), so the leaf's name says how its values lie, even where all sizes are equal. Sources: layers/core/dense.py,
layers/convolutional/base_conv.py and base_depthwise_conv.py, layers/normalization/batch_normalization.py of keras 3;
linen/linear.py and normalization.py of flax.

An LSTM of Keras has its gates in torch's order (i, f, c, o), and one bias where torch adds two: the second is zero
(keras 3, layers/rnn/lstm.py). A GRU has other gates, and is refused.

Two things no name tells, and they are refused: transposed convolutions, whose kernels Flax turns by 180° and Keras does
not (the lists that torchvision calls features have none); and linear layers behind a flattened image, whose inputs come
in another order (channels last).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.facts.derived import is_derived
from ckptdoctor.facts.published.table import DEPTHWISE, KERNEL, SAME, Published

Here = Mapping[str, Tensor]
Shape = tuple[int, ...]
Found = tuple[str, str, str, Shape]  # old key, new key, what becomes of it, and its new shape

KERNELS = Published(
    "Keras or Flax", "torch", "layers/convolutional/base_conv.py of keras 3, linen/linear.py of flax", ()
)

_KERNELS = ("kernel", "depthwise_kernel")
_CELL = ".lstm_cell"
_GATES = 4
_RECURRENT = {"kernel": "weight_ih_l0", "recurrent_kernel": "weight_hh_l0", "bias": "bias_ih_l0"}
_SECOND = "bias_hh_l0"  # torch adds it to bias_ih_l0
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


def kernels(here: Here, reference: Reference) -> list[Found]:
    """What every tensor becomes; nothing where one of them has no place, or where names do not tell how values lie."""
    wanted = reference.tensors
    plain = {key: _plain(key) for key in here}
    leaves = {name.rpartition(".")[2] for name in plain.values()}
    if leaves.isdisjoint(_KERNELS):
        return []
    lead = _lead(plain.values(), wanted)
    keras = any(":" in key for key in here) or not leaves.isdisjoint((*_KERAS, "embeddings", "depthwise_kernel"))
    lists = _feature_lists(plain, here, wanted, lead)
    found: list[Found] = []
    for key, tensor in here.items():
        name = plain[key][len(lead) :]
        made = _recurrent(key, name, tensor, wanted) or _found(key, name, tensor, wanted, keras, lists)
        if made is None:
            return []
        found.append(made)
    names = {new for _, new, _, _ in found}
    zeros = {key for key, _ in second_biases(names, wanted)}
    missing = [key for key in wanted if key not in names | zeros and not key.endswith(_COUNTER)]
    if len(names) < len(found) or not all(is_derived(key, wanted[key].shape, wanted[key].dtype) for key in missing):
        return []
    return found if _flows([wanted[new].shape for _, new, how, _ in found if how != SAME]) else []


def second_biases(names: Iterable[str], wanted: Mapping[str, Expected]) -> list[tuple[str, str]]:
    """The biases of LSTMs that Keras does not have, each with the one that it is added to; they are zero."""
    firsts = [name for name in names if name.rpartition(".")[2] == _RECURRENT["bias"]]
    found = [(f"{first.removesuffix(_RECURRENT['bias'])}{_SECOND}", first) for first in firsts]
    return [(key, first) for key, first in found if key in wanted and wanted[key].shape == wanted[first].shape]


def _recurrent(key: str, plain: str, tensor: Tensor, wanted: Mapping[str, Expected]) -> Found | None:
    """What a tensor of an LSTM becomes; None for any other one, and where the target has not four gates."""
    layer, _, leaf = plain.rpartition(".")
    if leaf not in _RECURRENT or tensor.parts or tensor.layout != "strided" or tensor.dtype.kind != "float":
        return None
    module = layer.removesuffix(_CELL)
    inner = wanted.get(f"{module}.{_RECURRENT['recurrent_kernel']}")
    name = f"{module}.{_RECURRENT[leaf]}"
    if inner is None or name not in wanted or inner.shape[0] != _GATES * inner.shape[1]:
        return None
    made = tensor.shape[::-1]
    return (key, name, SAME if leaf == "bias" else KERNEL, made) if made == wanted[name].shape else None


def _plain(key: str) -> str:
    """The key with dots, without the collection that Flax keeps it in and the number that TensorFlow gives it."""
    return _COLLECTIONS.sub("", _NUMBER.sub("", key).replace("/", "."))


def _lead(keys: Iterable[str], wanted: Mapping[str, Expected]) -> str:
    """The model's own name, where every key begins with it and none that is wanted does."""
    firsts = {key.partition(".")[0] for key in keys}
    lead = f"{firsts.pop()}." if len(firsts) == 1 else ""
    return "" if any(key.startswith(lead) for key in wanted) else lead


def _feature_lists(names: Mapping[str, str], here: Here, wanted: Mapping[str, Expected], lead: str) -> set[str]:
    """The lists that are called as those in front of a classifier, where one of their kernels shows that it is turned.

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


def _found(
    key: str, plain: str, tensor: Tensor, wanted: Mapping[str, Expected], keras: bool, lists: Collection[str]
) -> Found | None:
    """What one tensor becomes; None where nothing of that name and shape is wanted."""
    layer, _, leaf = plain.rpartition(".")
    name = f"{layer}.{_LEAVES.get(leaf, leaf)}" if layer else _LEAVES.get(leaf, leaf)
    expected = wanted.get(name)
    if expected is None or tensor.parts or tensor.layout != "strided" or tensor.dtype.kind != "float":
        return None
    shape, there = tensor.shape, expected.shape
    if leaf not in _KERNELS:
        # what stays a weight, such as a table beside kernels, is one where its sizes tell that it is not turned
        known = leaf in _LEAVES or len(shape) < 2 or shape != shape[::-1]
        return (key, name, SAME, shape) if shape == there and known else None
    if len(shape) < 2 or (len(shape) > 2 and _TRANSPOSED.search(layer)):
        return None
    turned = (shape[-1], shape[-2], *shape[:-2])
    if leaf == "kernel" and turned == there:
        square = len(shape) > 2 and shape[-1] == shape[-2]
        # of a transposed convolution of Flax nothing else would tell, where it has as many inputs as outputs
        told = keras or _FORWARD.search(layer) is not None or layer.rpartition(".")[0] in lists
        return None if square and not told else (key, name, KERNEL, there)
    each = (shape[-2] * shape[-1], 1, *shape[:-2])
    return (key, name, DEPTHWISE, there) if len(shape) == 4 and each == there else None


def forward(layer: str) -> bool:
    """Whether the name of a layer says that it is no transposed convolution."""
    return _FORWARD.search(layer) is not None or _FEATURES.search(layer) is not None


def _flows(weights: Iterable[Shape]) -> bool:
    """Whether no linear layer stands behind a flattened image, or before one, as far as widths can tell.

    A linear layer takes what the convolutions end with, or what another such linear layer gives.
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
    """The widths that convolutions can end with: where no way leads on without a way back, the largest."""
    reach = {width: {width} for edge in edges for width in edge}
    if len(reach) > _MANY:
        return set()
    for _ in reach:
        for one, other in edges:
            for found in reach.values():
                if one in found:
                    found.add(other)
    return {max(found) for width, found in reach.items() if all(width in reach[other] for other in found)}
