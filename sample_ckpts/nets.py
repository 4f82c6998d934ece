"""The small networks that the samples are taken from."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    """A convolution, a batch norm and a classifier: 12,470 parameters for ten classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 4 * 4, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32)."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        hidden = torch.relu(self.bn2(self.conv2(hidden)))
        return self.fc(nn.functional.adaptive_avg_pool2d(hidden, 4).flatten(1))


class Normed(nn.Module):
    """Two convolutions with instance norms and a classifier, for small grey images."""

    def __init__(self, track: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm1 = nn.InstanceNorm2d(8, affine=True, track_running_stats=track)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.InstanceNorm2d(16, affine=True, track_running_stats=track)
        self.fc = nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, 10) of images (N, 1, rows, columns)."""
        hidden = torch.relu(self.norm1(self.conv1(images)))
        hidden = torch.relu(self.norm2(self.conv2(hidden)))
        return self.fc(hidden.mean((2, 3)))


class TiedLM(nn.Module):
    """A language model of two layers whose output head is its embedding."""

    def __init__(self, vocabulary: int = 50, width: int = 16) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.embed_tokens.weight


def settled(model: nn.Module) -> nn.Module:
    """The model with the same weights on every machine: random numbers differ with the processor's vector width."""
    for parameter in model.parameters():
        counted = torch.arange(parameter.numel(), dtype=torch.float32).remainder(97) - 48
        parameter.data.copy_((counted / 97).reshape(parameter.shape))
    return model


def net(classes: int = 10) -> nn.Module:
    """The network with the same weights every time."""
    return settled(Net(classes))


def layers() -> nn.Module:
    """Three linear layers of different sizes, by number."""
    return settled(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16), nn.Linear(16, 2)))


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and its AdamW optimizer after a step with given gradients."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    optimizer.step()
    return model, optimizer
