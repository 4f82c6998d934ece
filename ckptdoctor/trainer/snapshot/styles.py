"""The ways in which people save a model as one file: each is a file name, and a function that writes the file.

The folder of ``torch.distributed.checkpoint``, which all ranks write together, is in ``dcp``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.strategies.strategy import Strategy

_ADDRESS = 94_000_000_000_000  # about where the heap of a process on Linux begins


@dataclass(frozen=True)
class Style:
    """One way of saving a model. ``write`` is called on the first rank alone."""

    name: str
    file: str
    format: str
    """The container, as ``ckptdoctor check`` names it."""
    write: Callable[[Path, Collected, Strategy], None]
    tagged: bool = True
    """Whether torch.save writes it, so that it has device tags."""
    wrapped: bool = False
    """Whether its keys are those of the wrapped model."""


def _plain(path: Path, collected: Collected, _: Strategy) -> None:
    """Save ``torch.save(model.state_dict())`` of the bare model, what every tutorial asks for."""
    torch.save(collected.weights, path)


def _wrapped(path: Path, collected: Collected, _: Strategy) -> None:
    """Save ``torch.save(net.state_dict())`` where ``net`` is the wrapper: every key begins with its prefix."""
    torch.save(collected.wrapped, path)


def _whole(path: Path, collected: Collected, strategy: Strategy) -> None:
    """Save ``torch.save(model)``, the object itself, which only loads where its classes can be imported.

    What is pickled is what a tutorial has in hand: the ``nn.DataParallel`` around the network, where there is one, and
    the bare network otherwise. DDP is not pickled: nobody who loads it is in the process group that it needs; nor is
    FSDP, which refuses.
    """
    if isinstance(strategy.wrapped, nn.DataParallel):
        torch.save(copy.deepcopy(strategy.wrapped).cpu(), path)
        return
    assert strategy.blank is not None  # refused before training began
    strategy.blank.load_state_dict(collected.weights)
    torch.save(strategy.blank, path)


def _legacy(path: Path, collected: Collected, _: Strategy) -> None:
    """Save the bare model's state dict in the format that torch wrote before 1.6."""
    with _same_addresses():
        torch.save(collected.weights, path, _use_new_zipfile_serialization=False)


@contextmanager
def _same_addresses() -> Iterator[None]:
    """Storages are named by their addresses in this format: counted ones make the same run write the same bytes."""
    genuine = torch.UntypedStorage._cdata
    numbers: dict[int, int] = {}

    def address(storage: torch.UntypedStorage) -> int:
        return _ADDRESS + 64 * numbers.setdefault(genuine.__get__(storage), len(numbers))

    torch.UntypedStorage._cdata = property(address)
    try:
        yield
    finally:
        torch.UntypedStorage._cdata = genuine


def _safetensors(path: Path, collected: Collected, _: Strategy) -> None:
    """Save names and tensors and nothing else: no pickle, no device tags."""
    from safetensors.torch import save

    # the format has neither strides nor sharing: a tied weight is written once under each of its names
    tensors = {key: value.clone(memory_format=torch.contiguous_format) for key, value in collected.weights.items()}
    # through write_bytes, as save_file makes files that nobody but their owner may read
    path.write_bytes(save(tensors, metadata={"format": "pt"}))


def _averaged(path: Path, collected: Collected, _: Strategy) -> None:
    """Save ``torch.save(ema_model.state_dict())``, written next to the others by every run that averages.

    The averaged model is a wrapper too: its keys begin with ``module.``, after a counter ``n_averaged``.
    """
    torch.save(collected.ema, path)


BY_NAME = {
    style.name: style
    for style in (
        Style("plain", "model.pt", "torch zip", _plain),
        Style("wrapped", "wrapped.pt", "torch zip", _wrapped, wrapped=True),
        Style("whole", "whole.pt", "torch zip", _whole),
        Style("legacy", "legacy.pt", "torch legacy", _legacy),
        Style("safetensors", "model.safetensors", "safetensors", _safetensors, tagged=False),
    )
}
AVERAGED = Style("ema", "ema.pt", "torch zip", _averaged)


def styles_of(config: RunConfig) -> list[Style]:
    """Return the files of a checkpoint of this run.

    They are those asked for, in the order of the table, and the average if any.
    """
    chosen = [style for name, style in BY_NAME.items() if name in config.save]
    return [*chosen, AVERAGED] if config.ema else chosen
