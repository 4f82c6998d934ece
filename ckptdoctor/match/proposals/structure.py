"""Proposes parts that moved and got other names, told by what they hold: ConvNeXt and Swin in timm (N423, N424).

Numbers inside names may change their places, and only some of the parts of a list may move on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ckptdoctor.match.likeness import alike, other_layout
from ckptdoctor.match.module_trees import Forms, Match, ModuleNode, ParameterKind, counterparts, tree
from ckptdoctor.match.moves import Gap, Move, move
from ckptdoctor.match.rewordings import Rewording, describe, template
from ckptdoctor.noun import noun, replace

Shape = tuple[int, ...]
Kinds = Callable[[str, Shape], ParameterKind | None]

_PLAIN = ("weight", "bias")
_MANY = 10_000  # keys whose shapes alone tell nothing


@noun
class NamePair:
    """A parameter's name here and there. ``kin``: all parts around it have the name that they had."""

    old: str
    new: str
    sure: bool
    kin: bool
    rewordings: tuple[Rewording, ...]

    @property
    def shifted(self) -> bool:
        """Whether only numbers differ."""
        return template(self.old) == template(self.new)


@noun
class _Way:
    """How a part came to its name: what was reworded on the way to it, and whether the names stayed akin."""

    rewordings: tuple[Rewording, ...] = ()
    kin: bool = True


def propose(gap: Gap) -> Iterator[Move]:
    """Yield what is sure, new numbers apart from new names where that goes; everything where nothing is."""
    yield from propose_of(gap, name_pairs(gap))


def name_pairs(gap: Gap) -> list[NamePair]:
    """Return the parameters that have other names, by their own names and shapes.

    They go by their shapes alone if none has.
    """
    found = _pairs(gap, _named_alike)
    return found if found or len(gap.loose) > _MANY else _pairs(gap, _of_one_shape)


def propose_of(gap: Gap, pairs: Sequence[NamePair]) -> Iterator[Move]:
    """Yield what these pairs say, as ``propose``."""
    chosen = [pair for pair in pairs if pair.sure] or pairs
    whole = _move(gap, chosen)
    if whole is None:
        return
    halves = [_move(gap, [each for each in chosen if each.shifted is shifted]) for shifted in (False, True)]
    found = [each for each in halves if each is not None]
    if sum([len(each.names) for each in found]) < len(whole.names):
        yield whole
    else:
        yield from found


def _move(gap: Gap, pairs: Sequence[NamePair]) -> Move | None:
    code = "N424" if all(pair.shifted for pair in pairs) else "N423"
    pattern = describe([each for pair in pairs for each in pair.rewordings])
    found = move(code, pattern, gap, [(pair.old, pair.new) for pair in pairs], sure=all(pair.sure for pair in pairs))
    if found is None or (len(found.names) == 1 and code == "N423" and not all(pair.kin for pair in pairs)):
        return None  # one key of another name, because its shape is right
    return replace(found, kin=all(pair.kin or pair.shifted for pair in pairs))


def _pairs(gap: Gap, kind: Kinds) -> list[NamePair]:
    """Return the loose keys and the open ones that are the same parameters, and have other names."""
    loose = set(gap.loose)
    settled = {template(key) for key in gap.here if key not in loose}
    ways: dict[ModuleNode, _Way] = {}
    found: list[NamePair] = []
    numbered: list[int] = []  # those that get the name of a list's member, of which others have theirs
    known: dict[Rewording, bool] = {}
    for match in counterparts(*_trees(gap, kind)):
        way = ways[match.here] = _way(match, ways)
        old, new = match.here.key, match.there.key
        if old is not None and new is not None and old != new:
            doubtful = template(old) in settled or _turned(old, new) or _strange(old, new)
            for each in way.rewordings:
                if each not in known:
                    known[each] = other_layout(*each.middle())
            doubtful = doubtful or any(known[each] for each in way.rewordings)
            numbered += [len(found)] if template(new) in settled else []
            found.append(NamePair(old, new, match.sure and not doubtful, way.kin, way.rewordings))
    if numbered and not _throughout(found, gap):
        for at in numbered:
            found[at] = replace(found[at], sure=False)
    return found


def _token(old: str, new: str) -> tuple[str, str, str] | None:
    """Return the one token that two names differ in, and what precedes it: a word, and a word with a number."""
    ours, theirs = old.split("."), new.split(".")
    differ = [at for at, each in enumerate(ours[:-1]) if at < len(theirs) and each != theirs[at]]
    if len(ours) != len(theirs) or ours[-1] != theirs[-1] or len(differ) != 1:
        return None
    one, other = ours[differ[0]], theirs[differ[0]]
    word = one.isalpha() and not other.isalpha() and not other.isdecimal()
    return (one, other, ".".join(ours[: differ[0]])) if word else None


def _throughout(found: Sequence[NamePair], gap: Gap) -> bool:
    """Return whether all that is open is one word for one member of a list in several places.

    ``upsilon`` for each ``bn2`` is such.

    Nothing is left over on either side then, and the others of the list have their names.
    """
    tokens = [_token(pair.old, pair.new) for pair in found]
    words = {each[:2] for each in tokens if each is not None}
    places = {each[2] for each in tokens if each is not None}
    whole = len(found) == len(gap.loose) == len(gap.open) and all(pair.sure for pair in found)
    return whole and None not in tokens and len(words) == 1 and len(places) > 1


def _trees(gap: Gap, kind: Kinds) -> tuple[ModuleNode, ModuleNode]:
    """Return both sides as trees, without keys of a sort that the other side has not got."""
    here = {key: each for key in gap.loose if (each := kind(key, gap.here[key].shape)) is not None}
    there = {key: each for key in gap.open if (each := kind(key, gap.wanted[key].shape)) is not None}
    both = {each[0] for each in {*here.values()} & {*there.values()}}
    forms = Forms()
    ours = tree([key for key, each in here.items() if each[0] in both], here.__getitem__, forms)
    theirs = tree([key for key, each in there.items() if each[0] in both], there.__getitem__, forms)
    return ours, theirs


def _named_alike(key: str, shape: Shape) -> ParameterKind | None:
    """Parameters of one name and shape are of one kind."""
    return key.rpartition(".")[2], shape


def _of_one_shape(key: str, shape: Shape) -> ParameterKind | None:
    """Match by shape alone: ``gamma_1`` is ``ls1.gamma``, and ``attn.gamma1.weight``.

    But ``weight_v`` is a part of a weight, and ``qweight`` stands for one: neither is the weight itself.
    """
    leaf = key.rpartition(".")[2]
    if leaf not in _PLAIN and ("parametrizations." in key or any(word in leaf for word in _PLAIN)):
        return None
    return ",".join(map(str, shape)), shape


def _strange(old: str, new: str) -> bool:
    """Return whether the parameters' own names have nothing in common, as ``mask_token`` and ``cls_token`` have."""
    ours, theirs = old.split(".")[-2:], new.split(".")[-2:]
    return ours[-1] != theirs[-1] and not (
        alike(tuple(ours[-1:]), tuple(theirs)) or alike(tuple(ours), tuple(theirs[-1:]))
    )


def _way(match: Match, ways: Mapping[ModuleNode, _Way]) -> _Way:
    """Return the way of what is around it, and what happens here."""
    outer = ways.get(match.within, _Way())
    old, new = match.old, match.new
    kin = outer.kin and _named(match.here, old) == _named(match.there, new)
    if match.here.key is not None and len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    if old == new:
        return _Way(outer.rewordings, kin)
    if old[0].isdecimal() or new[0].isdecimal():  # say in which list
        ours, theirs = match.here.tokens[: -len(match.old)], match.there.tokens[: -len(match.new)]
        old, new = (*ours[-1:], *old), (*theirs[-1:], *new)
    return _Way((*outer.rewordings, Rewording(old, new)), kin)


def _named(node: ModuleNode, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path without the names of those parts that hold nothing but one part."""
    return path[: len(path) - (len(node.tokens) - len(node.top().tokens))]


def _turned(old: str, new: str) -> bool:
    """Return whether the same words follow in another order: experts of layers are not layers of experts."""
    ours, theirs = ([each for each in key.split(".") if not each.isdecimal()] for key in (old, new))
    return ours != theirs and sorted(ours) == sorted(theirs)
