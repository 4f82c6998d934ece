"""The networks that are trained, each a few lines of torch.nn, and the choice among them by name."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ckptdoctor.trainer.config import RunConfig

_WIDTHS = {"lenet": 20, "vgg": 16, "resnet": 16}


def build(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network of a run, on the CPU, with the same initial weights on every rank: they follow from the seed.

    ``shape`` is that of one input: (3,) for points, (channels, rows, columns) for square images.
    """
    torch.manual_seed(config.seed)
    return _network(config, shape, classes).to(getattr(torch, config.dtype))


def _network(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    if config.network == "foonet":
        return FooNet()
    channels, size, _ = shape
    width = config.width or _WIDTHS[config.network]
    if config.network == "lenet":
        return LeNet(channels, size, classes, width)
    if config.network == "vgg":
        return VGG(channels, size, classes, width)
    return ResNet(channels, classes, width)


class FooNet(nn.Module):
    """Three bias-free linear layers, 3 → 3, with ReLU between them: ``linears.0.weight`` … ``linears.2.weight``.

    It is the smallest network in which data parallelism can be watched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(3, 3, bias=False) for _ in range(3)])

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 3) of points (N, 3)."""
        *hidden, last = self.linears
        for linear in hidden:
            points = torch.relu(linear(points))
        logits: torch.Tensor = last(points)
        return logits


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
        """Return logits (N, classes) of images (N, channels, size, size)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


def lenet(images: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    """Return the same function of images and the eight parameters of a LeNet in the order of its state dict."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    hidden = F.avg_pool2d(F.relu(F.conv2d(images, w1, b1)), 2)
    hidden = F.avg_pool2d(F.relu(F.conv2d(hidden, w2, b2)), 2)
    hidden = F.relu(F.linear(hidden.flatten(1), w3, b3))
    return F.linear(hidden, w4, b4)


class VGG(nn.Module):
    """A small VGG: three blocks of 1, 1 and 2 convolutions of 3×3, then a classifier with dropout.

    Each block doubles the channels and halves the image.
    """

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
        """Return logits (N, classes) of images (N, channels, size, size)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


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
        """Return features (N, outputs, rows / stride, columns / stride)."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        around = images if self.downsample is None else self.downsample(images)
        return torch.relu(self.bn2(self.conv2(hidden)) + around)


class ResNet(nn.Module):
    """A convolution, three blocks of doubling width, and a linear layer on the mean of each channel.

    It has batch norm, and the usual keys: ``conv1``, ``bn1``, ``layer1.0.conv1`` … ``fc``.
    """

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = nn.Sequential(Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes) of images (N, channels, rows, columns)."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        hidden = self.layer3(self.layer2(self.layer1(hidden)))
        logits: torch.Tensor = self.fc(hidden.mean((2, 3)))
        return logits
