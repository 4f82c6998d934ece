"""The networks: shapes, keys, and the same weights from the same seed."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.trainer.config import NETWORKS, RunConfig
from ckptdoctor.trainer.networks import build, lenet

INPUTS = {"foonet": [(3,)], "lenet": [(1, 28, 28), (3, 32, 32)], "vgg": [(1, 28, 28), (3, 32, 32)]}


@pytest.mark.parametrize("network", NETWORKS)
def test_logits_have_one_column_for_each_class(network):
    """Every network takes the inputs of its data sets and gives (N, classes)."""
    for shape in INPUTS.get(network, INPUTS["lenet"]):
        model = build(RunConfig(network=network), shape, 3)
        assert model(torch.randn(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_seed_settles_the_weights(network):
    """The same seed gives the same weights, another seed others."""
    shape = INPUTS.get(network, INPUTS["lenet"])[0]
    one, same, other = (build(RunConfig(network=network, seed=seed), shape, 3).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_foonet_has_the_keys_of_its_tutorial():
    """Three bias-free layers of three numbers."""
    state = build(RunConfig(network="foonet"), (3,), 3).state_dict()
    assert {key: tuple(value.shape) for key, value in state.items()} == {
        "linears.0.weight": (3, 3),
        "linears.1.weight": (3, 3),
        "linears.2.weight": (3, 3),
    }


def test_lenet_has_the_shapes_of_its_tutorial():
    """20×1×3×3, 50×20×5×5, 800 → 128 and 128 → 10."""
    shapes = [tuple(value.shape) for value in build(RunConfig(), (1, 28, 28), 10).state_dict().values()]
    assert shapes == [(20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (128, 800), (128,), (10, 128), (10,)]


def test_lenet_on_bare_tensors_is_lenet():
    """The function and the module give the same bits."""
    model, images = build(RunConfig(), (1, 28, 28), 10), torch.randn(4, 1, 28, 28)
    assert torch.equal(lenet(images, list(model.parameters())), model(images))


def test_the_width_makes_a_network_small():
    """A resnet of width 4 has a sixteenth of the weights of its usual width, about."""
    sizes = [
        sum(p.numel() for p in build(RunConfig(network="resnet", width=width), (1, 28, 28), 10).parameters())
        for width in (4, 16)
    ]
    assert sizes[0] < 6_000 < 70_000 < sizes[1]
