"""Fits text to the terminal. Commands and messages of torch are never broken inside a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def wrapped(text: str, width: int | None, indent: str, hang: str | None = None) -> list[str]:
    """Return ``text`` in lines of at most ``width`` columns (None: one), the later ones indented by ``hang``."""
    hang = indent if hang is None else hang
    if width is None or len(indent) + len(text) <= width:
        return [indent + text]
    lines: list[str] = []
    line = indent
    for word in text.split(" "):
        begun = line.strip() != "" and len(line) > len(hang if lines else indent)
        if begun and len(line) + 1 + len(word) > width:
            lines.append(line.rstrip())
            line = hang + word
        else:
            line += f" {word}" if begun else word
    return [*lines, line.rstrip()]


def joined(pieces: Iterable[str], width: int | None, separator: str = " · ", hang: str = "  ") -> list[str]:
    """Pieces side by side, each kept whole; those that do not fit begin a new line."""
    lines = [""]
    for piece in pieces:
        if lines[-1].strip() and width is not None and len(lines[-1]) + len(separator) + len(piece) > width:
            lines.append(hang + piece)
        else:
            lines[-1] += f"{separator}{piece}" if lines[-1].strip() else piece
    return lines


def abridged(text: str, limit: int = 120) -> str:
    """Return ``text``, with its middle left out when it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - limit // 3 - 1]}…{text[-(limit // 3) :]}"


def columns(rows: Iterable[tuple[str, ...]], right: frozenset[int] = frozenset(), gap: str = "   ") -> Iterator[str]:
    """Yield rows as aligned columns; those numbered in ``right`` are aligned to the right."""
    table = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    for row in table:
        rooms = enumerate(zip(row, widths, strict=True))
        yield gap.join([cell.rjust(room) if i in right else cell.ljust(room) for i, (cell, room) in rooms]).rstrip()
