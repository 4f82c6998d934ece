"""Whose process this is: only in the command line's own one may signals be handled for good."""

from __future__ import annotations

_OWN: list[bool] = []


def take() -> None:
    """From now on the process is the command line's, and nobody else's code runs in it."""
    _OWN.append(True)


def is_ours() -> bool:
    """Whether it is; a library leaves the signals of a program alone."""
    return bool(_OWN)
