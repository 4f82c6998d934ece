"""The rules about shapes share pairs of shapes in words, torch's lines about them, and the problem they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.edits import Fix
from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording


def pair_words(pair: Pair) -> str:
    """Return a key with its shapes: ``fc.weight [1000, 2048] here, [10, 2048] in the model``."""
    return f"{pair.key} {wording.shape(pair.here)} here, {wording.shape(pair.there)} in the model"


def likewise(pairs: Sequence[Pair]) -> str:
    """Return the first pair with its shapes, the second by name, and how many more there are."""
    if len(pairs) == 1:
        return pair_words(pairs[0])
    others = pairs[1].key if len(pairs) == 2 else wording.plural(len(pairs) - 1, "more key")
    return f"{pair_words(pairs[0])}; {others} likewise"


def mismatch_lines(pairs: Iterable[Pair]) -> tuple[str, ...]:
    """Return torch's lines about the first of the pairs."""
    return tuple([wording.mismatch_line(pair.key, pair.here, pair.there) for pair in islice(pairs, wording.SHOWN)])


def key_places(comparison: Comparison, keys: Iterable[str]) -> tuple[KeyPath, ...]:
    """Return where the keys (under their names after all renames) are in the file, or would be."""
    here = comparison.renamed.here
    return tuple([here[key].path if key in here else (*comparison.path, key) for key in keys])


def mismatch(
    comparison: Comparison, pairs: Sequence[Pair], message: str, cause: str, advice: str = "", fix: Fix | None = None
) -> Problem:
    """Return the problem that these pairs are."""
    return Problem(
        message=message,
        cause=cause,
        torch_says=mismatch_lines(pairs),
        advice=advice,
        keys=key_places(comparison, [pair.key for pair in pairs]),
        location=Location(path=comparison.path),
        fix=fix,
    )
