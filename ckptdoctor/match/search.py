"""Searches for the chain of renames that brings the keys of a checkpoint to the names of a target.

Greedy: of all proposals the one after which most keys fit is taken, then the next is looked for in what is left. Names
and shapes are all there is to go by, so a chain counts only when it explains most of what did not fit; a rename that
makes a few keys of a foreign model fit is a coincidence.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from ckptdoctor.match.likeness import alike, of_one_kind
from ckptdoctor.match.moves import Gap, Here, Move, Wanted, gap, joined, renamed
from ckptdoctor.match.proposals import leaves, prefixes, replacements, shifts, spellings, structure, substitutions
from ckptdoctor.match.rewordings import Rewording, template
from ckptdoctor.noun import noun, replace

Proposal = Callable[[Gap], Iterator[Move]]

# at equal effect the first one wins: what has one meaning comes before what is inferred
_PROPOSALS: tuple[Proposal, ...] = (
    leaves.propose,
    replacements.propose,
    prefixes.propose,
    shifts.propose,
    spellings.propose,
    substitutions.propose,
)

_STEPS = 24  # more names than that are not the same model's
_SHORT = 3  # steps after which it is asked what parts hold
_SEVERAL = 2_000  # keys of which it is asked first what the parts tell
_MANY = 10_000  # keys of which not every step is tried
_OF_LOOSE = 3  # a third of the loose keys must find a place, or names must be the same but for their spelling
_OF_WANTED = 10  # a tenth of the target must have other names, or names must be the same but for their spelling
_PARTS = ("N423", "N424", "N427")  # what says that one part is another one
_INFERRED = ("N410", "N423")  # what is told by names and shapes alone


def find_moves(here: Here, wanted: Wanted) -> list[Move]:
    """Return the renames, in order; none where they would not make at least half of what is open fit.

    What parts hold is asked where names and their order do not tell everything. Who weighs several repairs asks for the
    same keys again and again: the last few answers are kept.
    """
    for known in tuple(_RECENT):
        if known.is_about(here, wanted):
            return list(known.moves)
    answer = _Answer(dict(here), dict(wanted), tuple(_moves(here, wanted)))
    _RECENT.append(answer)
    return list(answer.moves)


def moves_by_name(here: Here, wanted: Wanted) -> list[Move]:
    """Return the renames where no shape is known, as of an error.

    What parts hold is asked about what was found alone.
    """
    found = _find(here, wanted, _PROPOSALS, _STEPS)
    return _questioned(_Told(gap(here, wanted)).audited(found), here, wanted).moves


@noun
class _Answer:
    """What was found for these keys in this order."""

    here: Here
    wanted: Wanted
    moves: tuple[Move, ...]

    def is_about(self, here: Here, wanted: Wanted) -> bool:
        """Return whether these are the same keys in the same order, with the same tensors."""
        return (
            (len(self.here), len(self.wanted)) == (len(here), len(wanted))
            and list(self.here) == list(here)
            and list(self.wanted) == list(wanted)
            and self.here == here
            and self.wanted == wanted
        )


_RECENT: deque[_Answer] = deque(maxlen=4)


def _moves(here: Here, wanted: Wanted) -> list[Move]:
    first = gap(here, wanted)
    if not first.loose or not first.open:
        return []
    told = _Told(first)
    whole: tuple[Proposal, ...] = (told.propose, *_PROPOSALS)
    plan: tuple[tuple[int, tuple[Proposal, ...]], ...] = ((_SHORT, _PROPOSALS), (_STEPS, whole), (_STEPS, _PROPOSALS))
    if len(here) > _SEVERAL:  # what the parts tell takes time in proportion to the keys, and is often all
        plan = ((_SHORT, (told.propose,)), *(plan if len(here) <= _MANY else ((_SHORT, _PROPOSALS),)))
    best: list[_Chain] = []
    for steps, proposals in plan:
        found = _questioned(told.audited(_find(here, wanted, proposals, steps)), here, wanted)
        best.append(found)
        if found.complete and not found.guessed:
            return found.moves
        if found.complete and proposals is whole:
            break
    return min(reversed(best), key=lambda each: (each.left, each.guessed)).moves


@noun
class _Chain:
    """Moves, and how many wanted keys stay open after them. ``complete``: nothing is left to rename, or no place."""

    moves: list[Move]
    left: int
    complete: bool

    @property
    def guessed(self) -> int:
        """How many keys get a name that is not sure."""
        return sum([len(step.names) for step in self.moves if not step.sure])


class _Told:
    """What the parts themselves show about the gap at first: worked out once, and compared with what is inferred."""

    def __init__(self, first: Gap) -> None:
        self._first = first
        self._pairs: list[structure.NamePair] | None = None

    def propose(self, now: Gap) -> Iterator[Move]:
        """Do as ``structure.propose`` does."""
        same = (now.loose, now.open) == (self._first.loose, self._first.open)
        yield from structure.propose_of(now, self._known() if same else structure.name_pairs(now))

    def audited(self, chain: _Chain) -> _Chain:
        """Return the same chain; a rename is not sure where the parts leave a choice, or say otherwise."""
        if not any(map(_audited, chain.moves)):
            return chain
        known = {pair.old: pair for pair in self._known()}
        names = {key: key for key in known}
        touched: list[set[str]] = []
        for step in chain.moves:
            touched.append({key for key, name in names.items() if name in step.names})
            names = {key: step.change(name) for key, name in names.items()}
        strange = {key for key, pair in known.items() if not pair.sure or pair.new != names[key]}
        moves = [
            replace(step, sure=False) if _audited(step) and keys & strange else step
            for step, keys in zip(chain.moves, touched, strict=True)
        ]
        return replace(chain, moves=moves)

    def _known(self) -> list[structure.NamePair]:
        if self._pairs is None:
            self._pairs = structure.name_pairs(self._first)
        return self._pairs


def _questioned(chain: _Chain, here: Here, wanted: Wanted) -> _Chain:
    """Return the same chain.

    A rename of parts or numbers is not sure where what it comes to in the end allows another one.
    """
    if not any(step.sure and step.code in _PARTS for step in chain.moves):
        return chain
    final, passing = {key: key for key in here}, []
    for step in chain.moves:
        passing.append({key for key, name in final.items() if name in step.names})
        final = {key: step.change(name) for key, name in final.items()}
    names = {key: new for key, new in final.items() if key != new and new in wanted}
    doubted = doubtful(here, wanted, names)
    moves = [
        replace(step, sure=False) if step.code in _PARTS and keys & doubted else step
        for step, keys in zip(chain.moves, passing, strict=True)
    ]
    return replace(chain, moves=moves)


def _audited(step: Move) -> bool:
    """Return whether only names and their order speak for the step."""
    return step.sure and not step.kin and step.code == "N423"


def _find(here: Here, wanted: Wanted, proposals: Sequence[Proposal], steps: int) -> _Chain:
    """Return the chain from these proposals.

    Where most of what is here would still be left over, names must be the same except for their spelling: among many
    foreign keys some have the right shape.
    """
    found = _chain(here, wanted, proposals, steps)
    renames = sum([len(step.names) for step in found.moves])
    if renames * _OF_LOOSE < len(gap(here, wanted).loose) and not all(step.kin for step in found.moves):
        found = _chain(here, wanted, proposals, steps, kin=True)
    return replace(found, moves=_doubted(found.moves, wanted))


def _chain(here: Here, wanted: Wanted, proposals: Sequence[Proposal], steps: int, kin: bool = False) -> _Chain:
    """Return the best proposals one after another; ``kin``: only those that change no more than spelling."""
    found: list[Move] = []
    now = here
    open_at_first = len(gap(here, wanted).open)
    for _ in range(steps):
        step = _best(now, wanted, proposals, kin)
        if step is None:
            break
        now = renamed(now, step)
        if found and found[-1].code == step.code and found[-1].sure == step.sure:
            found[-1] = joined(found[-1], step)
        else:
            found.append(step)
    after = gap(now, wanted)
    whole = not after.loose and 2 * len(after.open) <= len(wanted)  # the target has buffers that are not saved any more
    if 2 * len(after.open) > open_at_first and not whole:
        return _Chain([], open_at_first, complete=False)
    return _Chain(found, len(after.open), complete=not (after.open and after.loose))


def _doubted(found: list[Move], wanted: Wanted) -> list[Move]:
    """Return the same steps; a lone part that gets a foreign name is not sure: it may as well be another head."""
    inferred = sum([len(step.names) for step in found if step.code in _INFERRED])
    if inferred * _OF_WANTED >= len(wanted):
        return found
    return [step if step.kin else replace(step, sure=False) for step in found]


def _best(here: Here, wanted: Wanted, proposals: Sequence[Proposal], kin: bool) -> Move | None:
    """Return the proposal after which fewest wanted keys are open, or None when none helps."""
    now = gap(here, wanted)
    if not now.loose or not now.open:
        return None
    best, fewest = None, len(now.open)
    least = max(len(now.open) - len(now.loose), 0)  # one key can fill one gap
    for propose in proposals:
        for step in propose(now):
            if kin and not step.kin:
                continue
            bar = fewest + (best is not None and (step.sure, step.kin) > (best.sure, best.kin))  # of equals the surer
            left = _left_open(step, here, wanted, len(now.open), bar)
            if left < bar:
                best, fewest = step, left
            if fewest == least and best is not None and _certain(best, wanted):
                return best
    return best


def _certain(step: Move, wanted: Wanted) -> bool:
    """Return whether no other step with the same effect could be more certain."""
    return step.sure and (step.kin or len(step.names) * _OF_WANTED >= len(wanted))


def _left_open(step: Move, here: Here, wanted: Wanted, left_now: int, fewest: int) -> int:
    """Return how many wanted keys are open after the step; worked out only where it could be fewer than ``fewest``."""
    if left_now - len(step.names) >= fewest:
        return fewest
    lost = sum([old in wanted and wanted[old].shape == here[old].shape for old in step.names])
    return left_now - len(step.names) + lost


# ---- what speaks against a chain of renames once it is complete: lists that moved in part, lone parts of foreign names


_DIGITS = re.compile(r"[0-9]+")
_PLACES = 8  # numbers of a key that are looked at
_LONG = 9  # digits of a number that still counts something

List = tuple[str, str, tuple[int, ...]]


def doubtful(here: Here, wanted: Wanted, names: Mapping[str, str]) -> set[str]:
    """Return the keys of which names and shapes allow another new name than they get (``names``: old → new)."""
    return _moved_in_part(here, wanted, names) | _lone(wanted, names)


def _moved_in_part(here: Here, wanted: Wanted, names: Mapping[str, str]) -> set[str]:
    """Return keys of numbered parts of one shape that do not move as a whole list, each member accounted for.

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
    """Return the number of a key in a list, or None where it is not a member."""
    return next((number for lead, number, rest in _places(key) if (lead, rest) == one[:2]), None)


def _members(keys: Here | Wanted, lists: set[List]) -> dict[List, dict[int, str]]:
    """Return the members of each list, by their numbers."""
    found: dict[List, dict[int, str]] = defaultdict(dict)
    for key, each in keys.items():
        for lead, number, rest in _places(key):
            if (lead, rest, each.shape) in lists:
                found[lead, rest, each.shape][number] = key
    return found


def _places(key: str) -> Iterator[tuple[str, int, str]]:
    """Yield (what precedes it, the number, what follows it) for the numbers of a key, inside names as well."""
    for place, found in enumerate(_DIGITS.finditer(key)):
        if place < _PLACES and len(found[0]) <= _LONG:
            yield key[: found.start()], int(found[0]), key[found.end() :]


def _as_a_whole(pairs: Mapping[int, int | None], goals: set[int], same: bool) -> bool:
    """Return whether these numbers become those, all of them by one rule.

    In order they do, where no number is on both sides.

    Where what is below the numbers is not the ``same``, their order will do: nothing can keep its number.
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
    """Return keys of single modules that get an unlike name, so that they may be a different head.

    Shapes rule that out where no other module has them, and other parts were renamed throughout.
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
