"""Finds parts that fit a target equally well behind different prefixes: generator and discriminator, say.

Neither names nor shapes tell which of them is meant; only parts that hold the same values are not rivals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from glob import escape

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.checkpoint.patterns import drop_patterns
from ckptdoctor.checkpoint.tensor import same_checksums
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.likeness import alike
from ckptdoctor.match.second_names import is_one
from ckptdoctor.noun import noun
from ckptdoctor.shell import word

_GROUPS = 64  # parts of which each is asked about by itself
_PATTERNS = 8  # of one command


@noun
class RivalPart:
    """One of several parts: the ``prefix`` of its keys (or, where one is added, of the target's), and its tensors by
    what follows the prefix.

    ``keep`` are the patterns that choose it among the others; none where that would take too many.
    """

    prefix: str
    keys: Mapping[str, Tensor]
    keep: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The patterns as options of ``ckptdoctor fix``."""
        return " ".join([f"--keep {word(pattern)}" for pattern in self.keep])


@noun
class Rivals:
    """Parts that fit equally well, in the order of the file. ``names`` are the keys that get new names.

    ``added``: the prefixes are those of the target, which has several such parts where this file has one.
    """

    parts: tuple[RivalPart, ...]
    names: frozenset[str]
    added: bool = False


@cached_by_identity
def rivals(comparison: Comparison) -> Rivals | None:
    """Return the first part that gets other names though another one fits just as well, or None where there is none."""
    return parts_alike(comparison, same=False)


def parts_alike(comparison: Comparison, *, same: bool = True) -> Rivals | None:
    """Do as ``rivals`` does; with ``same``, find also parts that hold the same values, as far as headers tell."""
    renamed = comparison.renamed
    if comparison.state_dict is None or comparison.cut is not None or comparison.conversion is not None:
        return None
    if not renamed.unexpected and not renamed.missing:
        return None
    fits = set(renamed.fits)
    final = {key: comparison.final_name(key) for key in comparison.plain.here}
    pairs = [(key, new) for key, new in final.items() if key != new and new in fits]
    if not pairs:
        return None
    loose = set(renamed.unexpected)
    left = {key: tensor for key, tensor in comparison.plain.here.items() if final[key] in loose}
    return _of_file(comparison, pairs, left, same=same) or _of_target(comparison, pairs)


def _of_file(
    comparison: Comparison, pairs: Sequence[tuple[str, str]], left: Mapping[str, Tensor], *, same: bool
) -> Rivals | None:
    """Return parts of the file: what is left over has the same keys behind another prefix."""
    if not left:
        return None
    here = comparison.plain.here
    leads = _groups(pairs)
    for lead, names in [*_joined(leads).items(), *leads.items()][:_GROUPS]:
        rests = {old[len(lead) :]: here[old] for old in names}
        new_leads = {new[: len(new) - len(old) + len(lead)] for old, new in names.items()}
        others = [
            prefix
            for prefix in _counterparts(rests, left)
            if (same or not _same(here, lead, prefix, rests)) and not _told_apart(lead, prefix, new_leads)
        ]
        if others:
            order = {prefix: at for at, key in enumerate(here) for prefix in (lead, *others) if key.startswith(prefix)}
            parts = tuple(sorted((lead, *others), key=lambda prefix: order[prefix]))
            found = [_part(comparison, each, parts, rests) for each in parts]
            return Rivals(tuple(found), frozenset(names))
    return None


def _of_target(comparison: Comparison, pairs: Sequence[tuple[str, str]]) -> Rivals | None:
    """Return parts of the target: what it misses has the same keys behind another prefix than the one that is added."""
    wanted = comparison.reference.tensors
    missing = {key: wanted[key] for key in comparison.renamed.missing if key not in comparison.renamed.tied}
    if not missing:
        return None
    added = [(new, old) for old, new in pairs if new.endswith(f".{old}")]
    for lead, names in list(_groups(added).items())[:_GROUPS]:
        others = _counterparts({new[len(lead) :]: wanted[new] for new in names}, missing)
        if lead and others:
            return Rivals(
                tuple([RivalPart(each, {}) for each in (lead, *others)]), frozenset(names.values()), added=True
            )
    return None


def _groups(pairs: Sequence[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return the pairs by what precedes the tokens that both names end with; at least the last token is left."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for old, new in pairs:
        ours, theirs = old.split("."), new.split(".")
        same = 0
        while same < min(len(ours), len(theirs)) and ours[-1 - same] == theirs[-1 - same]:
            same += 1
        lead = ".".join(ours[: len(ours) - max(same, 1)])
        found[f"{lead}." if lead else ""][old] = new
    return dict(found)


def _joined(groups: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return all groups below one first token together, behind what their prefixes have in common."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for lead, names in groups.items():
        if lead:
            found[lead.partition(".")[0]][lead] = dict(names)
    return {
        f"{'.'.join(_common([lead.split('.')[:-1] for lead in leads]))}.": {
            old: new for names in leads.values() for old, new in names.items()
        }
        for leads in found.values()
    }


def _common(rows: Sequence[list[str]]) -> list[str]:
    """Return the tokens that all begin with."""
    first, last = min(rows), max(rows)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return list(first[: min(len(first), len(last)) if same is None else same])


def _counterparts(
    rests: Mapping[str, Tensor | Expected], left: Mapping[str, Tensor] | Mapping[str, Expected]
) -> list[str]:
    """Return the prefixes behind which all of these keys are left, in the same shapes."""
    first = min(rests, key=lambda rest: -len(rest))  # the longest fits in fewest places
    shape = rests[first].shape
    prefixes = [
        key[: len(key) - len(first)] for key, each in left.items() if key.endswith(f".{first}") and each.shape == shape
    ]
    return [each for each in prefixes if all(_is_left(each + rest, one.shape, left) for rest, one in rests.items())]


def _is_left(key: str, shape: tuple[int, ...], left: Mapping[str, Tensor] | Mapping[str, Expected]) -> bool:
    found = left.get(key)
    return found is not None and found.shape == shape


def _told_apart(lead: str, other: str, new: set[str]) -> bool:
    """Return whether names show that it is the first and not the other: ``enc`` for ``encoder``."""
    if len(new) != 1:
        return False
    tokens = tuple(next(iter(new)).split(".")[:-1])
    one, rival = tuple(lead.split(".")[:-1]), tuple(other.split(".")[:-1])
    return bool(tokens) and alike(one, tokens) and not alike(rival, tokens)


def _same(here: Mapping[str, Tensor], one: str, other: str, rests: Mapping[str, Tensor]) -> bool:
    """Return whether both parts hold the same values, as far as storages and checksums tell."""
    pairs = [(here[one + rest], here[other + rest]) for rest in rests]
    return all(is_one(ours, theirs) or same_checksums(ours, theirs) is True for ours, theirs in pairs)


def _part(comparison: Comparison, prefix: str, parts: Sequence[str], rests: Mapping[str, Tensor]) -> RivalPart:
    here = comparison.plain.here
    keys = {rest: here[prefix + rest] for rest in rests}
    if len(rests) == len(comparison.renamed.fits):
        return RivalPart(prefix, keys, keep=(f"{escape(prefix)}*",))
    others = {each + rest for each in parts if each != prefix for rest in rests}
    kept = [tensor for key, tensor in here.items() if key not in others]
    patterns = drop_patterns(comparison.checkpoint, kept)
    return RivalPart(prefix, keys, keep=tuple(patterns) if len(patterns) <= _PATTERNS else ())
