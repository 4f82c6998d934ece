"""A network of Keras, its weights under their paths as keys: torch computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.oracles.conftest import library
from tests.oracles.freeze import recurrent
from tests.oracles.test_frozen import Recurrent


class Net(nn.Module):
    """The same layers in torch."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.depth = nn.Conv2d(3, 6, (3, 2), groups=3)
        self.grouped = nn.Conv2d(6, 6, 3, groups=2)
        self.norm = nn.BatchNorm2d(6, eps=1e-3)
        self.fc1, self.fc2 = nn.Linear(6, 7), nn.Linear(7, 7)

    def forward(self, images):
        x = self.norm(self.grouped(self.depth(self.conv(images)))).mean((2, 3))
        return self.fc2(self.fc1(x).relu())


@pytest.mark.slow
def test_torch_computes_what_keras_did(fixed, monkeypatch):
    """Convolutions of 3 × 3 × 3 × 3, depthwise and in groups, a norm and linear layers, one of them square."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = library("keras")
    layers = keras.layers
    net = keras.Sequential(
        [
            layers.Input((11, 11, 3)),
            layers.Conv2D(3, 3, name="conv"),
            layers.DepthwiseConv2D((3, 2), depth_multiplier=2, name="depth"),
            layers.Conv2D(6, 3, groups=2, name="grouped"),
            layers.BatchNormalization(name="norm"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(7, activation="relu", name="fc1"),
            layers.Dense(7, name="fc2"),
        ]
    )
    torch.manual_seed(0)
    for each in net.weights:
        each.assign(torch.rand(tuple(each.shape)) + 0.5)
    source = {each.path: each.value.detach().clone() for each in net.weights}
    target = Net().eval()
    made = fixed(source, target.state_dict())
    target.load_state_dict(made | {"norm.num_batches_tracked": torch.tensor(0)})
    images = torch.rand(2, 3, 11, 11)
    with torch.no_grad():
        wanted = net(images.permute(0, 2, 3, 1), training=False)
        assert torch.allclose(target(images), wanted, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both directions"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_torch_computes_what_recurrent_layers_of_keras_did(fixed, monkeypatch, kind, both):
    """The gates of an LSTM have one order, those of a GRU another one, and so have its biases."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    layers = library("keras").layers
    torch.manual_seed(0)
    net = recurrent(layers, getattr(layers, kind), both)
    source = {each.path: each.value.detach().clone() for each in net.weights}
    target = Recurrent(getattr(nn, kind), both).eval()
    target.load_state_dict(fixed(source, target.state_dict()))
    x = torch.rand(2, 4, 5)
    with torch.no_grad():
        assert torch.allclose(target(x), net(x, training=False), atol=1e-5)
