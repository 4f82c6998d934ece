"""Missing keys and unexpected keys that are the same weights under other names, told by the names alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from heapq import nsmallest
from itertools import islice

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.match.moves import Gap, Move
from ckptdoctor.match.prefixes import cut_of
from ckptdoctor.match.proposals import leaves, replacements, shifts
from ckptdoctor.noun import noun

_TAIL = 2  # last tokens in common from which two keys are taken for the same weight
_DEEPEST = 8  # tokens of an end that are compared
_NEAREST = 4  # keys with the same end that are tried
_STEPS = 4  # renames in one error
_ENOUGH = 2  # keys that a rename has to explain: one pair is a coincidence

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module", "module")
STAT, COUNTER = "running_mean", "num_batches_tracked"


@noun
class Pairs:
    """One way in which names differ: its kind, how to say it ("old → new"), and missing key → unexpected key.

    ``certain``: the names allow no other reading, so each missing key has the shape of its partner.
    ``missing`` and ``unexpected`` are all keys that it explains, with or without a partner.
    """

    kind: str
    told: str
    pairs: dict[str, str]
    missing: frozenset[str]
    unexpected: frozenset[str]
    certain: bool = True


def name_pairs(missing: Collection[str], unexpected: Collection[str]) -> Iterator[Pairs]:
    """The same tensors under other names; each kind takes what it explains off the rest."""
    rest, more = dict.fromkeys(missing), dict.fromkeys(unexpected)
    for find in (_wrapped, _wanting_wrappers, _replaced, _gamma, _respelt, _dotless, _shifted, _renamed):
        if not rest or not more:
            return
        found = find(rest, more)
        if found is not None:
            yield found
            rest = dict.fromkeys(key for key in rest if key not in found.missing)
            more = dict.fromkeys(key for key in more if key not in found.unexpected)


Keys = Collection[str]


def _paired(kind: str, told: str, pairs: dict[str, str], more: Keys, certain: bool = True) -> Pairs | None:
    """The pairs with the counters beside them, which torch does not call missing of a file without versions."""
    if not pairs or len(set(pairs.values())) < len(pairs):
        return None
    explained = set(pairs.values())
    explained |= {
        key[: -len(STAT)] + COUNTER
        for key in pairs.values()
        if key.endswith(STAT) and key[: -len(STAT)] + COUNTER in more
    }
    return Pairs(kind, told, pairs, frozenset(pairs), frozenset(explained), certain)


def bare(key: str) -> str:
    """A key without the tokens of wrappers."""
    return ".".join([token for token in key.split(".") if token not in WRAPPERS])


def _wrapped(missing: Keys, unexpected: Keys) -> Pairs | None:
    """The file has tokens of wrappers further inside."""
    pairs = {bare(key): key for key in unexpected if bare(key) != key and bare(key) in missing}
    return _paired("wrapped", _token(pairs.values()), pairs, unexpected)


def _wanting_wrappers(missing: Keys, unexpected: Keys) -> Pairs | None:
    """The model has tokens of wrappers further inside."""
    pairs = {key: bare(key) for key in missing if bare(key) != key and bare(key) in unexpected}
    return _paired("unwrapped", _token(pairs), pairs, unexpected)


def _token(keys: Collection[str]) -> str:
    """The wrapper's token that the first of the keys has, and where."""
    for key in keys:
        tokens = key.split(".")
        at = next(number for number, token in enumerate(tokens) if token in WRAPPERS)
        return ".".join(tokens[: at + 1])
    return ""


def _gap(missing: Keys, unexpected: Keys) -> Gap:
    """What does not fit, as rules read it.

    An error does not tell the shapes of these keys: all are given the same, so that they decide nothing.
    """
    here = {key: Tensor((key,), BY_NAME["float32"], (), (), None) for key in unexpected}
    wanted = dict.fromkeys(missing, Expected(()))
    return Gap(here, wanted, tuple(here), tuple(wanted))


def _proposed(propose: Callable[[Gap], Iterator[Move]], code: str, missing: Keys, unexpected: Keys) -> list[Move]:
    """The renames of a rule, as check proposes them, those of most keys first."""
    found = [move for move in propose(_gap(missing, unexpected)) if move.code == code]
    return sorted(found, key=lambda move: -len(move.names))


def _of_move(kind: str, told: str, move: Move, more: Keys, certain: bool = True) -> Pairs | None:
    return _paired(kind, told, {new: old for old, new in move.names.items()}, more, certain)


def _replaced(missing: Keys, unexpected: Keys) -> Pairs | None:
    """``key.replace("module.", "")`` took it out of the middle of names."""
    for move in _proposed(replacements.propose, "N403", missing, unexpected):
        return _of_move("replaced", 'key.replace("module.", "")', move, unexpected)
    return None


def cut_pairs(missing: Keys, unexpected: Keys) -> Pairs | None:
    """``key[7:]`` cut keys that did not begin with ``module.``: each is a key of the model less its first letters.

    Where two keys of the model end alike, the file has one tensor for both, and nobody can tell whose it is.
    """
    wanted = [*missing, *[key[: -len(STAT)] + COUNTER for key in missing if key.endswith(STAT)]]
    told = _gap(wanted, unexpected)
    cut = cut_of(told.here, told.wanted)
    if cut is None:
        return None
    pairs = {key: key[cut.letters :] for key in told.wanted if key[cut.letters :] in told.here}
    return Pairs("cut", f"key[{cut.letters}:]", pairs, frozenset(pairs), frozenset(unexpected), not cut.lost)


def _gamma(missing: Keys, unexpected: Keys) -> Pairs | None:
    """Norm layers of TensorFlow: gamma and beta."""
    for move in _proposed(leaves.propose, "N414", missing, unexpected):
        if move.pattern.startswith("gamma"):
            return _of_move("gamma", "gamma → weight, beta → bias", move, unexpected)
    return None


def _respelt(missing: Keys, unexpected: Keys) -> Pairs | None:
    """Case and separators differ."""
    return _same(missing, unexpected, "respelt", "case and separators", _plainly)


def _plainly(key: str) -> str:
    return ".".join(re.sub(r"[_\-/]", "", token).lower() for token in key.replace("/", ".").split("."))


def _dotless(missing: Keys, unexpected: Keys) -> Pairs | None:
    """The dots are left out, behind a first token or none."""

    def without(key: str) -> str:
        return key.replace(".", "")

    def behind(key: str) -> str:
        return key.partition(".")[2] or key

    plain = {key: key for key in unexpected if key.count(".") <= 1}
    names: dict[str, list[str]] = defaultdict(list)
    for key in missing:
        names[without(key)].append(key)
    pairs = {
        wanted[0]: key
        for key in plain
        if len(wanted := names.get(behind(key), [])) == 1 and wanted[0].count(".") > key.count(".")
    }
    found = _paired("dotless", "", pairs, unexpected)
    if found is None:
        return None
    first = next(iter(pairs.values())).partition(".")
    prefix = f"{first[0]}." if first[2] else ""
    more = {key for key in unexpected if prefix and key.startswith(prefix)}  # decay and the number of updates
    return Pairs("dotless", prefix, pairs, found.missing, found.unexpected | more)


def _same(missing: Keys, unexpected: Keys, kind: str, told: str, normal: Callable[[str], str]) -> Pairs | None:
    """Keys that are equal once they are made normal, each to one other only."""
    wanted: dict[str, list[str]] = defaultdict(list)
    here: dict[str, list[str]] = defaultdict(list)
    for key in missing:
        wanted[normal(key)].append(key)
    for key in unexpected:
        here[normal(key)].append(key)
    pairs = {keys[0]: here[name][0] for name, keys in wanted.items() if len(keys) == 1 == len(here.get(name, ()))}
    return _paired(kind, told, pairs, unexpected)


def _shifted(missing: Keys, unexpected: Keys) -> Pairs | None:
    """Numbered parts are counted from another number: one offset behind one name explains all of its keys."""
    for move in _proposed(shifts.propose, "N424", missing, unexpected):
        if len(move.names) >= _ENOUGH and 2 * len(move.names) >= min(len(missing), len(unexpected)):
            return _of_move("shifted", move.pattern, move, unexpected, certain=False)
        return None
    return None


def _renamed(missing: Keys, unexpected: Keys) -> Pairs | None:
    """Parts have other names, each in every key that has it; together they explain most of both sides."""
    rest, more = dict.fromkeys(missing), dict.fromkeys(unexpected)
    pairs: dict[str, str] = {}
    told: list[str] = []
    for _ in range(_STEPS):
        found = _rename(rest, more)
        if found is None:
            break
        pattern, renamed = found
        told.append(pattern)
        pairs |= renamed
        rest = dict.fromkeys(key for key in rest if key not in renamed)
        more = dict.fromkeys(key for key in more if key not in set(renamed.values()))
    close = all(_common_tail(one, other) >= _TAIL for one, other in pairs.items())
    found_all = _paired("renamed", ", ".join(told), pairs, unexpected, close)
    if found_all is None or 3 * len(pairs) < 2 * len(missing) or 3 * len(found_all.unexpected) < 2 * len(unexpected):
        return None
    return found_all


def _rename(missing: Keys, unexpected: Keys) -> tuple[str, dict[str, str]] | None:
    """The rename that explains most keys: how to say it, and missing key → unexpected key."""
    ends: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    wanted = [tuple(key.split(".")) for key in missing]
    for tokens in wanted:
        for size in range(1, min(len(tokens), _DEEPEST) + 1):
            ends[tokens[-size:]].append(tokens)
    tally: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    for key in unexpected:
        tally.update([*dict.fromkeys(_differences(tuple(key.split(".")), ends))])
    known = set(wanted)
    # of renames that explain as many keys, the one that keeps their numbers: norm.1 is layer_norm_1, and not 2
    for (old, new), count in nsmallest(_NEAREST, tally.items(), key=lambda each: (-each[1], not _alike(*each[0]))):
        if count < _ENOUGH or not all(old) or not all(new) or not old or not new:
            continue
        pairs = {}
        for key in unexpected:
            tokens = tuple(key.split("."))
            made = next((each for each in _substituted(tokens, old, new) if each in known), None)
            if made is not None:
                pairs[".".join(made)] = key
        if len(pairs) >= _ENOUGH and len(set(pairs.values())) == len(pairs):
            return f"{'.'.join(old)} → {'.'.join(new)}", pairs
    return None


def _alike(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Whether both have the same numbers."""
    return re.findall(r"\d+", ".".join(old)) == re.findall(r"\d+", ".".join(new))


def _differences(
    tokens: tuple[str, ...], ends: dict[tuple[str, ...], list[tuple[str, ...]]]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What stands here and what there, between a common beginning and a common end."""
    for size in range(min(len(tokens), _DEEPEST), 0, -1):
        for other in islice(ends.get(tokens[-size:], ()), _NEAREST):
            start = 0
            while start < min(len(tokens), len(other)) - size and tokens[start] == other[start]:
                start += 1
            tail = size
            while tail < min(len(tokens), len(other)) - start and tokens[-tail - 1] == other[-tail - 1]:
                tail += 1
            yield tokens[start : len(tokens) - tail], other[start : len(other) - tail]


def _substituted(tokens: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for at in range(len(tokens) - len(old) + 1):
        if tokens[at : at + len(old)] == old:
            yield (*tokens[:at], *new, *tokens[at + len(old) :])


def _common_tail(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(reversed(one.split(".")), reversed(other.split(".")), strict=False):
        if mine != theirs:
            break
        count += 1
    return count
