r"""Quotes words of commands so that they can be copied into a shell as they are, whatever a path is called.

Every command that is shown takes its words from here: what ``shlex`` quotes is right in a script, and wrong once
invisible characters are escaped on the way to the terminal, or where a name begins with a dash.
"""

from __future__ import annotations

import os
import shlex

from ckptdoctor.escape import escape, no_command
from ckptdoctor.regex import regex

_SEPARATED = regex(r"""(?:[^\s'"\\$]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$'(?:[^'\\]|\\.)*'|\$)+""")
_ANSI_C = regex(r"\$'((?:[^'\\]|\\.)*)'")
_PIECE = regex(r"\\x[0-9a-f]{2}|\\.|[^\\]")


def quote(path: str) -> str:
    r"""Return ``path`` as a shell word; one with invisible characters or broken text is ``$'a\x1b'`` (bash, zsh).

    A path that begins with a dash becomes ``./-name``, for no command to take it for an option.
    """
    return word(f"./{path}" if path.startswith("-") else path)


def word(text: str) -> str:
    """Return any text as one shell word, such as an option and its value."""
    if escape(text) == text:
        return shlex.quote(text)
    return "$'" + no_command("".join(map(_ansi_c, _encoded(text)))) + "'"


def joined(*words: str) -> str:
    """Return a whole command of these words, none of which is a path that may begin with a dash."""
    return " ".join(map(word, words))


def split(line: str) -> list[str]:
    """Return the words that a shell makes of a line that was put together from such words."""
    if "$'" not in line:
        return shlex.split(line)
    return [_unquoted(found[0]) for found in _SEPARATED.finditer(line)]


def _unquoted(quoted: str) -> str:
    found = _ANSI_C.fullmatch(quoted)
    if found is None:
        return "".join(shlex.split(quoted))
    return os.fsdecode(b"".join([_byte(each) for each in _PIECE.findall(found[1])]))


def _byte(piece: str) -> bytes:
    if piece.startswith("\\x"):
        return bytes([int(piece[2:], 16)])
    return piece[-1].encode()


def _encoded(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # half of a character, which no shell can pass on as it is
        return text.encode("utf-8", "surrogatepass")


def _ansi_c(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
