"""Where a value sits in a checkpoint: the keys and indices from the root down to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class Special:
    """A step that is neither a text key nor an index: an attribute (``._metadata``), or an odd dict key (``(1, 2)``)."""

    text: str


Part = Union[str, int, Special]
KeyPath = tuple[Part, ...]

ROOT: KeyPath = ()


def show_part(part: Part) -> str:
    """One step as text, not yet escaped for a terminal."""
    return part.text if isinstance(part, Special) else str(part)


def show_path(path: KeyPath) -> str:
    """A key path as people read it: ``state_dict/module.conv1.weight``; the root is ``(root)``."""
    return "/".join(map(show_part, path)) if path else "(root)"
