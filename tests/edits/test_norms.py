"""Along which dimension a norm was made: from the shapes that torch's own norms leave."""

from __future__ import annotations

import pytest
from torch import nn
from torch.nn.utils import parametrizations

from ckptdoctor.edits.norms import spectral_dims, weight_dims

LAYERS = [
    nn.Linear(4, 6),
    nn.Linear(1, 5),
    nn.Linear(5, 1),
    nn.Conv1d(4, 6, 3),
    nn.Conv2d(2, 1, 3),
    nn.ConvTranspose2d(3, 5, 3),
    nn.Embedding(7, 4),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_weight_norm_shows_its_dimension(layer):
    """For every dimension of every layer g has a shape that shows it, or all dimensions that it fits mean the same."""
    for dim in (*range(layer.weight.dim()), None):
        made = parametrizations.weight_norm(type(layer)(*_sizes(layer)), dim=dim).state_dict()
        g, v = (tuple(made[f"parametrizations.weight.original{number}"].shape) for number in (0, 1))
        (found,) = weight_dims(v, g)
        assert found == dim or v[found] == v[dim] == 1


def _sizes(layer):
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if isinstance(layer, nn.Embedding):
        return layer.num_embeddings, layer.embedding_dim
    return layer.in_channels, layer.out_channels, layer.kernel_size


@pytest.mark.parametrize(
    ("v", "g"), [((4, 3), (4,)), ((4, 3), (4, 3)), ((4, 3), (1, 1)), ((4, 3), (5, 1)), ((4, 3), (1,))]
)
def test_shapes_that_torch_does_not_leave_say_nothing(v, g):
    """A g of another rank, with two sizes, or with one that v does not have."""
    assert weight_dims(v, g) == ()


def test_spectral_norm_shows_its_dimension_unless_sizes_are_equal():
    """u has the size of one dimension, v that of all others; equal sizes leave both."""
    assert spectral_dims((6, 4, 3), (6,), (12,)) == (0,)
    assert spectral_dims((6, 4, 3), (4,), (18,)) == (1,)
    assert spectral_dims((4, 4, 3), (4,), (12,)) == (0, 1)
    assert spectral_dims((6, 4, 3), (6,), (4,)) == ()
    assert spectral_dims((6,), (6,), (1,)) == ()
