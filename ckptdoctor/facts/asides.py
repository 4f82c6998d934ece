"""What the pickles name that are not, or not as a whole, what the contents of a checkpoint were read from."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import Aside, GlobalName, Lying
from ckptdoctor.facts.globals import is_allowed, is_dangerous, is_harmless, modern

# what is loaded without the protection of weights_only: a name that nobody knows is worth a word
_UNPROTECTED = (Lying.INSIDE, Lying.INDEX)


def dangerous(names: Iterable[GlobalName]) -> list[str]:
    """Those that can run code, as Python 3 calls them, each once."""
    found = [modern(each.module, each.name) for each in names]
    return list(dict.fromkeys([f"{module}.{name}" for module, name in found if is_dangerous(module, name)]))


def unknown(names: Iterable[GlobalName]) -> list[str]:
    """Those that are neither dangerous nor known to be harmless, the same way."""
    found = [modern(each.module, each.name) for each in names]
    strange = [each for each in found if not is_dangerous(*each) and not is_harmless(*each)]
    return list(dict.fromkeys([f"{module}.{name}" for module, name in strange]))


def worth_a_word(aside: Aside) -> tuple[list[str], bool]:
    """What of its names has to be told, and whether that can run code: where none does, those that nobody knows."""
    found = dangerous(aside.names)
    if found:
        return found, True
    return (unknown(aside.names) if aside.lying in _UNPROTECTED else []), False


def before_the_break(asides: Iterable[Aside]) -> list[str]:
    """The names that torch refuses, of pickles that break off: an unpickler comes to them first."""
    broken = [name for aside in asides if aside.lying is Lying.BROKEN for name in aside.names]
    found = [modern(each.module, each.name) for each in broken]
    return list(dict.fromkeys([f"{module}.{name}" for module, name in found if not is_allowed(module, name)]))
