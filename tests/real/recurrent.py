"""Recurrent layers as Keras has them: their weights under its names and in its order, and what it computes of them."""

from __future__ import annotations

import torch
from torch import nn

UNITS = 4


class Recurrent(nn.Module):
    """A recurrent layer of torch and a linear one; all sizes as asked."""

    def __init__(self, kind, size=UNITS, both=False):
        super().__init__()
        self.rnn = kind(size, UNITS, batch_first=True, bidirectional=both)
        self.fc = nn.Linear(UNITS * (2 if both else 1), 3)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


def numbers(kind, size=UNITS, both=False, reset_after=True, inner="inner"):
    """The state dict of such a network of Keras, of numbers of its own."""
    name, gates = ("lstm", 4) if kind is nn.LSTM else ("gru", 3)
    rows = (2,) if kind is nn.GRU and reset_after else ()
    shapes = {"kernel": (size, gates * UNITS), "recurrent_kernel": (UNITS, gates * UNITS),
              "bias": (*rows, gates * UNITS)}  # fmt: skip
    layers = [f"rnn/{way}_{inner}" for way in ("forward", "backward")] if both else ["rnn"]
    cells = {f"{each}/{name}_cell/{leaf}": torch.rand(shape) - 0.5 for each in layers for leaf, shape in shapes.items()}
    return cells | {"fc/kernel": torch.rand(UNITS * len(layers), 3), "fc/bias": torch.rand(3)}


def computed(state, x):
    """What Keras computes, step by step (layers/rnn/lstm.py, gru.py and bidirectional.py)."""
    cells = sorted({key.rpartition("/")[0] for key in state if "_cell/" in key}, key=lambda cell: "backward" in cell)
    ends = [_run(state, cell, x.flip(1) if "backward" in cell else x) for cell in cells]
    # both sides stand at the last step in time: the backward one has seen that step alone
    ends = [each[0] if "backward" in cell else each[-1] for cell, each in zip(cells, ends, strict=True)]
    return torch.cat(ends, -1) @ state["fc/kernel"] + state["fc/bias"]


def _run(state, cell, x):
    kernel, inner, bias = (state[f"{cell}/{leaf}"] for leaf in ("kernel", "recurrent_kernel", "bias"))
    h = c = torch.zeros(len(x), UNITS)
    found = []
    for step in x.unbind(1):
        if "lstm" in cell:
            i, f, g, o = (step @ kernel + h @ inner + bias).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        else:
            xz, xr, xh = (step @ kernel + bias[0]).chunk(3, -1)
            hz, hr, hh = (h @ inner + bias[1]).chunk(3, -1)
            z, r = (xz + hz).sigmoid(), (xr + hr).sigmoid()
            h = z * h + (1 - z) * (xh + r * hh).tanh()
        found.append(h)
    return found
