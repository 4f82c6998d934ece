"""Pairs that are known to go wrong, by mode: each is a fault of the product, and leaves this list once repaired."""

from __future__ import annotations

KNOWN: dict[str, tuple[int, ...]] = {
    "plain": (),
    "unsafe": (),
}
