"""Escapes text from a file: none of it reaches a terminal that could move the cursor or fool the eye.

Nor does anything that a build service would take for a command to itself when it reads what a job prints.
"""

from __future__ import annotations

from ckptdoctor.regex import regex

_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

# Characters that Unicode calls printable but that show as nothing (its Default_Ignorable_Code_Point property)
_INVISIBLE = frozenset(
    map(
        chr,
        (
            0x034F,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            0x2800,
            0x3164,
            0xFFA0,
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
        ),
    )
) | frozenset(map(chr, range(0xE0100, 0xE01F0)))


# GitHub obeys lines that begin with ::, and ##[…] within a line; Azure ##vso[…], TeamCity ##teamcity[…]:
# https://docs.github.com/actions/reference/workflow-commands-for-github-actions, actions/runner ActionCommand.cs,
# https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands
_COMMAND = regex(r"^\s*:(?=:)|#(?=#\w*\[)")


def escape(text: str) -> str:
    r"""Return ``text`` with everything invisible made visible: ``\x1b``, ``\u202e``, ``\n``.

    Escaped are control characters, bidi and zero-width characters, line separators, lone surrogates and unassigned
    code points: whatever ``str.isprintable`` denies, and characters that print as nothing. Of what begins a command
    to a build service (``::error``, ``##vso[``) the first sign is.
    """
    text = no_command(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join([char if char.isprintable() and char not in _INVISIBLE else _visible(char) for char in text])


def no_command(text: str) -> str:
    """Return ``text`` with the first sign of what a build service would obey in hexadecimal."""
    if "::" in text or "##" in text:
        return _COMMAND.sub(lambda found: f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}", text)
    return text


def _visible(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return _NAMED.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
