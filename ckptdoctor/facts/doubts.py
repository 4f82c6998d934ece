"""What speaks against a chain of renames once it is complete: lists that moved in part, lone parts of foreign names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from ckptdoctor.facts.likeness import alike, of_one_kind
from ckptdoctor.facts.moves import Here, Wanted
from ckptdoctor.facts.rewordings import Rewording, template

_DIGITS = re.compile(r"[0-9]+")
_PLACES = 8  # numbers of a key that are looked at
_LONG = 9  # digits of a number that still counts something

List = tuple[str, str, tuple[int, ...]]


def doubtful(here: Here, wanted: Wanted, names: Mapping[str, str]) -> set[str]:
    """The keys of which names and shapes allow another new name than the one that they get (``names``: old → new)."""
    return _moved_in_part(here, wanted, names) | _lone(wanted, names)


def _moved_in_part(here: Here, wanted: Wanted, names: Mapping[str, str]) -> set[str]:
    """Keys of numbered parts of one shape that do not move as a whole list, each member accounted for.

    ``0, 2, 3, 4`` for ``0, 1, 2, 3`` is a list without a member and with one too many, not a list with other numbers:
    what keeps its number would be another member than its neighbour says. A shift, or every second number, moves all.
    """
    lists: dict[List, set[List]] = defaultdict(set)
    for key, new in names.items():
        shape, places = here[key].shape, list(zip(_places(key), _places(new), strict=False))
        apart = [(ours, theirs) for ours, theirs in places if ours[1] != theirs[1]]
        # where several numbers and the names around them differ, parts were arranged anew: that is told apartwise
        if len(_DIGITS.findall(key)) == len(_DIGITS.findall(new)) and (
            len(apart) == 1 or template(key) == template(new)
        ):
            for ours, theirs in apart:
                lists[ours[0], ours[2], shape].add((theirs[0], theirs[2], shape))
    single = {one: others.pop() for one, others in lists.items() if len(others) == 1}  # else they moved in another way
    if not single:
        return set()
    members, goals = _members(here, set(single)), _members(wanted, set(single.values()))
    came = {names.get(key, key): key for key in here}
    found: set[str] = set()
    for one, other in single.items():
        pairs = {number: _number(names.get(key, key), other) for number, key in members[one].items()}
        if any(number is None and members[one][old] in names for old, number in pairs.items()):
            continue  # some of them went elsewhere: it is no list there
        own = set(members[one].values())
        open_ones = {number for number, key in goals[other].items() if came.get(key, key) in own or key not in came}
        if not _as_a_whole(pairs, open_ones, same=one[1] == other[1]):
            found.update(key for key in members[one].values() if key in names)
    return found


def _number(key: str, one: List) -> int | None:
    """The number of a key in a list; None where it is no member."""
    return next((number for lead, number, rest in _places(key) if (lead, rest) == one[:2]), None)


def _members(keys: Here | Wanted, lists: set[List]) -> dict[List, dict[int, str]]:
    """The members of each list, by their numbers."""
    found: dict[List, dict[int, str]] = defaultdict(dict)
    for key, each in keys.items():
        for lead, number, rest in _places(key):
            if (lead, rest, each.shape) in lists:
                found[lead, rest, each.shape][number] = key
    return found


def _places(key: str) -> Iterator[tuple[str, int, str]]:
    """(what stands before, the number, what follows) for the numbers of a key, inside names as well."""
    for place, found in enumerate(_DIGITS.finditer(key)):
        if place < _PLACES and len(found[0]) <= _LONG:
            yield key[: found.start()], int(found[0]), key[found.end() :]


def _as_a_whole(pairs: Mapping[int, int | None], goals: set[int], same: bool) -> bool:
    """Whether these numbers become those, all of them by one rule; or in order, where no number is on both sides.

    Where what stands below the numbers is not the ``same``, their order will do: nothing can keep its number.
    """
    news = {new for new in pairs.values() if new is not None}
    if news != goals or len(news) != len(pairs):
        return False
    ordered = [(old, new) for old, new in sorted(pairs.items()) if new is not None]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(ordered)]
    if not all(new > 0 for _, new in steps):
        return False
    return not same or news.isdisjoint(pairs) or all(old * steps[0][1] == new * steps[0][0] for old, new in steps)


def _lone(wanted: Wanted, names: Mapping[str, str]) -> set[str]:
    """Keys of a single module that gets the name of another one, where nothing says that it is no other head, say.

    Its shapes say so where no other module has them, and other parts were renamed throughout.
    """
    groups: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, new in names.items():
        ours, theirs = key.rpartition(".")[0], new.rpartition(".")[0]
        old, other = Rewording(tuple(ours.split(".")), tuple(theirs.split("."))).middle()
        if not alike(old, other) and not of_one_kind(old, other):
            groups[template(".".join(old)), template(".".join(other))][ours].append(key)
    single = [keys for modules in groups.values() if len(modules) == 1 for keys in modules.values()]
    if sum(map(len, single)) == sum(key.rpartition(".")[0] != new.rpartition(".")[0] for key, new in names.items()):
        return {key for keys in single for key in keys}
    forms: dict[str, set[tuple[str, tuple[int, ...]]]] = defaultdict(set)
    for key, expected in wanted.items():
        module, _, leaf = key.rpartition(".")
        forms[module].add((leaf, expected.shape))
    found: set[str] = set()
    for keys in single:
        form = forms[names[keys[0]].rpartition(".")[0]]
        if sum([each == form for each in forms.values()]) > 1:
            found.update(keys)
    return found
