"""Asks zfec for parity, and for blocks of what is left of them: a slice of each block of a group at a time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from ckptdoctor.crash import installing
from ckptdoctor.errors import MissingPackageError
from ckptdoctor.sealing.parity.layout import Layout

# bytes of each block of a group that are in memory at once: 32 MiB of 256 blocks
SLICE = 128 << 10


def needed() -> str:
    """Return the sentence that names the command which installs zfec; "" where it is installed."""
    if find_spec("zfec") is not None:
        return ""
    return f"Parity needs zfec, which is not installed: {installing()} 'ckptdoctor[parity]'"


def require_installed() -> None:
    """Raise MissingPackageError where zfec is not installed, ahead of work that would need it in the end."""
    if needed():
        raise MissingPackageError(needed())


def parity_of(layout: Layout, shares: Sequence[memoryview]) -> list[bytes]:
    """Return the parity of as many slices as a group has blocks."""
    encoder = _module().Encoder(layout.data, layout.data + layout.parity)
    made: list[bytes] = encoder.encode(list(shares), list(range(layout.data, layout.data + layout.parity)))
    return made


def rebuilt(layout: Layout, shares: dict[int, memoryview]) -> list[bytes]:
    """Return the slices of all blocks of a group. ``shares`` are any as many; those of parity come last."""
    numbers = sorted(shares)
    decoder = _module().Decoder(layout.data, layout.data + layout.parity)
    made: list[bytes] = decoder.decode([shares[each] for each in numbers], numbers)
    return made


def _module() -> Any:
    require_installed()
    import zfec

    return zfec
