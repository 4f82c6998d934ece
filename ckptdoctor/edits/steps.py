"""The steps of a repair, as people are shown them before and after it is carried out."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.edits.fix import Safety
from ckptdoctor.edits.kinds import Edit
from ckptdoctor.noun import noun


@noun
class Step:
    """One repair of the plan.

    ``label`` is how it was asked for: a rule's code ("N401") or an option ("--strip-module"); ``name`` is the rule's
    name, "" for an option. ``fit`` is (keys that fit after it, keys that the target wants), where there is a target.
    """

    label: str
    name: str
    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    changes: tuple[Change, ...]
    fit: tuple[int, int] | None = None


@noun
class Change:
    """What one edit does: ``pairs`` of names before and after ("" after: it goes), and how many of what it touches.

    ``place`` is the key path that the names belong to, None where they are not keys. ``counts`` are (number, noun).
    """

    kind: str
    pairs: tuple[tuple[str, str], ...]
    counts: tuple[tuple[int, str], ...]
    place: KeyPath | None = None
