"""Writes to the two streams: data to stdout, narration to stderr; neither is ever given raw text from a file."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import TextIO

from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.paint import Paint

# Whether only problems are printed: --quiet
only_problems: ContextVar[bool] = ContextVar("only_problems", default=False)

# What stands for our own typographic signs on a terminal whose encoding lacks them
_PLAIN = str.maketrans(
    {"·": "-", "→": "->", "…": "...", "≥": ">=", "×": "x", "–": "-", "“": '"', "”": '"', "└": "`", "Δ": "d"}
)


def emit(text: str, stream: TextIO | None = None) -> None:
    """Write ``text`` and a line end to ``stream`` (None: stdout), whatever its encoding can show."""
    stream = sys.stdout if stream is None else stream
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text + "\n")
    stream.flush()


class Lines:
    """Lines on stdout about work that goes on when they cannot be written any more: ``lost`` is why, else None."""

    def __init__(self) -> None:
        self.lost: OSError | None = None

    def emit(self, text: str) -> None:
        """Write a line, unless one before it was lost."""
        if self.lost is None:
            try:
                emit(text)
            except OSError as error:
                self.lost = error


def can_show(text: str, stream: TextIO | None = None) -> bool:
    """Return whether the encoding of ``stream`` (None: stdout) has every character of ``text``."""
    try:
        text.encode((stream or sys.stdout).encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def succeed(text: str) -> None:
    """Print on stdout that all went well, unless only problems are printed."""
    if not only_problems.get():
        emit(text)


def narrate(text: str) -> None:
    """Print something on stderr that is not part of the result, unless only problems are printed."""
    if not only_problems.get():
        print_error(text)


def print_error(text: str) -> None:
    """Print on stderr why something could not be done, in words that are complete.

    Where stderr cannot be written, as on a full disk, the result counts all the same, and the status says the rest.
    """
    with suppress(OSError):
        emit("\n".join(map(escape, text.split("\n"))), sys.stderr)


def complain(message: str) -> None:
    """Print an error on stderr."""
    print_error(f"error: {message}")


def paint(color: str, stream: TextIO | None = None) -> Paint:
    """Colours for ``stream`` (None: stdout): "always", "never", or "auto" (a terminal, and NO_COLOR is not set)."""
    if color == "auto":
        return Paint(_is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
    return Paint(color == "always")


def width(stream: TextIO | None = None) -> int | None:
    """Columns to fit into (COLUMNS, or what the terminal says); None when the output is not a terminal."""
    if not _is_terminal(stream):
        return None
    if os.environ.get("COLUMNS", "").isdigit():
        return max(20, int(os.environ["COLUMNS"]))
    try:
        return max(20, os.get_terminal_size((stream or sys.stdout).fileno()).columns)
    except OSError:  # a terminal that does not tell its size
        return 80


def _is_terminal(stream: TextIO | None) -> bool:
    return (stream or sys.stdout).isatty()
