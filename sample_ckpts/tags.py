"""Device tags as genuine bytes: torch writes any tag for CPU tensors when asked for the location of a storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Tagger = Callable[[torch.UntypedStorage], str]


@contextmanager
def saving_with_tags(tag: Tagger) -> Iterator[None]:
    """torch.save inside this block writes ``tag(storage)`` as the location of each storage.

    ``torch.serialization.location_tag`` is what torch.save itself asks; for CUDA it builds a fresh string each time,
    and the bytes only agree with a real CUDA save when this does so too.
    """
    genuine = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "".join(list(tag(storage)))
    try:
        yield
    finally:
        torch.serialization.location_tag = genuine


def everywhere(device: str) -> Tagger:
    """The same tag for every storage."""
    return lambda storage: device


def by_tensor(tags: dict[str, list[torch.Tensor]], otherwise: str = "cpu") -> Tagger:
    """The tag under which the storage's tensor is listed, ``otherwise`` for the rest."""
    where = {tensor.untyped_storage().data_ptr(): tag for tag, tensors in tags.items() for tensor in tensors}
    return lambda storage: where.get(storage.data_ptr(), otherwise)
