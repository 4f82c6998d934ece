"""What other libraries saved and computed, in small files that they wrote: torch computes the same of what is made."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.oracles.freeze import frozen

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    """The layers of the frozen networks of Keras in torch."""

    def __init__(self, kind, both):
        super().__init__()
        self.rnn = kind(5, 6, batch_first=True, bidirectional=both)
        self.fc = nn.Linear(12 if both else 6, 3)

    def forward(self, x):
        end = self.rnn(x)[1]
        ends = end[0] if isinstance(end, tuple) else end
        return self.fc(torch.cat(list(ends), -1))


@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both directions"])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_computes_what_keras_computed(fixed, kind, both):
    """Of kernels, gates and biases as Keras wrote them."""
    saved, x, y = frozen(f"keras_{kind}{'_both' if both else ''}")
    target = Recurrent(KINDS[kind], both)
    target.load_state_dict(fixed(saved, target.state_dict()))
    with torch.no_grad():
        assert torch.allclose(target(x), y, atol=1e-5)


def test_a_gru_of_keras_with_its_reset_before_is_refused(fixed):
    """As Keras wrote it: one row of biases."""
    saved, _, _ = frozen("keras_gru_before")
    assert "reset_after=False" in fixed(saved, Recurrent(nn.GRU, False).state_dict(), status=1)
