"""Remembers what was worked out about large nouns, by identity: hashing 50,000 tensors would cost more."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Subject = TypeVar("Subject")
Result = TypeVar("Result")

_REMEMBERED = 4  # subjects whose results are kept: a file has one or two, and rules ask one after another


def cached_by_identity(work: Callable[[Subject], Result]) -> Callable[[Subject], Result]:
    """Return ``work``, done once for each of the last few subjects, which are held until then."""
    known: dict[int, tuple[Subject, Result]] = {}

    @wraps(work)
    def remembered(subject: Subject) -> Result:
        found = known.get(id(subject))
        if found is None or found[0] is not subject:
            while len(known) >= _REMEMBERED:
                # another thread may have been quicker
                known.pop(next(iter(known), 0), None)
            found = known[id(subject)] = subject, work(subject)
        return found[1]

    return remembered
