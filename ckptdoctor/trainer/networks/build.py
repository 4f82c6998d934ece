"""From the name of a network to the network."""

from __future__ import annotations

import torch
from torch import nn

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.networks.foonet import FooNet
from ckptdoctor.trainer.networks.lenet import LeNet
from ckptdoctor.trainer.networks.resnet import ResNet
from ckptdoctor.trainer.networks.vgg import VGG

_WIDTHS = {"lenet": 20, "vgg": 16, "resnet": 16}


def build(config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of a run, on the CPU, with the same initial weights on every rank: they follow from the seed.

    ``shape`` is that of one input: (3,) for points, (channels, rows, columns) for square images.
    """
    torch.manual_seed(config.seed)
    return _network(config, shape, classes).to(getattr(torch, config.dtype))


def _network(config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
    if config.network == "foonet":
        return FooNet()
    channels, size, _ = shape
    width = config.width or _WIDTHS[config.network]
    if config.network == "lenet":
        return LeNet(channels, size, classes, width)
    if config.network == "vgg":
        return VGG(channels, size, classes, width)
    return ResNet(channels, classes, width)
