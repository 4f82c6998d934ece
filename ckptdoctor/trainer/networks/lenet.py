"""LeNet: two convolutions and two linear layers, as a module and, for manual data parallelism, on bare tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class LeNet(nn.Module):
    """Convolutions of 20 and 50 channels, each with ReLU and average pooling, then 128 hidden units.

    For 28×28 grey images the parameters are 20×1×3×3, 50×20×5×5, 800→128 and 128→10. The parts ``features`` and
    ``classifier`` can be run apart, which functional data parallelism does.
    """

    def __init__(self, channels: int, size: int, classes: int, width: int = 20) -> None:
        super().__init__()
        after = ((size - 2) // 2 - 4) // 2  # rows that each convolution and pooling leave
        self.features = nn.Sequential(
            nn.Conv2d(channels, width, 3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(width, width * 5 // 2, 5),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(width * 5 // 2 * after * after, 128), nn.ReLU(), nn.Linear(128, classes)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, channels, size, size)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


def lenet(images: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    """The same function of images and the eight parameters of a LeNet in the order of its state dict."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    hidden = F.avg_pool2d(F.relu(F.conv2d(images, w1, b1)), 2)
    hidden = F.avg_pool2d(F.relu(F.conv2d(hidden, w2, b2)), 2)
    hidden = F.relu(F.linear(hidden.flatten(1), w3, b3))
    return F.linear(hidden, w4, b4)
