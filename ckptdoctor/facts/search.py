"""The chain of renames that brings the keys of a checkpoint to the names of a target.

Greedy: of all proposals the one after which most keys fit is taken, then the next is looked for in what is left. Names
and shapes are all there is to go by, so a chain counts only when it explains most of what did not fit; a rename that
makes a few keys of a foreign model fit is a coincidence.
"""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.facts.moves import Here, Move, Wanted, gap, joined, renamed
from ckptdoctor.facts.proposals import leaves, prefixes, replacements, shifts, spellings, substitutions

# at equal effect the first one wins: what has one meaning comes before what is inferred
_PROPOSALS = (
    leaves.propose,
    replacements.propose,
    prefixes.propose,
    shifts.propose,
    spellings.propose,
    substitutions.propose,
)

_STEPS = 24  # more names than that are not the same model's
_OF_LOOSE = 3  # a third of the loose keys must find a place, or names must be the same but for their spelling
_OF_WANTED = 10  # a tenth of the target must have other names, or names must be the same but for their spelling
_INFERRED = ("N410", "N423")  # what is told by names and shapes alone


def find_moves(here: Here, wanted: Wanted) -> list[Move]:
    """The renames, in order; none where they would not make at least half of what is open fit.

    Where most of what is here would still be left over, names must be the same but for their spelling: among many
    foreign keys some have the right shape.
    """
    first = gap(here, wanted)
    found = _chain(here, wanted)
    if sum([len(step.names) for step in found]) * _OF_LOOSE < len(first.loose) and not all(step.kin for step in found):
        found = _chain(here, wanted, kin=True)
    return _doubted(found, wanted)


def _chain(here: Here, wanted: Wanted, kin: bool = False) -> list[Move]:
    """The best proposals one after another; ``kin``: only those that keep names but for their spelling."""
    found: list[Move] = []
    now = here
    open_at_first = len(gap(here, wanted).open)
    left = open_at_first
    for _ in range(_STEPS):
        best = _best(now, wanted, kin)
        if best is None:
            break
        step, left = best
        now = renamed(now, step)
        if found and found[-1].code == step.code:
            found[-1] = joined(found[-1], step)
        else:
            found.append(step)
    return found if 2 * left <= open_at_first else []


def _doubted(found: list[Move], wanted: Wanted) -> list[Move]:
    """The same steps; a lone part that gets a foreign name is not sure: it may as well be another head."""
    inferred = sum([len(step.names) for step in found if step.code in _INFERRED])
    if inferred * _OF_WANTED >= len(wanted):
        return found
    return [step if step.kin else replace(step, sure=False) for step in found]


def _best(here: Here, wanted: Wanted, kin: bool) -> tuple[Move, int] | None:
    """The proposal after which fewest wanted keys are open, and how many that are; None when none helps."""
    now = gap(here, wanted)
    if not now.loose or not now.open:
        return None
    best, fewest = None, len(now.open)
    least = max(len(now.open) - len(now.loose), 0)  # one key can fill one gap
    for propose in _PROPOSALS:
        for step in propose(now):
            if kin and not step.kin:
                continue
            left = _left_open(step, here, wanted, len(now.open), fewest)
            if left < fewest:
                best, fewest = step, left
            if fewest == least:
                return step, least
    return None if best is None else (best, fewest)


def _left_open(step: Move, here: Here, wanted: Wanted, left_now: int, fewest: int) -> int:
    """How many wanted keys are open after the step; worked out only where it could be fewer than ``fewest``."""
    if left_now - len(step.names) >= fewest:
        return fewest
    lost = sum([old in wanted and wanted[old].shape == here[old].shape for old in step.names])
    return left_now - len(step.names) + lost
