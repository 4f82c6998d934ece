"""Numbers with their nouns, for every message."""

from __future__ import annotations


def counted(number: int, noun: str, many: str | None = None) -> str:
    """``1,124 bytes``, ``1 byte``. ``many`` is for what takes more than an s: ``entries``, ``bytes follow``."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
