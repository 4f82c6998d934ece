"""A small VGG: blocks of 3×3 convolutions and max pooling, then a classifier with dropout."""

from __future__ import annotations

import torch
from torch import nn


class VGG(nn.Module):
    """Three blocks of 1, 1 and 2 convolutions; each block doubles the channels and halves the image."""

    def __init__(self, channels: int, size: int, classes: int, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for convolutions, outputs in ((1, width), (1, 2 * width), (2, 4 * width)):
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
                channels = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * (size // 8) ** 2, 8 * width),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(8 * width, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, channels, size, size)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits
