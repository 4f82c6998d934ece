"""Quotes commands so that they can be copied into a shell as they are, whatever the path is called."""

from __future__ import annotations

import os
from shlex import quote as posix_quote
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint.process import complete
from ckptdoctor.regex import regex
from ckptdoctor.rendering.escape import escape, no_command

if TYPE_CHECKING:
    from ckptdoctor.edits import Fix

STANDARD_INPUT = "-"
_PATTERN = regex(
    r"ckptdoctor (?:(?:fix|convert|merge|salvage|graft|rebuild|verify|check|show) FILE(?: --from FILE)?|diff .* FILE)"
)
_ARGUMENT = regex(r"(?<=\()FILE(?=[,)])")  # of a call in Python


def quote(path: str) -> str:
    r"""Return ``path`` as a shell word; one with invisible characters or broken text is ``$'a\x1b'`` (bash, zsh)."""
    return word(f"./{path}" if path.startswith("-") else path)


def word(text: str) -> str:
    """Any text as one shell word, such as an option and what it is given."""
    if escape(text) == text:
        return posix_quote(text)
    return "$'" + no_command("".join(map(_ansi_c, _encoded(text)))) + "'"


def _encoded(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # half of a character, which no shell can pass on as it is
        return text.encode("utf-8", "surrogatepass")


def with_path(text: str, path: str) -> str:
    """Return ``text`` with the real path where rules write FILE in commands, and in calls."""
    if path == STANDARD_INPUT:
        return text
    text = _ARGUMENT.sub(lambda _: _as_argument(path), text)
    return _PATTERN.sub(lambda command: command[0].replace("FILE", quote(path)), text)


def _as_argument(path: str) -> str:
    """Return the path as a call in Python has it."""
    import json

    return json.dumps(path, ensure_ascii=escape(path) != path)


def fix_command(path: str, *fixes: Fix) -> str:
    """Return the command that applies these fixes to the file, or every safe one when none is named."""
    return fix_with(path, *[option for fix in fixes for option in fix.options])


def fix_with(path: str, *options: str) -> str:
    """Return the command that repairs the file with these options, each once."""
    target = "FILE" if path == STANDARD_INPUT else quote(path)
    return complete(" ".join(["ckptdoctor fix", target, *map(escape, dict.fromkeys(options))]))


def _ansi_c(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
