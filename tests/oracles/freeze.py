"""Writes the small files of libraries that are not in the test extra: what they save, and what they compute.

``python -m tests.oracles.freeze keras`` writes ``frozen/keras_*.safetensors`` anew. Each holds the tensors as the
library saves them under ``saved|KEY``, what goes into the network as ``x`` and what came out of it as ``y``; the
versions stand in the metadata. ``test_frozen`` holds the command against them where the library is not installed.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

FROZEN = Path(__file__).parent / "frozen"


def frozen(name):
    """The tensors that the library saved, what went in, and what came out."""
    with safe_open(FROZEN / f"{name}.safetensors", "pt") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no mapping
    saved = {key.partition("|")[2]: value for key, value in found.items() if "|" in key}
    return saved, found["x"], found["y"]


def _write(name, library, saved, x, y):
    FROZEN.mkdir(exist_ok=True)
    tensors = {f"saved|{key}": value.detach().contiguous() for key, value in saved.items()}
    versions = {library: version(library), "torch": torch.__version__}
    save_file({**tensors, "x": x, "y": y.detach()}, FROZEN / f"{name}.safetensors", versions)


def recurrent(layers, kind, both=False, **options):
    """A network of Keras with one recurrent layer, or one in both directions, of numbers of its own."""
    from keras import Sequential

    layer = kind(6, name="inner", **options)
    rnn = layers.Bidirectional(layer, name="rnn") if both else kind(6, name="rnn", **options)
    net = Sequential([layers.Input((4, 5)), rnn, layers.Dense(3, name="fc")])
    for each in net.weights:
        each.assign(torch.rand(tuple(each.shape)) - 0.5)
    return net


def _keras():
    os.environ["KERAS_BACKEND"] = "torch"
    from keras import layers

    torch.manual_seed(0)
    for name, kind in (("lstm", layers.LSTM), ("gru", layers.GRU)):
        for both in (False, True):
            net = recurrent(layers, kind, both)
            saved = {each.path: each.value for each in net.weights}
            x = torch.rand(2, 4, 5)
            _write(f"keras_{name}{'_both' if both else ''}", "keras", saved, x, net(x, training=False))
    net = recurrent(layers, layers.GRU, reset_after=False)
    x = torch.rand(2, 4, 5)
    saved = {each.path: each.value for each in net.weights}
    _write("keras_gru_before", "keras", saved, x, net(x, training=False))


if __name__ == "__main__":
    {"keras": _keras}[sys.argv[1]]()
