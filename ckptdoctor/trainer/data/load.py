"""The data set that a configuration asks for."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import replace
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data import shapes
from ckptdoctor.trainer.data.cifar import cifar10
from ckptdoctor.trainer.data.dataset import Dataset, DataSplit, generator
from ckptdoctor.trainer.data.files import folder
from ckptdoctor.trainer.data.mnist import fashion_mnist, mnist, mnist5k

FROM_FILES = {"mnist": mnist, "fashion-mnist": fashion_mnist, "cifar10": cifar10}


def load(config: RunConfig) -> Dataset:
    """Return the images of ``config.data``, as many as ``config.images`` says: the same whatever the seed."""
    train, test = counts(config)
    dataset = source(config, train, test)
    if train is None or test is None:
        return dataset
    return replace(dataset, train=dataset.train.first(train), test=dataset.test.first(test))


def counts(config: RunConfig) -> tuple[int | None, int | None]:
    """Return the number of images to train and to test with, or None for all there are."""
    if config.images is None:
        return None, None
    if config.images < 1:
        raise UsageError(f"training needs at least 1 image, not {config.images}")
    return config.images, max(1, config.images // 5)


def source(config: RunConfig, train: int | None, test: int | None) -> Dataset:
    """Return a data set with at least that many images, if it has them."""
    if config.data == "shapes":  # drawn, so no more than are needed
        return shapes.shapes(min(train or shapes.TRAIN, shapes.TRAIN), min(test or shapes.TEST, shapes.TEST))
    if config.data == "points":
        return points()
    if config.data == "mnist5k":
        return mnist5k()
    if config.data in FROM_FILES:
        directory: Path = folder(config.data, config.data_dir)
        return FROM_FILES[config.data](directory)
    known = ", ".join(["points", "shapes", "mnist5k", *FROM_FILES])
    raise UsageError(f"unknown data set {config.data!r}: choose one of {known}")


def points() -> Dataset:
    """Return points in space, for the smallest network: which of three coordinates is the largest?

    1,024 to learn from and 256 to test with, of three classes, one for each coordinate.
    """
    return Dataset("points", draw_points("train", 1024), draw_points("test", 256), ("x", "y", "z"), (0.0,), (1.0,))


def draw_points(name: str, count: int) -> DataSplit:
    """Return points of a normal distribution, each labelled with the index of its largest coordinate."""
    inputs = torch.randn(count, 3, generator=generator("points", name))
    return DataSplit(inputs, inputs.argmax(dim=1))
