"""Numbers with their nouns, for every message, and why the system refused. Integers of any size are safe to show."""

from __future__ import annotations

# beyond this many bits an integer is described instead of printed: ``str`` refuses more than 4,300 digits
PRINTABLE_BITS = 256


def count(number: int) -> str:
    """``1,124``; what is too long to print becomes its order of magnitude."""
    if number.bit_length() > PRINTABLE_BITS:
        return f"{'-' if number < 0 else ''}2^{number.bit_length() - 1}"
    return f"{number:,}"


def plural(number: int, noun: str, many: str | None = None) -> str:
    """``1,124 bytes``, ``1 byte``. ``many`` is for what takes more than an s: ``entries``, ``bytes follow``."""
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"


def system_says(error: OSError) -> str:
    """Why the system did not open something, with a full stop; and who can help where that is not told by itself."""
    told = f"{error.strerror}."
    if isinstance(error, PermissionError):
        return f"{told} Whoever owns it, or a folder that it lies in, can give leave to read it."
    return told
