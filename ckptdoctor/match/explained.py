"""Which keys need no word from R001, R002 and R003, because a narrower rule has said why they do not fit."""

from __future__ import annotations

from ckptdoctor.noun import noun


@noun
class Explained:
    """Missing, unexpected and mismatched keys, under their names after all cures, that some rule explains."""

    missing: frozenset[str] = frozenset()
    unexpected: frozenset[str] = frozenset()
    mismatched: frozenset[str] = frozenset()

    def __or__(self, other: Explained) -> Explained:
        """What either explains."""
        return Explained(
            self.missing | other.missing,
            self.unexpected | other.unexpected,
            self.mismatched | other.mismatched,
        )
