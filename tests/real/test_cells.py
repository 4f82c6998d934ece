"""Recurrent layers and their cells: the same gates in the same order, under other names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

WIDTH = 4


def nets(layer, cell, layers=1):
    """A layer, and cells of it, each inside of a network; both square, so that only names tell."""
    cells = nn.ModuleList([cell(WIDTH, WIDTH) for _ in range(layers)])
    return [
        nn.ModuleDict({"rnn": rnn, "out": nn.Linear(WIDTH, 3)})
        for rnn in (layer(WIDTH, WIDTH, layers), cells if layers > 1 else cells[0])
    ]


@pytest.mark.parametrize("back", [False, True], ids=["to cells", "to a layer"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("layer", "cell"), [(nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell)], ids=["LSTM", "GRU"])
def test_a_layer_and_its_cells_compute_the_same(bench, layer, cell, layers, back):
    """Step by step each cell gives what the layer gave."""
    source, target = nets(layer, cell, layers)[:: -1 if back else 1]
    bench.repair(source.state_dict(), target)
    whole, cells = (target, source) if back else (source, target)
    sequence = torch.rand(3, WIDTH)
    state = [None] * layers
    with torch.no_grad():
        wanted, _ = whole["rnn"](sequence)
        for step, expected in zip(sequence, wanted, strict=True):
            for at, each in enumerate(cells["rnn"] if layers > 1 else [cells["rnn"]]):
                state[at] = each(step, state[at])
                step = state[at][0] if isinstance(state[at], tuple) else state[at]
            assert torch.allclose(step, expected, atol=1e-6)


def test_a_layer_of_two_directions_is_no_cell(bench):
    """What runs backwards has no place in it."""
    source = nn.ModuleDict({"rnn": nn.LSTM(WIDTH, WIDTH, bidirectional=True), "out": nn.Linear(WIDTH, 3)})
    bench.refuse(source.state_dict(), nets(nn.LSTM, nn.LSTMCell)[1])
