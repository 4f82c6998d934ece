"""Puts a difference in one sentence, which says no more than was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import isfinite

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.checkpoint import doubled_keys
from ckptdoctor.differences import Difference, Numbers, Pair, Single, Verdict
from ckptdoctor.facts.weight_sets import BUFFERS
from ckptdoctor.match.shapes.layer_names import is_head
from ckptdoctor.wording import listed, plural

_NAMED = 4  # modules that are named one by one
_ATTENTION = (
    "attn",
    "attention",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv",
    "query",
    "key",
    "value",
    "to_q",
    "to_k",
)
_STATISTICS = BUFFERS - {"inv_freq"}


def summary(found: Difference) -> str:
    """Return the difference in a sentence, the most telling thing first; values only where they were compared."""
    weights = [pair for pair in found.pairs if pair.weights] or list(found.pairs)
    said = _weights(found, weights)
    beside = [*_beside(found, weights), *_doubled(found)]
    if said and beside:
        return f"{said}; {', '.join(beside)}"
    return said or ", ".join(beside) or "nothing in common"


def _doubled(found: Difference) -> Iterator[str]:
    """Yield which side has keys in several files, of whose values one was compared."""
    for name, side in (("A", found.a), ("B", found.b)):
        if doubled_keys(side.checkpoint):
            yield f"{name} has the same key in several files, and one of them was compared"


def _weights(found: Difference, weights: Sequence[Pair]) -> str:
    """Return what differs in the tensors that both have, above all the weights."""
    if not weights:
        return "" if found.removed or found.added else "no tensors in either"
    if found.compared:
        return _told(found, weights)
    ways = _ways(found, weights)
    unread = "values were compared only in part" if found.interrupted else "values were not compared"
    reshaped = [pair for pair in weights if pair.reshaped]
    if reshaped:
        where = _where([pair.name for pair in reshaped])
        turned = " (perhaps transposed)" if all(pair.perhaps_transposed for pair in reshaped) else ""
        many = plural(len(reshaped), _noun(found, weights))
        text = f"{many} in {where} {_has(len(reshaped))} a different shape{turned}"
        return f"{text}, the rest {'has ' + listed(ways) if ways else 'fits'}; {unread}"
    if ways:
        return f"the same tensors, but {listed(ways)}; {unread}"
    return f"the same names, shapes and dtypes; {unread}"


def _told(found: Difference, weights: Sequence[Pair]) -> str:
    """Return the same where the values are known."""
    apart = [pair for pair in weights if not pair.settled or (pair.reshaped and not pair.transposed)]
    known = [pair for pair in apart if pair.reshaped or not _is_unknown(pair)]
    unknown = len(apart) - len(known)
    ways = _ways(found, weights)
    if not apart:
        return _same(weights, ways)
    if unknown:
        text = f"{unknown:,} of {plural(len(weights), _noun(found, weights))} could not be compared"
        return f"{text}, {_counted(found, weights, known)}" if known else text
    tail = f"; {listed(ways)} as well" if ways else ""
    return f"{_shape_of_change(found, weights, apart)}{tail}"


def _same(weights: Sequence[Pair], ways: Sequence[str]) -> str:
    """Return the sentence for values that did not change."""
    verdicts = {pair.values.verdict for pair in weights if pair.values is not None}
    close = Verdict.CLOSE in verdicts
    if not ways:
        return "equal within the tolerances" if close else "identical, bit for bit"
    exact = ", within the tolerances" if close else ", exactly converted" if Verdict.ROUNDED in verdicts else ""
    return f"same weights, {listed(ways)}{exact}"


def _shape_of_change(found: Difference, weights: Sequence[Pair], changed: Sequence[Pair]) -> str:
    """Return what changed: the head, statistics, whole modules or everything; and whether by a low rank."""
    names = [pair.name for pair in changed]
    rest = "the rest is bit-identical" if _exact(weights, changed) else "the rest is the same"
    if len(changed) < len(weights):
        if all(map(_is_of_the_head, names)) and len(_modules(names)) <= _NAMED:
            return f"identical except for the head ({listed(_modules(names))})"
        if all(name.rpartition(".")[2] in _STATISTICS for name in names):
            return f"identical except for running statistics and counters ({plural(len(names), 'tensor')})"
    if _reshaped(changed):
        return f"{_counted(found, weights, changed)} (in {_where(names)}); {rest}"
    low = _low_rank(found, names)
    if low:
        return low if len(changed) == len(weights) else f"{low}; {rest}"
    if len(changed) == len(weights):
        every = f"all {plural(len(weights), _noun(found, weights))}" if len(weights) > 1 else names[0]
        return f"{every} changed{_how_far(changed)}"
    whole = _whole({pair.name for pair in weights}, set(names))
    if whole is not None and len(whole) <= _NAMED:
        return f"all of {listed(whole)} changed; {rest}"
    return f"{_counted(found, weights, changed)} (in {_where(names)}); {rest}"


def _noun(found: Difference, weights: Sequence[Pair]) -> str:
    """Return what is counted: where an optimizer's tensors are in both as well, they are told behind the weights."""
    return "tensor" if len(weights) == len(found.pairs) else "weight tensor"


def _is_unknown(pair: Pair) -> bool:
    return pair.values is None or pair.values.verdict is Verdict.NOT_COMPARED


def _reshaped(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.reshaped and not pair.transposed]


def _counted(found: Difference, weights: Sequence[Pair], apart: Sequence[Pair]) -> str:
    """Return how many changed and how many have a different shape, which are not called changed, as in the groups."""
    reshaped = len(_reshaped(apart))
    changed, every = len(apart) - reshaped, plural(len(weights), _noun(found, weights))
    shapes = f"{_has(reshaped)} a different shape"
    if not changed:
        return f"{reshaped:,} of {every} {shapes}"
    return f"{changed:,} of {every} changed" + (f" and {reshaped:,} {shapes}" if reshaped else "")


def _is_of_the_head(name: str) -> bool:
    """Return whether a name is that of a head outside any numbered block: ``h.1.mlp.c_fc`` is part of a block."""
    return is_head(".".join([*takewhile(lambda part: not part.isdigit(), name.split(".")[:-1]), "weight"]))


def _how_far(changed: Sequence[Pair]) -> str:
    """Return the distance of all of them; "" where it could not be measured."""
    measured = [pair.values.numbers for pair in changed if pair.values is not None and pair.values.numbers is not None]
    if len(measured) < len(changed):
        return ""
    numbers = sum(measured, Numbers())
    if numbers.odd:
        return f" ({plural(numbers.odd, 'value is', 'values are')} NaN on one side only)"
    if not isfinite(numbers.largest):
        return " (with infinity on one side only)"
    return f" (relative L2 {numbers.relative:.3g}, cosine {numbers.cosine:.6f})"


def _exact(weights: Sequence[Pair], changed: Sequence[Pair]) -> bool:
    apart = {id(pair) for pair in changed}
    return all(
        pair.values is not None and pair.values.verdict is Verdict.EQUAL for pair in weights if id(pair) not in apart
    )


def _low_rank(found: Difference, names: Sequence[str]) -> str:
    """Return the sentence for a low rank: only where every matrix that was looked at has one, "" otherwise."""
    ranks = found.ranks
    if ranks is None or not ranks.low or ranks.full:
        return ""
    most = max(rank.rank for rank in ranks.low)
    looked = f"rank {most} at most in the {len(ranks.low):,} largest" if len(ranks.low) > 1 else f"rank {most}"
    where = "attention projections" if all(_in_attention(name) for name in names) else _where(names)
    return f"low-rank change in {where} ({plural(len(names), 'tensor')}; {looked}, by a randomized sketch)"


def _in_attention(name: str) -> bool:
    tokens = name.lower().split(".")[:-1]
    return any(word in token for token in tokens[-3:] for word in _ATTENTION)


def _ways(found: Difference, weights: Sequence[Pair]) -> list[str]:
    """Return in what they differ apart from their values."""
    ways = []
    if any(pair.renamed for pair in weights):
        ways.append("different names")
    casts = {(pair.a.dtype.name, pair.b.dtype.name): None for pair in weights if pair.recast}
    if casts:
        ways.append("different dtype" + (" ({} → {})".format(*next(iter(casts))) if len(casts) == 1 else "s"))
    if any(pair.retagged for pair in weights):
        ways.append("different device tags")
    if any(pair.remade for pair in weights):
        ways.append("a different type of tensor")
    turned = sum([pair.transposed for pair in weights])
    if turned:
        ways.append(f"{turned:,} {'matrix' if turned == 1 else 'matrices'} transposed")
    if any(tie.counts for tie in found.ties):
        ways.append("different ties")
    if found.moved:
        ways.append(f"a different place ({show_path(found.moved[0].a)} → {show_path(found.moved[0].b)})")
    return ways


def _beside(found: Difference, weights: Sequence[Pair]) -> Iterator[str]:
    """Yield the other differences, in a few words each."""
    for side, singles in (("A", found.removed), ("B", found.added)):
        if singles:
            tied = {name for tie in found.ties if tie.side == side.lower() for name in tie.missing}
            why = ", tied there to a tensor that both have" if tied.issuperset([each.name for each in singles]) else ""
            yield f"{plural(len(singles), 'tensor')} only in {side}{why}{_lost(singles, side)}"
    sides = [("A", found.a.unread, found.added), ("B", found.b.unread, found.removed)]
    without = [side for side, unread, others in sides if unread and not any(each.lost for each in others)]
    if without:
        yield f"files of {listed(without)} are missing or damaged"
    rest = [pair for pair in found.pairs if not pair.weights] if weights and weights[0].weights else []
    apart = [pair for pair in rest if not pair.alike]
    if apart:
        yield (
            f"{len(apart):,} of {plural(len(rest), 'tensor')} other than the weights "
            f"differ{'s' if len(apart) == 1 else ''}"
        )
    if found.others:
        yield "other contents differ"


def _lost(singles: Sequence[Single], side: str) -> str:
    """Return how many of these the other should have, in files that were not read; "" for none."""
    lost = sum([each.lost for each in singles])
    if not lost:
        return ""
    many = "" if lost == len(singles) else f"{lost:,} of them "
    return f" ({many}in missing or damaged files of {'B' if side == 'A' else 'A'})"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _where(names: Sequence[str]) -> str:
    """Return the modules, when they are few; else what all of them are in, or how many they are."""
    modules = _modules(names)
    if len(modules) <= _NAMED:
        return listed(modules)
    tops = list(dict.fromkeys([name.split(".")[0] for name in modules]))
    if len(tops) == 1:
        return _within(modules)
    return listed(tops) if len(tops) <= _NAMED else f"{len(modules):,} modules"


def _within(modules: Sequence[str]) -> str:
    """Return the module that all of these are in, and which of its blocks they are, where these have numbers."""
    steps = [name.split(".") for name in modules]
    least = min(map(len, steps))
    same = next((at for at in range(least) if len({each[at] for each in steps}) > 1), least)
    lead = ".".join(steps[0][:same])
    if same == least or not all(each[same].isdecimal() for each in steps):
        return lead
    blocks = sorted({int(each[same]) for each in steps})
    if blocks[-1] - blocks[0] + 1 == len(blocks):
        return f"{lead}.{{{blocks[0]}..{blocks[-1]}}}"
    return f"{len(blocks):,} blocks of {lead}"


def _modules(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([name.rpartition(".")[0] or name for name in names]))


def _whole(every: set[str], changed: set[str]) -> list[str] | None:
    """Return the outermost modules all of whose tensors changed; None where one outside of them changed too."""
    total, apart = _counts(every), _counts(changed)
    found: dict[str, None] = {}
    for name in sorted(changed):
        tokens = name.split(".")
        prefixes = [".".join(tokens[:end]) for end in range(1, len(tokens))]
        whole = next((prefix for prefix in prefixes if apart[prefix] == total[prefix]), None)
        if whole is None:
            return None
        found[whole] = None
    return list(found)


def _counts(names: set[str]) -> dict[str, int]:
    """Return the number of names in each module."""
    counts: dict[str, int] = {}
    for name in names:
        tokens = name.split(".")
        for end in range(1, len(tokens)):
            prefix = ".".join(tokens[:end])
            counts[prefix] = counts.get(prefix, 0) + 1
    return counts
