"""Text and numbers that any terminal can show: nothing untrusted moves the cursor, no encoding refuses them."""

from __future__ import annotations

from ckptdoctor.rendering.escape import escape

# What stands for our own typographic signs on a terminal whose encoding lacks them
_PLAIN = str.maketrans({"·": "-", "→": "->", "…": "...", "×": "x"})


def encodable(text: str, encoding: str) -> str:
    """Return ``text`` as far as ``encoding`` has it.

    Plain signs replace typographic ones that it lacks, codes the rest.
    """
    if _has(encoding, text):
        return text
    plain = "".join(char if _has(encoding, char) else char.translate(_PLAIN) for char in text)
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def fitted(text: str, encoding: str) -> str:
    """Return ``text`` with nothing that a terminal could obey or an encoding refuse."""
    return encodable(escape(text), encoding)


def _has(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def percent_of(fraction: float) -> str:
    """Return ``87.5 %`` of 0.875."""
    return f"{100 * fraction:.1f} %"


def duration(seconds: float) -> str:
    """Return ``0:05``, ``12:34``, ``1:02:03``: as clocks show it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
