"""Drawn shapes: grey images of 28×28 pixels in ten classes, made here, so that training needs no download.

An image is a function of the plane, looked at through a random frame (turned, scaled, stretched, moved), partly hidden,
of random contrast, with noise. A network that only weighs pixels gets four in five right, as does comparing with the
nearest known image; LeNet gets 97 of 100: what shapes have and pixels do not is worth learning.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ckptdoctor.trainer.data.dataset import Dataset, DataSplit, generator

TRAIN, TEST = 10_000, 2_000
SIDE = 28

BLOCK = 250
"""Images are drawn in blocks, each from random numbers of its own: the first images do not depend on how many follow.
What a block has of one class is so small that torch gives it to one thread, and the operations are those that it splits
no further (not ``sqrt`` and ``round``): nothing waits for threads, and the bits do not depend on how many there are."""

# how far from the same each time, in pixels and radians, as measured for the accuracies above: less of any of these,
# and weighing pixels is enough; more, and plus and cross, or square and disk, can hardly be told apart
MOVE, TURN, SIZE, STRETCH = 2.1, 0.35, (7.0, 11.0), (0.8, 1.25)
HIDE_AT, HIDE = (-11.0, 11.0), (-0.5, 2.3)
# in shades of grey; grain times four bytes less their mean, a distribution that is nearly normal and has exact bits
GRAIN, CONTRAST, GROUND = (0.05, 0.25), (90.0, 200.0), (10.0, 60.0)


def disk(u: Tensor, v: Tensor) -> Tensor:
    """Return a full circle. As in all of these: how far inside the shape a point is, negative outside."""
    return within(0.95, u, v)


def ring(u: Tensor, v: Tensor) -> Tensor:
    """Return a circle with a hole."""
    return torch.minimum(within(0.95, u, v), -within(0.55, u, v))


def square(u: Tensor, v: Tensor) -> Tensor:
    """Return a full square."""
    return 0.85 - torch.maximum(u.abs(), v.abs())


def frame(u: Tensor, v: Tensor) -> Tensor:
    """Return a square with a hole."""
    return 0.19 - (torch.maximum(u.abs(), v.abs()) - 0.7).abs()


def triangle(u: Tensor, v: Tensor) -> Tensor:
    """Return a triangle with its base at the bottom."""
    return torch.minimum(0.6 - v, 0.55 + 0.5 * v - 0.87 * u.abs())


def plus(u: Tensor, v: Tensor) -> Tensor:
    """Return two bars, upright and level."""
    return torch.maximum(box(u, v, 0.24, 0.95), box(u, v, 0.95, 0.24))


def cross(u: Tensor, v: Tensor) -> Tensor:
    """Return two bars, both slanted."""
    return plus(0.7071 * (u + v), 0.7071 * (u - v))


def bars(u: Tensor, v: Tensor) -> Tensor:
    """Return three upright bars."""
    return torch.maximum(box(u, v, 0.16, 0.85), box(u.abs() - 0.66, v, 0.16, 0.85))


def stairs(u: Tensor, v: Tensor) -> Tensor:
    """Return three steps that go up to the right."""
    low, middle = box(u, v - 0.6, 0.9, 0.3), box(u - 0.3, v - 0.3, 0.6, 0.6)
    return torch.maximum(torch.maximum(low, middle), box(u - 0.6, v, 0.3, 0.9))


def crescent(u: Tensor, v: Tensor) -> Tensor:
    """Return a circle that another one has bitten off at its right."""
    return torch.minimum(within(0.95, u, v), -within(0.7, u - 0.5, v))


def within(radius: float, u: Tensor, v: Tensor) -> Tensor:
    """Return the distance of a point to the edge of a circle around the middle, positive inside. Needs no root."""
    return (radius * radius - (u * u + v * v)) / (2 * radius)


def box(u: Tensor, v: Tensor, half_width: float, half_height: float) -> Tensor:
    """Return the distance of a point to the edge of a rectangle around the middle, positive inside."""
    return torch.minimum(half_width - u.abs(), half_height - v.abs())


SHAPES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    disk, ring, square, frame, triangle, plus, cross, bars, stairs, crescent
)  # fmt: skip


def shapes(train: int = TRAIN, test: int = TEST) -> Dataset:
    """Return as many images of each split as are asked for. The first ones are always the same."""
    classes = tuple(shape.__name__ for shape in SHAPES)
    return Dataset("shapes", draw("train", train), draw("test", test), classes, mean=(0.2445,), std=(0.2330,))


def draw(name: str, count: int) -> DataSplit:
    """Return the first ``count`` images of a split.

    The classes take turns: any first images have nearly as many of each.
    """
    whole = -(-count // BLOCK) * BLOCK
    inputs = torch.empty(whole, 1, SIDE, SIDE, dtype=torch.uint8)
    for first in range(0, whole, BLOCK):
        random = generator("shapes", name, first)
        for label, shape in enumerate(SHAPES):
            turns = slice(first + label, first + BLOCK, len(SHAPES))
            inputs[turns] = picture(shape, BLOCK // len(SHAPES), random)
    return DataSplit(inputs, torch.arange(whole) % len(SHAPES)).first(count)


def picture(shape: Callable[[Tensor, Tensor], Tensor], count: int, random: torch.Generator) -> Tensor:
    """Return ``count`` images of one shape, as bytes (count, 1, height, width)."""

    def between(low: float, high: float) -> Tensor:
        return torch.rand(count, 1, generator=random) * (high - low) + low

    pixel = torch.arange(SIDE, dtype=torch.float32) - (SIDE - 1) / 2
    x = pixel.repeat(SIDE)[None] - between(-MOVE, MOVE)
    y = pixel.repeat_interleave(SIDE)[None] - between(-MOVE, MOVE)
    u, v = turned(x, y, between(-TURN, TURN))
    size, stretch = between(*SIZE), between(*STRETCH)
    inside = (shape(u / (size * stretch), v / (size / stretch)) * size + 0.5).clamp_(0, 1)
    # a stripe of background at a random place and slant hides a part
    across, _ = turned(x, y, between(0, 2 * torch.pi))
    inside *= ((across - between(*HIDE_AT)).abs() - between(*HIDE)).clamp_(0, 1)
    grain = torch.full_like(inside, -4 * 127.5)
    for _ in range(4):
        grain += torch.randint(0, 256, inside.shape, generator=random, dtype=torch.float32)
    grain *= between(*GRAIN)
    grey = inside * between(*CONTRAST) + between(*GROUND) + grain
    return grey.clamp_(0, 255).add_(0.5).to(torch.uint8).view(count, 1, SIDE, SIDE)  # drops the fraction


def turned(x: Tensor, y: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same points as a frame sees them that is turned by an angle."""
    # in double precision and then rounded, so that it does not matter whose cosine it is
    cos, sin = angle.double().cos().float(), angle.double().sin().float()
    return x * cos + y * sin, y * cos - x * sin
