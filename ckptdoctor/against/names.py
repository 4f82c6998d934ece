"""Says by names where the tensors of a source may be in an export: nothing of it counts before values prove it.

A name is expected to be itself, with or without what precedes its module, or what a published layout makes of it:
llama.cpp's names of transformers' tensors, and those of ``match.published``. The layout says in what order elements
are there. What else could have become of them is tried as well, to say what went wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby

from ckptdoctor.against.elements import Elements
from ckptdoctor.against.links import AS_IS, HALVED, PAIRED, TRANSPOSED, Link, row_size, whole
from ckptdoctor.against.padding import padded
from ckptdoctor.match.published import llama_cpp
from ckptdoctor.match.published.catalogue import PUBLISHED
from ckptdoctor.match.published.table import (
    GROUPED,
    KEYS,
    QUERIES,
    ROWS,
    SAME,
    STACKED,
    TURNED,
    TURNED_ROWS,
    Row,
)
from ckptdoctor.match.shapes.projections import HEAD_SIZES, QKV, rows
from ckptdoctor.noun import noun

_HEADS = (64, 128, 80, 96, 256, 32, 16, 48, 112, 160, 192, 8, 4, 2)  # rows of a head, where no metadata says it
_ANY = "{}"
_KNOWN = (SAME, TURNED, ROWS, GROUPED, TURNED_ROWS, QUERIES, KEYS, STACKED)
_MOST_PARTS = 4096  # tensors that are one on the other side


@noun
class Guess:
    """Links that would account for all elements of their tensors. ``told`` says why it would be wrong to be so."""

    links: tuple[Link, ...]
    told: str = ""


@noun(slots=False)
class Side:
    """The tensors of one side by their names, and what the metadata of GGUF says of the model."""

    tensors: Mapping[str, Elements]
    metadata: Mapping[str, str]

    @cached_property
    def endings(self) -> dict[str, list[str]]:
        """The names by each of their ends that begin at a token."""
        found: dict[str, list[str]] = {}
        for name in self.tensors:
            for end in _ends(name):
                found.setdefault(end, []).append(name)
        return found

    @cached_property
    def architecture(self) -> str:
        """What GGUF calls the model."""
        return self.metadata.get("general.architecture", "")

    def named(self, ending: str) -> str | None:
        """Return the tensor whose name ends so, where only one does or one is just that."""
        if ending in self.tensors:
            return ending
        found = self.endings.get(ending, [])
        return found[0] if len(found) == 1 else None

    def head(self, key: str, rows: int) -> int:
        """Return how many rows a head of queries or keys has, where metadata says it; 0 where it does not."""
        name = "head_count_kv" if ".attn_k." in key or ".attn_v." in key else "head_count"
        told = self.metadata.get(f"{self.architecture}.attention.{name}")
        told = told or self.metadata.get(f"{self.architecture}.attention.head_count", "")
        heads = int(told) if told.isdigit() else 0
        return rows // heads if heads and rows % heads == 0 else 0


def _ends(name: str) -> Iterator[str]:
    yield name
    at = name.find(".")
    while at >= 0:
        yield name[at + 1 :]
        at = name.find(".", at + 1)


def guesses(name: str, source: Side, export: Side) -> Iterator[Guess]:
    """Yield where this tensor of the source may be, the most probable place first."""
    seen: set[tuple[Link, ...]] = set()
    for each in _all(name, source, export):
        if each.links not in seen:
            seen.add(each.links)
            yield each


def _all(name: str, source: Side, export: Side) -> Iterator[Guess]:
    same = _same_name(name, export)
    if same is not None:
        yield from _one_to_one(source.tensors[name], export.tensors[same], [AS_IS], export, source)
    for row, ours, theirs in _rows(name, source, export):
        yield from _by_row(row, ours, theirs, source, export)


def _same_name(name: str, export: Side) -> str | None:
    """Return the tensor of this name; one of the two, or both, may have something before it."""
    for end in _ends(name):
        found = export.named(end)
        if found is not None and (end in (name, found) or ("." in end and not contradict(name, found))):
            return found
    return None


def _rows(name: str, source: Side, export: Side) -> Iterator[tuple[Row, list[str], list[str]]]:
    """Yield the rows of published layouts that this tensor is in, with the names there are on both sides."""
    for end in _ends(name):
        for row, forwards in _index().get(generic(end), ()):
            ours, theirs = (row.one, row.other) if forwards else (row.other, row.one)
            numbers = _numbers_in(end, ours)
            if numbers is None:
                continue
            if row.how == STACKED:  # the last number is that of an expert, of which all belong together
                numbers = numbers[: min(each.count(_ANY) for each in (*ours, *theirs))]
            mine = _filled(ours, numbers, source, name[: len(name) - len(end)])
            its = _filled(theirs, numbers, export, None)
            if mine and its and name in mine:
                yield Row(ours, theirs, row.how), mine, its


def _numbers_in(end: str, patterns: Sequence[str]) -> tuple[str, ...] | None:
    for each in patterns:
        found = re.fullmatch(re.escape(each).replace(re.escape(_ANY), r"(\d+)"), end)
        if found is not None:
            return found.groups()
    return None


def _filled(patterns: Sequence[str], numbers: Sequence[str], side: Side, lead: str | None) -> list[str]:
    """Return the names of a row on one side; of experts those of all numbers. Empty where one of them is missing."""
    found: list[str] = []
    for each in patterns:
        missing = each.count(_ANY) - len(numbers)
        if missing <= 0:
            names = [_put(each, numbers[: each.count(_ANY)])]
        else:
            names = []
            while len(names) < _MOST_PARTS and _there(_put(each, [*numbers, str(len(names))]), side, lead):
                names.append(_put(each, [*numbers, str(len(names))]))
        there = [_there(one, side, lead) for one in names]
        if not there or None in there:
            return []
        found += [one for one in there if one is not None]
    return found


def _there(name: str, side: Side, lead: str | None) -> str | None:
    if lead is not None:
        return lead + name if lead + name in side.tensors else None
    return side.named(name)


def _put(pattern: str, numbers: Sequence[str]) -> str:
    for each in numbers:
        pattern = pattern.replace(_ANY, each, 1)
    return pattern


def generic(key: str) -> str:
    """Return a key with its numbers left open."""
    return re.sub(r"(?<![^.])\d+(?![^.])", _ANY, key)


@lru_cache(1)
def _index() -> dict[str, list[tuple[Row, bool]]]:
    """Return every row by each of its keys without numbers, and whether the key is on its first side."""
    found: dict[str, list[tuple[Row, bool]]] = {}
    every = [*llama_cpp.LLAMA_CPP, *[each for table in PUBLISHED for each in table.rows]]
    for row in every:
        if row.how in _KNOWN:
            for keys, forwards in ((row.one, True), (row.other, False)):
                for key in dict.fromkeys(map(generic, keys)):
                    found.setdefault(key, []).append((row, forwards))
    return found


# ---- what a row makes of its tensors


def _by_row(row: Row, ours: Sequence[str], theirs: Sequence[str], source: Side, export: Side) -> Iterator[Guess]:
    mine = [source.tensors[each] for each in ours]
    its = [export.tensors[each] for each in theirs]
    if len(mine) == len(its) == 1:
        orders = {TURNED: [TRANSPOSED], QUERIES: [PAIRED, HALVED], KEYS: [PAIRED, HALVED]}.get(row.how, [AS_IS])
        yield from _one_to_one(mine[0], its[0], orders, export, source)
    elif len(mine) == 1 or len(its) == 1:
        links = _joined(mine, its, row.how in (TURNED, TURNED_ROWS))
        if links:
            yield Guess(links)
        if len(mine) <= 3 and len(its) == 1:
            for order in _other_orders(mine):
                links = _joined(order, its, row.how in (TURNED, TURNED_ROWS))
                if links:
                    yield Guess(links, f"its parts are there in another order: {', '.join(_short(order))}")


def _other_orders(parts: Sequence[Elements]) -> Iterator[Sequence[Elements]]:
    from itertools import permutations

    yield from list(permutations(parts))[1:]


def _short(parts: Iterable[Elements]) -> list[str]:
    return [each.name.rsplit(".", 2)[-2] if each.name.count(".") else each.name for each in parts]


def _one_to_one(source: Elements, export: Elements, orders: Sequence[str], there: Side, here: Side) -> Iterator[Guess]:
    """Yield what is right for two tensors, and then what would be wrong."""
    gguf = bool(there.architecture)
    right: list[Link] = []
    wrong: list[tuple[Link, str]] = []
    heads = _heads(source, export, there, here)
    rotary = gguf and export.name.endswith(llama_cpp.ROTARY_KEYS)
    shift = gguf and export.name.endswith(llama_cpp.SHIFTED_KEYS)
    known = there.architecture in llama_cpp.PERMUTED | llama_cpp.SHIFTED | llama_cpp.PLAIN
    for order in orders:
        if order in (PAIRED, HALVED):
            right += _linked(source, export, order, heads)
        else:
            straight = whole(source, export, order)
            permuted = _linked(source, export, PAIRED, heads) if rotary else []
            shifted = whole(source, export, shifted=True) if shift else None
            if rotary and there.architecture in llama_cpp.PERMUTED:
                right += permuted
                why = f"its rows are in the order of the source; llama.cpp expects them in pairs ({there.architecture})"
                wrong += [(straight, why)] if straight is not None else []
            elif shift and there.architecture in llama_cpp.SHIFTED:
                right += [shifted] if shifted is not None else []
                why = f"one was not added to it, which llama.cpp expects ({there.architecture})"
                wrong += [(straight, why)] if straight is not None else []
            else:
                right += [straight] if straight is not None else []
                extra = [*permuted, *([shifted] if shifted is not None else [])]
                if known:
                    wrong += [
                        (each, f"it was changed as if it were of another architecture: {described(each)}")
                        for each in extra
                    ]
                else:
                    right += extra
    some = padded(source, export)
    for link in [*right, *([some] if some is not None else [])]:
        yield Guess((link,))
    for link, told in wrong:
        yield Guess((link,), told)
    for link in _anything(source, export, heads):
        if link not in right:
            yield Guess((link,), f"its values are {described(link)}, which its name does not say")


def described(link: Link) -> str:
    """Return what a link does to elements, for people."""
    if link.order == TRANSPOSED:
        return "transposed"
    if link.head:
        kind = "pairs" if link.order == PAIRED else "halves"
        return f"in the order of rotary {kind}, {link.head} rows a head"
    return "one more than in the source" if link.shifted else "as they are"


def _heads(source: Elements, export: Elements, there: Side, here: Side) -> list[int]:
    rows = source.shape[0] if source.shape else 0
    told = there.head(export.name, rows) or here.head(source.name, rows)
    return [told] if told else [each for each in _HEADS if rows and rows % each == 0]


def _linked(source: Elements, export: Elements, order: str, heads: Iterable[int]) -> list[Link]:
    return [link for head in heads if (link := whole(source, export, order, head)) is not None]


def _anything(source: Elements, export: Elements, heads: Sequence[int]) -> Iterator[Link]:
    straight = whole(source, export)
    if straight is not None:
        yield straight
    turned = whole(source, export, TRANSPOSED)
    if turned is not None and not (export.packed and export.matrix is None):
        yield turned
    for order in (PAIRED, HALVED):
        yield from _linked(source, export, order, dict.fromkeys([*heads, *[h for h in _HEADS if source.shape]]))
    shifted = whole(source, export, shifted=True)
    if shifted is not None and len(source.shape) == 1:
        yield shifted


def _joined(mine: Sequence[Elements], its: Sequence[Elements], turned: bool) -> tuple[Link, ...]:
    """Return the links of tensors that are one on the other side: one after another along its first dimension.

    ``turned``: what is one has its inputs first, so that its parts follow each other along its second dimension.
    """
    one, many, fused = (its[0], mine, True) if len(its) == 1 else (mine[0], its, False)
    if sum(each.count for each in many) != one.count:
        return ()
    links, at = [], 0
    for each in many:
        source, export = (each, one) if fused else (one, each)
        if turned and len(each.shape) > 1:
            link = _turned_part(source, export, at, fused)
            at += each.shape[0]
        else:
            place = ((0, 0), (at, 0)) if fused else ((at, 0), (0, 0))
            unit = max(export.unit, source.unit)
            aligned = not (at % unit or each.count % unit)
            link = Link(source.name, export.name, each.count, AS_IS, *place) if aligned else None
            at += each.count
        if link is None:
            return ()
        links.append(link)
    return tuple(links)


def _turned_part(source: Elements, export: Elements, at: int, fused: bool) -> Link | None:
    part, all_of_it = (source, export) if fused else (export, source)
    if part.matrix is None or all_of_it.matrix is None or part.matrix[1] != all_of_it.matrix[0]:
        return None
    if fused:
        box = (part.matrix[1], part.matrix[0])
        if export.packed:
            return None
        return Link(source.name, export.name, source.count, TRANSPOSED, (0, 0), (0, at), box=box)
    return Link(source.name, export.name, export.count, TRANSPOSED, (0, at), (0, 0), box=part.matrix)


# ---- names that nothing is known of


_QUERY = frozenset({"q", "q_proj", "query", "wq", "to_q", "attn_q", "queries"})
_KEY = frozenset({"k", "k_proj", "key", "wk", "to_k", "attn_k", "keys"})
_VALUE = frozenset({"v", "v_proj", "value", "wv", "to_v", "attn_v", "values"})
_OUT = frozenset({"o", "o_proj", "out", "out_proj", "wo", "to_out", "attn_output", "output"})
_GATE = frozenset({"gate", "gate_proj", "w1", "ffn_gate"})
_UP = frozenset({"up", "up_proj", "w3", "ffn_up"})
_DOWN = frozenset({"down", "down_proj", "w2", "ffn_down"})
_MEGATRON = "linear_qkv"  # of which Megatron-Core takes the rows group by group, and in no other order
_ROLES = (_QUERY, _KEY, _VALUE, _OUT, _GATE, _UP, _DOWN)


def contradict(one: str, other: str) -> bool:
    """Return whether two names speak of different things: other numbers, another leaf, queries here and keys there."""
    tokens = one.lower().split("."), other.lower().split(".")
    numbers = [[each for each in side if each.isdigit()] for side in tokens]
    if numbers[0] != numbers[1]:
        return True
    leaves = [side[-1] for side in tokens]
    if {"weight", "bias"} == set(leaves):
        return True
    roles = [{number for number, role in enumerate(_ROLES) if role & set(side)} for side in tokens]
    return bool(roles[0] and roles[1] and roles[0] != roles[1])


def in_one(left: Sequence[str], side: Mapping[str, Elements]) -> Iterator[tuple[str, ...]]:
    """Yield queries, keys and values of one layer, or its gate and up projections, whose names are among these."""
    parts = [(name, name.rsplit(".", 2)) for name in left if name.count(".") >= 2]
    parts.sort(key=lambda pair: (pair[1][0], pair[1][2]))
    for _, group in groupby(parts, key=lambda pair: (pair[1][0], pair[1][2])):
        found = list(group)
        for roles in ((_QUERY, _KEY, _VALUE), (_GATE, _UP)):
            named = [next((name for name, tokens in found if tokens[1].lower() in role), None) for role in roles]
            if None not in named:
                yield tuple([each for each in named if each is not None])


def joined(mine: Sequence[Elements], its: Sequence[Elements]) -> Iterator[tuple[Link, ...]]:
    """Yield the ways in which tensors can be one on the other side: one after another, or group by group."""
    grouped = list(_in_groups(mine, its))
    module = (its[0] if len(its) == 1 else mine[0]).name.split(".")[-2:-1]
    for turned in (False, True) if module != [_MEGATRON] or not grouped else ():
        links = _joined(mine, its, turned)
        if links:
            yield links
    if not QKV.fused.isdisjoint(module):
        yield from grouped


def _in_groups(mine: Sequence[Elements], its: Sequence[Elements]) -> Iterator[tuple[Link, ...]]:
    """Yield the links of queries, keys and values that are one tensor, for each size that a head may have.

    The queries of some heads are followed by the key and the value that they share, and so on: as in Megatron and
    Falcon, and in GPT-NeoX and BLOOM, where each head has its own.
    """
    one, many, fused = (its[0], mine, True) if len(its) == 1 else (mine[0], its, False)
    if len(many) != 3 or not all(each.shape and each.shape[1:] == one.shape[1:] for each in (one, *many)):
        return
    queries, keys, values = [each.shape[0] for each in many]
    row = row_size(one)
    if keys != values or queries + 2 * keys != one.shape[0] or not keys or queries % keys:
        return
    if any(row % each.unit for each in (one, *many)):
        return
    for size in HEAD_SIZES:
        if keys % size or keys == size:  # one group alone has all queries, all keys, all values
            continue
        links = []
        ranges = rows("grouped", queries // size, keys // size, size)
        for part, each in zip("qkv", many, strict=True):
            at = 0
            for start, stop in ranges[part]:
                places = ((at * row, 0), (start * row, 0))
                ends = (each.name, one.name, places) if fused else (one.name, each.name, places[::-1])
                links.append(Link(ends[0], ends[1], (stop - start) * row, AS_IS, *ends[2]))
                at += stop - start
        yield tuple(links)
