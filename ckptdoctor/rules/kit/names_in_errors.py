"""Missing and unexpected keys of an error belong together by the renames that rules propose, told by names alone.

The shape of none of these keys is known: all get the same, so that shapes decide nothing. A rename that the names alone
do not make sure counts where it gives whole parts their names and leaves next to nothing, and is told as what may be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts import names
from ckptdoctor.match.comparing import certain
from ckptdoctor.match.moves import Gap, Move
from ckptdoctor.match.norms import COUNTER, inside, leaf, module_of
from ckptdoctor.match.prefixes import Cut, Prefix, best_prefix, cut_of, prefix_code
from ckptdoctor.noun import noun
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Way
from ckptdoctor.shell import word

# where numbers differ the error is no target to repair the file for
BY_MODEL = Way("repair it", "ckptdoctor fix FILE --auto --model MODULE:CLASS")

_MEAN = "running_mean"
_ENOUGH = 2  # keys that parts with other names or numbers explain: one is a coincidence
_INFERRED = ("N423", "N424")
_TOKENS = names.WRAPPERS | {names.MODULE}
_DIGITS = re.compile(r"\d+")
# what models call the average of their weights
_AVERAGES = frozenset(("ema", "ema_model", "model_ema", "online_model", "shadow", "averaged_model"))


@noun
class Renamed:
    """Keys of one tensor: missing key → unexpected key. ``unexpected`` are all that it explains, counters as well.

    ``move`` is the rename that a rule proposes, where it is one.
    """

    names: Mapping[str, str]
    unexpected: frozenset[str]
    move: Move | None = None

    @property
    def certain(self) -> bool:
        """Whether each missing key has the shape of its partner.

        Not where numbers differ: the layers that fit are not named, and each of them may have another name as well.
        """
        return self.sure and all(_DIGITS.findall(new) == _DIGITS.findall(old) for new, old in self.names.items())

    @property
    def sure(self) -> bool:
        """Whether the names allow no other reading."""
        return self.move is None or self.move.sure

    @property
    def told(self) -> str:
        """The rename in a few words: "old → new"."""
        return self.move.pattern if self.move is not None else ""

    def cause(self, meaning: str) -> Cause:
        """Return the cause that its rule finds; in doubt, the file cannot be repaired to fit the error."""
        ways = () if self.certain else (BY_MODEL,)
        repair = Repair.SAFE if self.certain else Repair.NONE
        return Cause(meaning, repair, ways, missing=self.names, unexpected=self.unexpected)


def gap_of(rest: IncompatibleKeys) -> Gap:
    """Return what does not fit, as rules read it.

    It is in one order, whatever the error's, for the keys between are not known.
    """
    here = {key: Tensor((key,), BY_NAME["float32"], (), (), None) for key in sorted(rest.unexpected)}
    wanted = dict.fromkeys(sorted(rest.missing), Expected(()))
    return Gap(here, wanted, tuple(here), tuple(wanted))


def cut_keys(rest: IncompatibleKeys) -> tuple[Cut, Mapping[str, str]] | None:
    """Return whether ``key[7:]`` made the unexpected keys of the missing ones, and which of which.

    Where two keys of the model end alike, the file has one tensor for both, and nobody can tell whose it is.
    """
    if not rest.unexpected or not rest.missing:
        return None
    gap = gap_of(rest)
    counted = {inside(module_of(key), COUNTER): Expected(()) for key in gap.wanted if leaf(key) == _MEAN}
    wanted = {**gap.wanted, **counted}
    found = cut_of(gap.here, wanted)
    if found is None:
        return None
    return found, {key: key[found.letters :] for key in wanted if key[found.letters :] in gap.here}


@noun
class Lead:
    """What the keys of one side begin with and those of the other do not, and the rule that speaks of it.

    ``missing`` and ``unexpected`` are the keys that it explains. ``fits``: what follows it is what the other side has.
    """

    code: str
    prefix: Prefix
    missing: frozenset[str]
    unexpected: frozenset[str]
    fits: bool


@cached_by_identity
def lead(rest: IncompatibleKeys) -> Lead | None:
    """Return the prefix that half of the keys of either side have too much, or None where there is none."""
    if not rest.missing or not rest.unexpected:
        return None
    gap = gap_of(rest)
    found = best_prefix(gap.here, gap.wanted, 0)
    if found is None:
        return None
    longer, shorter = (rest.missing, gap.here) if found.added else (rest.unexpected, gap.wanted)
    inner = {key: key[len(found.text) :] for key in longer if key.startswith(found.text)}
    fitting = sum([key in shorter for key in inner.values()])
    if 2 * fitting < min(len(longer), len(shorter)):
        return None
    explained = {*inner, *inner.values()}
    return Lead(
        _rule_of(found, inner),
        found,
        frozenset(explained.intersection(gap.wanted)),
        frozenset(explained.intersection(gap.here) | counters(rest.unexpected, explained)),
        all(bare in shorter for bare in inner.values() if leaf(bare) != COUNTER),
    )


def _rule_of(prefix: Prefix, keys: Iterable[str]) -> str:
    if not prefix.added and prefix.text.split(".")[-2] in _AVERAGES:
        return "N411"
    return "L902" if any(".lora_" in key for key in keys) else prefix_code(prefix)


def lead_cause(rest: IncompatibleKeys, code: str, holder: str) -> Iterator[Cause]:
    """Yield what the rule ``code`` makes of keys that begin with something on one side only.

    ``holder`` puts it there.
    """
    found = lead(rest)
    if found is None or found.code != code:
        return
    text = found.prefix.text
    side = "the model's keys begin, and the file's do not," if found.prefix.added else "the file's keys begin"
    missing, unexpected = found.missing, found.unexpected
    alone = found.fits and missing.issuperset(rest.missing) and unexpected.issuperset(rest.unexpected)
    option = "--add-prefix" if found.prefix.added else "--strip-prefix"
    way = Way("repair it", f"ckptdoctor fix FILE {option} {word(text)}")
    whole = Way("repair it", "ckptdoctor fix FILE --auto TARGET")
    ways = (way,) if alone or rest.error.warning else (whole,)
    yield Cause(f'{side} with "{text}": {holder}', Repair.SAFE, ways, missing=missing, unexpected=unexpected)


def in_wrapper(rest: IncompatibleKeys, tokens: Collection[str], *, model: bool = False) -> tuple[str, Renamed] | None:
    """Return the keys of parts that are in a wrapper in the file, or in the ``model``.

    With them comes the first of them up to its token.

    Of nested wrappers the outermost counts.
    """
    longer, shorter = (rest.missing, rest.unexpected) if model else (rest.unexpected, rest.missing)
    known = set(shorter)
    plain = {key: bare for key in longer if (bare := without_wrappers(key)) != key and bare in known}
    held = {key: bare for key, bare in plain.items() if _first_token(key) in tokens}
    if not held or len(set(held.values())) < len(held):
        return None
    pairs = held if model else {bare: key for key, bare in held.items()}
    first = next(iter(held))
    token = _first_token(first)
    return first[: first.index(f"{token}.") + len(token)], _with_counters(pairs, rest)


def without_wrappers(key: str) -> str:
    """Return the key without the tokens of wrappers of torch, ``module`` among them."""
    return names.without_tokens(key, _TOKENS)


def _first_token(key: str) -> str:
    return next((token for token in key.split(".")[:-1] if token in _TOKENS), "")


def renames(rest: IncompatibleKeys, *codes: str) -> Iterator[Renamed]:
    """Yield the renames of these rules, as check proposes them for the file."""
    for each in _renamed(rest):
        if each.move is not None and each.move.code in codes:
            yield each


def rename_causes(rest: IncompatibleKeys, code: str, why: str) -> Iterator[Cause]:
    """Yield what the rule ``code`` makes of its renames; ``why`` is the cause that it gives for those of a file."""
    said = wording.fragment(why)
    for each in renames(rest, code):
        move = f": {each.told} gives the model's names" if "→" in each.told else ""
        doubt = f", it seems: {each.told} would give the model's names, but names alone do not prove it"
        yield each.cause(said + (move if each.sure else doubt))


@cached_by_identity
def _renamed(rest: IncompatibleKeys) -> tuple[Renamed, ...]:
    if not rest.missing or not rest.unexpected:
        return ()
    from ckptdoctor.match.search import moves_by_name

    gap = gap_of(rest)
    moves = tuple(moves_by_name(gap.here, gap.wanted))
    if any(not move.sure for move in moves) and all(move.sure or move.code == "N423" for move in moves):
        doubtful = _steps(moves, gap, rest)
        if all(map(_of_parts, doubtful)) and _most(doubtful, rest):
            return doubtful
    found = _steps(certain(moves, gap.here), gap, rest)
    if _most(found, rest):
        return found
    return tuple([each for each in found if each.move is not None and each.move.code != "N423"])


def _steps(moves: Iterable[Move], gap: Gap, rest: IncompatibleKeys) -> tuple[Renamed, ...]:
    """Return what each of the moves, one after another, does to keys that are missing in the end."""
    moves = tuple(moves)
    final = {key: key for key in gap.here}
    touched: list[list[str]] = []
    for move in moves:
        touched.append([key for key, name in final.items() if name in move.names])
        final = {key: move.change(name) for key, name in final.items()}
    found = []
    for move, keys in zip(moves, touched, strict=True):
        pairs = {final[key]: key for key in keys if final[key] in gap.wanted}
        if len(pairs) >= (_ENOUGH if move.code in _INFERRED else 1):
            found.append(_with_counters(pairs, rest, move))
    return tuple(found)


def _of_parts(found: Renamed) -> bool:
    """Return whether whole parts have other names: of each several keys, which end as they did."""
    parts = Counter([(module_of(new), module_of(old)) for new, old in found.names.items()])
    return min(parts.values()) >= _ENOUGH and all(leaf(new) == leaf(old) for new, old in found.names.items())


def _most(found: Iterable[Renamed], rest: IncompatibleKeys) -> bool:
    """Return whether so much is explained that it is the same model.

    Of another one some parts are called alike, too.
    """
    names = {name for each in found for name in each.names}
    keys = {key for each in found for key in each.unexpected}
    return 3 * len(names) >= 2 * len(rest.missing) and 3 * len(keys) >= 2 * len(rest.unexpected)


def _with_counters(pairs: Mapping[str, str], rest: IncompatibleKeys, move: Move | None = None) -> Renamed:
    explained = pairs.values()
    return Renamed(pairs, frozenset(explained) | counters(rest.unexpected, explained), move)


def counters(unexpected: Iterable[str], explained: Iterable[str]) -> set[str]:
    """Return counters of norm layers next to statistics: in files without versions torch does not miss them."""
    stats = {module_of(key) for key in explained if key.endswith(_MEAN)}
    return {key for key in unexpected if key.endswith(COUNTER) and module_of(key) in stats}


def dotless(rest: IncompatibleKeys) -> dict[str, Renamed]:
    """Return the unexpected keys that are missing ones without dots, by what precedes them."""
    wanted: dict[str, list[str]] = {}
    for key in rest.missing:
        wanted.setdefault(key.replace(".", ""), []).append(key)
    found: dict[str, dict[str, str]] = {}
    for key in rest.unexpected:
        lead, dot, name = key.rpartition(".")
        like = wanted.get(name, [])
        if "." not in lead and len(like) == 1 and like[0].count(".") > key.count("."):
            found.setdefault(lead + dot, {})[like[0]] = key
    return {lead: _with_counters(pairs, rest) for lead, pairs in found.items()}


def same_tensors(rest: IncompatibleKeys) -> dict[str, str]:
    """Return missing keys that are unexpected ones under another name, where the names allow no other reading."""
    found = cut_keys(rest)
    if found is not None:
        return dict(found[1])  # of several that fell together each has the shape of what is left: one does, but which?
    held = [each[1] for model in (False, True) if (each := in_wrapper(rest, _TOKENS, model=model)) is not None]
    moved = [each for each in _renamed(rest) if each.move is not None and each.move.code != "N410"]
    sure = [each for each in (*dotless(rest).values(), *held, *moved) if each.certain]
    return {key: partner for each in sure for key, partner in each.names.items()}
