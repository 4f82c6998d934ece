"""Other numbers for the states of parameters: ``3  →  7, 7  →  3``, neighbours that move alike together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.wording import and_more, span

_MOST = 5  # moves that one line names


def moves(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Each run of numbers that all move by as much, in order: ``1..23  →  0..22``."""
    runs: list[list[int]] = []  # first number before, first after, how many
    for old, new in sorted([(int(old), int(new)) for old, new in pairs]):
        if runs and (old, new) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
            runs[-1][2] += 1
        else:
            runs.append([old, new, 1])
    for old, new, count in runs:
        yield f"{span(old, old + count - 1)}  →  {span(new, new + count - 1)}"


def renumbered(pairs: Sequence[tuple[str, str]]) -> str:
    """The same in one line; what is too much is counted."""
    told = list(moves(pairs))
    most = _MOST if len(told) > _MOST + 1 else len(told)
    return f"{'state' if len(pairs) == 1 else 'states'} {and_more(told, most, 'such move', before=', and ')}"
