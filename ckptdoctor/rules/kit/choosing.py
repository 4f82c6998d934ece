"""Several parts of a file may fit a target equally well: rules that rename say which they are, and how to choose."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.rivals import Rivals, rivals
from ckptdoctor.rules.kit import wording
from ckptdoctor.shell import quote, word

_SHOWN = 4  # parts of which each gets its command


class ChoiceAdvice(NamedTuple):
    """What several parts have in common, in a sentence, and the command that takes each."""

    advice: str
    commands: tuple[str, ...]


def choice_of(comparison: Comparison, keys: Collection[str]) -> ChoiceAdvice | None:
    """Return the choice that one of these keys of the file is part of, or None where nothing else fits as well."""
    found = rivals(comparison)
    if found is None or not _concerns(found, keys):
        return None
    target, shown = comparison.reference.source, found.parts[:_SHOWN]
    names = wording.listed([f'"{part.prefix}"' for part in shown]) + wording.beyond(len(found.parts) - _SHOWN)
    if found.added:
        said = f"{target} has {names} with the same keys and shapes, and this file does not show which of them it is."
        ways = [f"--add-prefix {word(part.prefix)}" for part in shown]
    else:
        said = f"{names} fit {target} equally well, and nothing shows which one you mean."
        ways = [f"{part.options} {auto_option(comparison)}" for part in shown if part.options]
    return ChoiceAdvice(f"{said} Choose:", tuple([f"ckptdoctor fix FILE {way}" for way in ways]))


def _concerns(found: Rivals, keys: Collection[str]) -> bool:
    if not found.names.isdisjoint(keys):
        return True
    return any(part.prefix + rest in keys for part in found.parts for rest in part.keys)


def auto_option(comparison: Comparison) -> str:
    """Return how to ask for the whole chain on the command line."""
    reference = comparison.reference
    return f"--auto {reference.option or f'--like {quote(reference.source)}'}"
