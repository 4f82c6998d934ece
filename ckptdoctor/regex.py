"""Compiles regular expressions when they are first asked.

A check of a small file knows 60 of them and asks ten; compiling one takes as long as reading a module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, AnyStr

__all__ = ["regex"]


class _Waiting:
    """Stands for a compiled pattern, whose methods it takes over one by one as they are asked for."""

    def __init__(self, text: AnyStr, flags: int = 0) -> None:
        self._given: tuple[Any, int] = text, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._given), name)
        setattr(self, name, method)  # the next time it is found without coming here
        return method


if TYPE_CHECKING:
    from re import compile as regex
else:
    regex = _Waiting
