"""Puts the real path and options into commands, quoted so that they can be copied into a shell as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint.process import complete
from ckptdoctor.regex import regex
from ckptdoctor.rendering.escape import escape
from ckptdoctor.shell import quote as quote
from ckptdoctor.shell import word as word

if TYPE_CHECKING:
    from ckptdoctor.edits import Fix

STANDARD_INPUT = "-"
_PATTERN = regex(
    r"ckptdoctor (?:(?:fix|convert|merge|salvage|graft|rebuild|verify|check|show) FILE(?: --from FILE)?|diff .* FILE)"
)
_ARGUMENT = regex(r"(?<=\()FILE(?=[,)])")  # of a call in Python


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
