"""``legacy``: the bare model's state dict in the format that torch wrote before 1.6."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.strategies.strategy import Strategy

_ADDRESS = 94_000_000_000_000  # about where the heap of a process on Linux begins


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


def _write(path: Path, collected: Collected, _: Strategy) -> None:
    with _same_addresses():
        torch.save(collected.weights, path, _use_new_zipfile_serialization=False)


LEGACY = Style("legacy", "legacy.pt", "torch legacy", _write)
