"""Finds the file system that fsspec has for an address, once for all files of a store where it is asked to.

fsspec hashes how each one was made whenever it is asked, which for a small file takes longer than its listing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# by class and by what an address says of how to connect; and the class by the scheme of an address
_kept: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)


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
    system: Any
    known = _kept.get()
    if known is None or "::" in address:  # file systems in others, such as archives, hold files open
        from fsspec.core import url_to_fs

        system, file = url_to_fs(address)
        return system, file
    scheme = address.partition("://")[0]
    made = known.get(scheme)
    if made is None:
        from fsspec import get_filesystem_class

        made = known[scheme] = get_filesystem_class(scheme)
    key = made, repr(made._get_kwargs_from_urls(address))
    system = known.get(key)
    if system is None:
        from fsspec.core import url_to_fs

        system, file = url_to_fs(address)
        known[key] = system
        return system, file
    return system, made._strip_protocol(address)
