"""Says what speaks against the name of an output, and finds one that is free."""

from __future__ import annotations

import os

from ckptdoctor.writing.target import MARK

_TRIED = 1_000  # numbers that are tried for a free name
_SAFETENSORS = "safetensors"


def objection(output: str, original: str, format: str) -> str:
    """Why a new file of this format cannot get this name, as a sentence for people; "" where nothing speaks against it.

    What is there is never replaced.
    """
    name = os.path.basename(output)
    folder = os.path.dirname(output) or "."
    if not output.strip() or not name:
        return "The new file needs a name."
    if MARK in name:
        return "Names of this kind are for unfinished files: give another one."
    if os.path.lexists(output):
        if os.path.exists(output) and os.path.exists(original) and os.path.samefile(output, original):
            return f"{name} is the original: give the new file another name."
        return f"{name} exists already: give another name."
    if not os.path.isdir(folder):
        return f"There is no folder {folder}."
    if not os.access(folder, os.W_OK):
        return f"Nothing can be written in {folder}."
    plain, named = format == _SAFETENSORS, name.endswith(f".{_SAFETENSORS}")
    if plain is not named:
        return f"The new file stays {format}: its name must {'' if plain else 'not '}end in .safetensors."
    return ""


def free(output: str) -> str:
    """``output``, or that name with a number where it is taken: ``model.fixed-2.pt``."""
    if not os.path.lexists(output):
        return output
    stem, suffix = os.path.splitext(output)
    names = (f"{stem}-{number}{suffix}" for number in range(2, _TRIED))
    return next((name for name in names if not os.path.lexists(name)), output)
