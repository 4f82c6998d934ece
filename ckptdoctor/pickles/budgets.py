"""How much of everything one pickle may ask for before it counts as hostile."""

from __future__ import annotations

from ckptdoctor.errors import HostileError
from ckptdoctor.noun import noun


@noun
class Budgets:
    """Upper bounds for one pickle, several times what the 100 MB ``data.pkl`` of 750,000 tensors needs.

    Memory stays within about 20 times the bytes read. ``opcodes`` executed; ``nodes`` of the graph; ``stack`` values
    between two MARKs; ``marks`` open at once; ``memo`` entries; distinct ``globals``; ``digits`` of a number written as
    text (CPython's own limit, since its conversion takes quadratic time); ``integer_bytes`` of a binary integer;
    ``frames`` of protocol 4; ``line`` bytes of a text argument that is a name or number.
    """

    opcodes: int = 50_000_000
    nodes: int = 12_000_000
    stack: int = 10_000_000
    marks: int = 2_000_000
    memo: int = 12_000_000
    globals: int = 50_000
    digits: int = 4_300
    integer_bytes: int = 65_536
    frames: int = 100_000
    line: int = 65_536


def exceeded(budget: str, limit: int, offset: int) -> HostileError:
    """The error for a pickle that asks for more than ``limit`` of what ``budget`` bounds."""
    return HostileError(
        f"the pickle exceeds the budget of {limit:,} for {budget.replace('_', ' ')} at byte {offset}: it looks built "
        "to exhaust its reader; do not load it, ask for the file again from its source",
        offset=offset,
    )
