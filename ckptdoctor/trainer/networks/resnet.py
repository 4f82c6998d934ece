"""A small ResNet with batch norm, with the usual keys: ``conv1``, ``bn1``, ``layer1.0.conv1`` … ``fc``."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Two 3×3 convolutions, and around them the input itself, brought to the same shape."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features (N, outputs, rows / stride, columns / stride)."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        around = images if self.downsample is None else self.downsample(images)
        return torch.relu(self.bn2(self.conv2(hidden)) + around)


class ResNet(nn.Module):
    """A convolution, three blocks of doubling width, and a linear layer on the mean of each channel."""

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = nn.Sequential(Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, channels, rows, columns)."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        hidden = self.layer3(self.layer2(self.layer1(hidden)))
        logits: torch.Tensor = self.fc(hidden.mean((2, 3)))
        return logits
