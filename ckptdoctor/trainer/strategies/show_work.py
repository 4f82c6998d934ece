"""``--show-work``: the first step in numbers, as tutorials of data parallelism print it.

A part of the batch goes to each replica, each computes its gradient, and a sum makes them one. One parameter stands for
all, and its first values for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

_LABELS = 8
_VALUES = 4


@dataclass(frozen=True)
class GradientShown:
    """The gradient of one parameter at one moment of the step, on some or all of the replicas."""

    moment: str
    replicas: Sequence[torch.Tensor]


def first_step(
    parts: Sequence[Sequence[torch.Tensor]], parameter: str, stages: Sequence[GradientShown], update: str
) -> tuple[str, ...]:
    """Return the lines to print; ``parts`` are the inputs and labels of each replica. None is wider than 80 columns."""
    return tuple(_lines(parts, parameter, stages, update))


def _lines(
    parts: Sequence[Sequence[torch.Tensor]], parameter: str, stages: Sequence[GradientShown], update: str
) -> Iterator[str]:
    whole = (sum(len(inputs) for inputs, _ in parts), *parts[0][0].shape[1:])
    names = [f"  replica {number} on {inputs.device}:" for number, (inputs, _) in enumerate(parts)]
    width = max(map(len, names))
    yield f"first step: a batch of {whole[0]} on {len(parts)} replica{'s'[: len(parts) > 1]}"
    yield f"scatter: inputs {whole} are split along the first dimension"
    for name, (inputs, labels) in zip(names, parts, strict=True):
        some = " ".join(map(str, labels[:_LABELS].tolist())) + (" …" if len(labels) > _LABELS else "")
        yield f"{name:<{width}} {tuple(inputs.shape)}, labels {some}"
    yield f"gradient of {parameter} {tuple(stages[0].replicas[0].shape)}"
    for stage in stages:
        yield f"{stage.moment}:"
        for name, gradient in zip(names, stage.replicas, strict=False):
            values = gradient.flatten().float()
            some = " ".join(f"{value:+.2e}" for value in values[:_VALUES].tolist())
            yield f"{name:<{width}} {some} … norm {values.norm():.2e}"
    yield update
