"""What torch says when somebody takes a file as the state dict of the bare model: tried, not remembered."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptdoctor.trainer.strategies.strategy import State

YES = "yes"


def attempt(path: Path, bare: nn.Module | State, *, inside: str | None = None, on_cpu: bool = False) -> str:
    """``"yes"``, or the message of ``torch.load(path)`` or ``load_state_dict`` on a machine without a GPU.

    ``bare`` is an empty model, or the weights themselves where there is no module. ``inside`` is the key of the
    weights in a larger checkpoint; ``on_cpu`` loads with ``map_location="cpu"``.
    """
    try:
        with _as_elsewhere():
            loaded = torch.load(path, map_location="cpu" if on_cpu else None, weights_only=True)
        return fits(loaded if inside is None else loaded[inside], bare)
    except (RuntimeError, pickle.UnpicklingError) as error:
        return _said(error)


def fits(weights: Any, bare: nn.Module | State) -> str:
    """``"yes"``, or what ``load_state_dict`` of the bare model says of these weights."""
    if not isinstance(bare, nn.Module):
        return YES if isinstance(weights, Mapping) and weights.keys() == bare.keys() else "other keys"
    try:
        bare.load_state_dict(weights)
    except RuntimeError as error:
        return _said(error)
    return YES


def _said(error: Exception) -> str:
    """The message. Where a backend is missing, a table of all operators of this torch follows, which is left out."""
    text = str(error)
    return text.partition("\n\n")[0] if isinstance(error, NotImplementedError) else text


@contextmanager
def _as_elsewhere() -> Iterator[None]:
    """``torch.load`` finds no GPU in this block, as on the machine of somebody who has none."""
    genuine = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = genuine
        # torch.load leaves the map_location of a load that failed behind for the next one (torch.serialization._load)
        if hasattr(torch.serialization, "_serialization_tls"):
            torch.serialization._serialization_tls.map_location = None
