"""Finds the file system that fsspec has for an address, once for all files of a store where it is asked to.

fsspec hashes how each one was made whenever it is asked, which for a small file takes longer than its listing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# by class and by what an address says of how to connect
_kept: ContextVar[dict[tuple[type, str], Any] | None] = ContextVar("kept", default=None)


@contextmanager
def connections_kept() -> Iterator[None]:
    """Connect once to each server meanwhile, in this thread: other threads have connections of their own."""
    before = _kept.set({} if _kept.get() is None else _kept.get())
    try:
        yield
    finally:
        _kept.reset(before)


def connected(address: str) -> tuple[Any, str]:
    """Return the file system of fsspec for an address, and what it calls that, as ``fsspec.core.url_to_fs`` does.

    Raises what that raises.
    """
    from fsspec.core import split_protocol, url_to_fs

    system: Any
    known = _kept.get()
    if known is None or "::" in address:  # file systems in others, such as archives, hold files open
        system, file = url_to_fs(address)
        return system, file
    from fsspec import get_filesystem_class

    made: Any = get_filesystem_class(split_protocol(address)[0])
    key = made, repr(made._get_kwargs_from_urls(address))
    system = known.get(key)
    if system is None:
        system, file = url_to_fs(address)
        known[key] = system
        return system, file
    return system, made._strip_protocol(address)
