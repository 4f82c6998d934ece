"""Text that any terminal can show: nothing untrusted moves the cursor, nothing fails for want of an encoding."""

from __future__ import annotations

import os
from shlex import quote

# What stands for our own typographic signs on a terminal whose encoding lacks them
_PLAIN = str.maketrans({"·": "-", "→": "->", "…": "...", "×": "x"})


def visible(text: str) -> str:
    r"""``text`` with every character that would not show (controls, bidi marks, lone surrogates) as ``\x1b``."""
    return "".join(char if char.isprintable() else _code(char) for char in text)


def encodable(text: str, encoding: str) -> str:
    """``text`` as far as ``encoding`` has it: plain signs for typographic ones that it lacks, codes for the rest."""
    if _has(encoding, text):
        return text
    plain = "".join(char if _has(encoding, char) else char.translate(_PLAIN) for char in text)
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def _has(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def shell_word(path: str) -> str:
    r"""``path`` as one word of a shell command; invisible characters and broken text as ``$'a\x1b'`` (bash, zsh)."""
    if path.startswith("-"):
        path = f"./{path}"
    if path.isprintable():
        return quote(path)
    return "$'" + "".join(map(_ansi_c, os.fsencode(path))) + "'"


def percent(fraction: float) -> str:
    """``87.5 %`` of 0.875."""
    return f"{100 * fraction:.1f} %"


def duration(seconds: float) -> str:
    """``0:05``, ``12:34``, ``1:02:03``: as clocks show it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def plural(number: int, noun: str) -> str:
    """``1 epoch``, ``1,124 images``."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _code(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _ansi_c(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
