"""Proposes another name of a token throughout: ``norm.1`` for ``norm1``, ``layers`` for ``stages`` (N423).

Which token stands for which is learnt from pairs of keys that belong together by order: the i-th loose key and the
i-th open one with the same last token and the same shape. What two such keys differ in is a substitution, and each
pair votes for it. A substitution is then tried on all loose keys, whoever voted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptdoctor.match.likeness import Tokens, alike, kin_of, letters, nearest, other_layout
from ckptdoctor.match.moves import Gap, Move, move
from ckptdoctor.noun import replace

Substitution = tuple[Tokens, Tokens]
_Place = tuple[str, str, tuple[int, ...]]

_TRIED = 12  # substitutions worked out in full: those with the most votes
_PAIRS = 4096  # pairs that vote: a sample tells enough
_NAMES = 64  # substitutions whose tokens are held against each other
# what peft calls the layer beside which it puts an adapter, and what wrappers call the module that they wrap
_WRAPPED = frozenset({"base_layer", "module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_DEPTH = 32  # tokens of a key that are looked at


def propose(gap: Gap) -> Iterator[Move]:
    """Yield all well-supported substitutions of single tokens at once; then those with the most votes one by one.

    Tokens that say the same, such as ``k`` and ``k_proj``, come before what only the order of keys says.
    """
    votes = _votes(list(_by_order(gap)))
    rivals = _rivals(gap) if votes else {}
    together, by_name = _together(votes), _by_name(votes)
    several = [together] if by_name == together else [by_name, together]
    for substitutions in (*several, *([each] for each, _ in votes.most_common(_TRIED))):
        found = _move(gap, substitutions, rivals)
        if found is not None:
            yield found


def _together(votes: Counter[Substitution]) -> list[Substitution]:
    """Return for each token that is replaced by another one the replacement with the most votes."""
    best: dict[str, Substitution] = {}
    for (old, new), _ in votes.most_common():
        if len(old) == len(new) == 1:
            best.setdefault(old[0], (old, new))
    return list(best.values())


def _by_name(votes: Counter[Substitution]) -> list[Substitution]:
    """Do as ``_together`` does, but a token stands for the only one that is like it, whatever the order."""
    together = _together(votes)
    if len(together) > _NAMES:
        return together
    news = list(dict.fromkeys([new[0] for (old, new), _ in votes.most_common(_NAMES) if len(old) == len(new) == 1]))
    found: list[Substitution] = []
    for (old,), (new,) in together:
        like = [each for each in news if alike((old,), (each,))]
        found.append(((old,), (like[0] if len(like) == 1 else kin_of(old, news) or new,)))
    return found


def _move(gap: Gap, substitutions: Sequence[Substitution], rivals: Mapping[_Place, set[str]]) -> Move | None:
    """Return the move that these substitutions make, where it fits at least half of the keys that hold their tokens."""
    pairs: list[tuple[str, str]] = []
    used: dict[Substitution, None] = {}
    holders = 0
    first = _by_first_token(substitutions)
    for key in gap.loose:
        tokens = key.split(".")
        present = [each for token in dict.fromkeys(tokens) if token in first for each in first[token]]
        present = [each for each in present if len(each[0]) == 1 or any(True for _ in _places(tokens, each[0]))]
        if not present:
            continue
        holders += 1
        name = _substituted(tokens, present)
        if name in gap.wanted:
            pairs.append((key, name))
            used.update(dict.fromkeys(present))
    found = move("N423", ", ".join([_pattern(*each) for each in used]), gap, pairs)
    if found is None or 2 * len(found.names) < holders:  # a name that seldom fits is a coincidence
        return None
    like = all(alike(*each) for each in used)
    if len(found.names) == 1 and not like:  # one key of another name, because its shape is right
        return None
    sure = like or all(_only_choice(*each, gap, rivals) for each in found.names.items())
    kin = all(_equal(*each) for each in used)
    return replace(found, sure=sure and not any(other_layout(*each) for each in used), kin=kin)


def _pattern(old: Tokens, new: Tokens) -> str:
    return f"{'.'.join(old)} → {'.'.join(new)}" if new else f'drop "{".".join(old)}."'


def _by_order(gap: Gap) -> Iterator[tuple[str, str]]:
    """Yield the i-th loose and the i-th open key of each last token and shape, where there are equally many."""
    here = _classes((key, gap.here[key].shape) for key in gap.loose)
    there = _classes((key, gap.wanted[key].shape) for key in gap.open)
    for kind, keys in here.items():
        if len(keys) == len(there.get(kind, ())):
            yield from zip(keys, there[kind], strict=True)


def _classes(keys: Iterable[tuple[str, tuple[int, ...]]]) -> dict[tuple[str, tuple[int, ...]], list[str]]:
    found: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for key, shape in keys:
        found[key.rpartition(".")[2], shape].append(key)
    return found


def _votes(pairs: Sequence[tuple[str, str]]) -> Counter[Substitution]:
    votes: Counter[Substitution] = Counter()
    step = max(1, len(pairs) // _PAIRS)
    for old, new in pairs[::step]:
        votes.update(_differences(tuple(old.split(".")), tuple(new.split("."))))
    return votes


def _differences(old: Tokens, new: Tokens) -> set[Substitution]:
    """Return what one key has where the other has something else, between the tokens that begin and end alike.

    Where both differ in equally many tokens, each differing token is a substitution of its own as well.
    """
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    one, other = old[start : len(old) - end], new[start : len(new) - end]
    found = {(one, other)} if one else set()
    if one and len(one) == len(other):
        found |= {((a,), (b,)) for a, b in zip(one, other, strict=True) if a != b}
    return {each for each in found if not _numbers(*each)}


def _numbers(old: Tokens, new: Tokens) -> bool:
    """Return whether numbers become numbers: of one layer only, or a shift, which is another matter."""
    same_length = len(old) == len(new)
    return same_length and any(_is_number(a) and _is_number(b) for a, b in zip(old, new, strict=True))


def _is_number(token: str) -> bool:
    return token.removeprefix("-").isdecimal()


def _by_first_token(substitutions: Iterable[Substitution]) -> dict[str, list[Substitution]]:
    found: dict[str, list[Substitution]] = defaultdict(list)
    for each in substitutions:
        found[each[0][0]].append(each)
    return dict(found)


def _substituted(tokens: list[str], substitutions: Iterable[Substitution]) -> str:
    """Return the key with all of these tokens replaced, each in the first place where it occurs."""
    for old, new in substitutions:
        for place in _places(tokens, old):
            tokens[place : place + len(old)] = new
            break
    return ".".join(tokens)


def _places(tokens: Sequence[str], some: Tokens) -> Iterator[int]:
    """Yield where these tokens follow one another."""
    for index in range(len(tokens) - len(some) + 1):
        if tuple(tokens[index : index + len(some)]) == some:
            yield index


def _equal(old: Tokens, new: Tokens) -> bool:
    """Return whether both are one name, separators aside, or only a wrapper's token goes."""
    return letters(old) == letters(new) or (len(old) == 1 and old[0] in _WRAPPED and not new)


def _rivals(gap: Gap) -> dict[_Place, set[str]]:
    """Return for each token of each open key what else could be in its place with the same shape."""
    found: dict[_Place, set[str]] = defaultdict(set)
    for key in gap.open:
        for before, token, after in _taken_apart(key):
            found[before, after, gap.wanted[key].shape].add(token)
    return found


def _only_choice(old: str, new: str, gap: Gap, rivals: Mapping[_Place, set[str]]) -> bool:
    """Return whether each new token is the only one that could be there, or begins like the old one."""
    before = old.split(".")
    same_length = len(before) == new.count(".") + 1
    for index, (left, token, right) in enumerate(_taken_apart(new)):
        if token in before:
            continue
        others = rivals.get((left, right, gap.wanted[new].shape), set())
        if len(others) != 1 and not (same_length and nearest(before[index], token, others)):
            return False
    return True


def _taken_apart(key: str) -> Iterator[tuple[str, str, str]]:
    tokens = key.split(".")[:_DEPTH]
    for index, token in enumerate(tokens[:-1]):
        yield ".".join(tokens[:index]), token, ".".join(tokens[index + 1 :])
