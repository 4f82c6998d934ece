"""FooNet: three linear layers of three numbers, the smallest network in which data parallelism can be watched."""

from __future__ import annotations

import torch
from torch import nn


class FooNet(nn.Module):
    """Three bias-free linear layers, 3 → 3, with ReLU between them: ``linears.0.weight`` … ``linears.2.weight``."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(3, 3, bias=False) for _ in range(3)])

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Logits (N, 3) of points (N, 3)."""
        *hidden, last = self.linears
        for linear in hidden:
            points = torch.relu(linear(points))
        logits: torch.Tensor = last(points)
        return logits
