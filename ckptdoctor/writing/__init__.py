"""Writes output files so that neither a crash nor a full disk can cost a byte of what was there before.

Readers import this package for its recipes, so that what really writes is imported only when something is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckptdoctor.writing.recipe import CopiedRanges, Copy, Generated, Literal, Recipe, Segment

if TYPE_CHECKING:
    from ckptdoctor.writing.publishing import Part, Written, publish, publish_together

__all__ = [
    "CopiedRanges",
    "Copy",
    "Generated",
    "Literal",
    "Part",
    "Recipe",
    "Segment",
    "Written",
    "publish",
    "publish_together",
]


def __getattr__(name: str) -> Any:
    if name not in ("Part", "Written", "publish", "publish_together"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckptdoctor.writing import publishing

    return getattr(publishing, name)
