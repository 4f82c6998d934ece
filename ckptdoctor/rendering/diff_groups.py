"""Puts a difference in a few lines, whatever its size: what is the same, and each way of being different."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.differences import Absent, Difference, Numbers, Other, Pair, Single, Tie, Verdict
from ckptdoctor.noun import noun
from ckptdoctor.rendering.contents import value
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.grouping import grouped, in_short, pattern, shortened
from ckptdoctor.rendering.numbers import plain, shape
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import beyond

NAME = 64  # characters of a name or pattern
_MOST = 12  # lines of one kind before the rest is counted
_ROWS = 16  # modules in a table
_PATTERNS = 3  # of one line
_LOST = "in missing or damaged files of {}"
_COMPARED = 5000  # names for which exact patterns are looked for

Kind = TypeVar("Kind", bound=Hashable)


@noun
class DiffGroup:
    """One line: ``label`` is what these differ in, ``count`` how many tensors (0: no tensors), ``text`` which."""

    label: str
    count: int
    text: str
    remark: str = ""


@noun
class DiffRow:
    """A module, or a tensor: how many of its tensors changed, and how far all of them are apart."""

    name: str
    changed: int
    tensors: int
    numbers: Numbers


def groups(found: Difference, every: bool = False) -> list[DiffGroup]:
    """Groups of what is the same, and of what is not; ``every`` names each tensor and value."""
    made = [*_same(found), *_places(found), *_renamed(found, every)]
    for label, chosen, kind in _KINDS:
        made += _by_kind(label, [pair for pair in found.pairs if chosen(pair)], kind, every)
    made += _values(found, every)
    made += _ties(found, every)
    made += _singles("only in A", found.removed, every, _LOST.format("B"))
    made += _singles("only in B", found.added, every, _LOST.format("A"))
    made += _others(found.others, every)
    return made


def rows(found: Difference, every: bool = False) -> list[DiffRow]:
    """Return modules with changed tensors, as deep as there is room; with ``every`` each changed tensor."""
    measured = [pair for pair in found.pairs if pair.values is not None and pair.values.numbers is not None]
    changed = [pair for pair in measured if pair.changed]
    if not changed:
        return []
    if every:
        return [DiffRow(pair.name, 1, 1, _numbers(pair)) for pair in changed]
    totals, apart = [pair.name for pair in found.pairs], [pair.name for pair in changed]
    depth = 1
    while len({_module(name, depth + 1) for name in apart}) <= _ROWS and depth < max(map(_depth, apart)):
        depth += 1
    counts, changes = _tally(totals, depth), _tally([pair.name for pair in found.pairs if pair.changed], depth)
    sums: dict[str, list[Numbers]] = {}
    for pair in changed:
        sums.setdefault(_module(pair.name, depth), []).append(_numbers(pair))
    made = [DiffRow(name, changes[name], counts[name], sum(each, Numbers())) for name, each in sums.items()]
    return sorted(made, key=lambda row: -_far(row.numbers))[:_ROWS] if len(made) > _ROWS else made


def short(names: Sequence[str], limit: int = NAME) -> str:
    """Return names in a few patterns of at most ``limit`` characters, safe to print; paths keep their slashes."""
    paths = all("/" in name for name in names)
    dotted = [name.replace(".", "\0").replace("/", ".") for name in names] if paths else list(names)
    shown = _exactly(dotted) or [pattern(dotted)]
    if paths:
        shown = [each.replace("..", "\1").replace(".", "/").replace("\1", "..").replace("\0", ".") for each in shown]
    return ", ".join([shortened(escape(each), limit) for each in shown])


def _exactly(names: Sequence[str]) -> list[str]:
    """Patterns that stand for exactly these names; none where it would take many."""
    if len(names) > _COMPARED:
        return []
    found = list(islice(grouped([(name, name) for name in names]), _PATTERNS + 1))
    return [before for before, _, _ in found] if len(found) <= _PATTERNS else []


def _numbers(pair: Pair) -> Numbers:
    assert pair.values is not None and pair.values.numbers is not None
    return pair.values.numbers


def _far(numbers: Numbers) -> float:
    """Return the distance, for an order; what no number tells comes first."""
    return numbers.relative if numbers.relative == numbers.relative and not numbers.odd else float("inf")


def _depth(name: str) -> int:
    return max(1, name.count("."))


def _module(name: str, depth: int) -> str:
    """Return the module that holds a tensor, so many levels deep; a path outside of modules up to its last step."""
    if "/" in name:
        return name.split("/")[0]
    tokens = name.split(".")
    return ".".join(tokens[: max(1, min(depth, len(tokens) - 1))])


def _tally(names: Iterable[str], depth: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        module = _module(name, depth)
        counts[module] = counts.get(module, 0) + 1
    return counts


def _same(found: Difference) -> Iterator[DiffGroup]:
    same = [pair for pair in found.pairs if pair.alike and not (pair.renamed or pair.retagged)]
    close = sum([pair.values is not None and pair.values.verdict is not Verdict.EQUAL for pair in same])
    if same:
        told = "equal, bit for bit" if not close else "equal, bit for bit or within the tolerances"
        yield DiffGroup("same", len(same), "", told if found.compared else "same name, shape and dtype")


def _places(found: Difference) -> Iterator[DiffGroup]:
    for each in found.moved:
        yield DiffGroup("moved", 0, f"{escape(show_path(each.a))} → {escape(show_path(each.b))}", each.role.value)


def _renamed(found: Difference, every: bool) -> Iterator[DiffGroup]:
    pairs = [pair for pair in found.pairs if pair.renamed]
    ways = {
        "": [pair for pair in pairs if pair.sure and not pair.by_content],
        "a guess: names and shapes allow others": [pair for pair in pairs if not pair.sure],
        "the same contents": [pair for pair in pairs if pair.by_content],
    }
    for remark, each in ways.items():
        names = [(pair.name, pair.name_b) for pair in each]
        lines = names if every or not names else _in_short(names)
        remark = remark or escape(", ".join(found.steps))
        for number, (old, new) in enumerate(lines):
            text = f"{shortened(escape(old), NAME)} → {shortened(escape(new), NAME)}" if new else "…"
            yield DiffGroup(
                "renamed", 1 if every else len(each) if number == 0 else 0, text, remark if not number else ""
            )


def _in_short(names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Renamings in few words; where nearly each is one of its own there are none but the patterns of both sides."""
    if len({_differing(*each) for each in names}) > _MOST:
        return [(pattern([old for old, _ in names]), pattern([new for _, new in names]))]
    return in_short(names)


def _differing(old: str, new: str) -> tuple[str, str]:
    """Return the parts of two names that differ, without what they end in."""
    before, after = old.split("."), new.split(".")
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    while before and after and before[0] == after[0]:
        del before[0], after[0]
    return ".".join(before), ".".join(after)


def _shapes(pair: Pair) -> str:
    perhaps = ", perhaps transposed" if pair.perhaps_transposed and pair.values is None else ""
    return f"{shape(pair.a.shape)} → {shape(pair.b.shape)}{perhaps}"


def _dtypes(pair: Pair) -> str:
    return f"{pair.a.dtype.name} → {pair.b.dtype.name}"


def _devices(pair: Pair) -> str:
    return f"{escape(pair.a.device)} → {escape(pair.b.device)}"


def _orders(pair: Pair) -> str:
    return f"{order(pair.a)} → {order(pair.b)} in memory, the same elements"


def _made(pair: Pair) -> str:
    one, other = (each.subclass or each.layout for each in (pair.a, pair.b))
    return f"{escape(one)} → {escape(other)}"


_KINDS: tuple[tuple[str, Callable[[Pair], bool], Callable[[Pair], str]], ...] = (
    ("reshaped", lambda pair: pair.reshaped and not pair.transposed, _shapes),
    ("transposed", lambda pair: pair.transposed, _shapes),
    ("recast", lambda pair: pair.recast, _dtypes),
    ("retagged", lambda pair: pair.retagged, _devices),
    ("remade", lambda pair: pair.remade, _made),
    ("relaid", lambda pair: pair.relaid, _orders),
)

_WORDS = {
    Verdict.ROUNDED: ("converted", "exactly as converted"),
    Verdict.CLOSE: ("close", "within the tolerances"),
    Verdict.CHANGED: ("changed", ""),
    Verdict.OTHER_BYTES: ("changed", "different bytes"),
    Verdict.NOT_COMPARED: ("unknown", "not compared"),
}


def _values(found: Difference, every: bool) -> Iterator[DiffGroup]:
    for verdict, (label, told) in _WORDS.items():
        pairs = [pair for pair in found.pairs if pair.values is not None and pair.values.verdict is verdict]
        if verdict is Verdict.NOT_COMPARED:  # another shape is told already
            pairs = [pair for pair in pairs if not pair.reshaped]
        yield from _by_kind(label, pairs, lambda pair, told=told: _why(pair, told), every)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def _why(pair: Pair, told: str) -> str:
    why = pair.values.why if pair.values is not None else ""
    return f"{told}: {escape(why)}" if why else told


def _by_kind(label: str, pairs: Sequence[Pair], kind: Callable[[Pair], str], every: bool) -> Iterator[DiffGroup]:
    if every:
        yield from (DiffGroup(label, 1, _name(pair.name), kind(pair)) for pair in pairs)
        return
    by_kind: dict[str, list[str]] = {}
    for pair in pairs:
        by_kind.setdefault(kind(pair), []).append(pair.name)
    yield from _some(DiffGroup(label, len(names), short(names), told) for told, names in by_kind.items())


def _ties(found: Difference, every: bool) -> Iterator[DiffGroup]:
    """Ties that are there on one side only."""
    made = [_tie(tie) for tie in found.ties]
    yield from made if every else _some(made)


def _tie(tie: Tie) -> DiffGroup:
    here, there = ("A", "B") if tie.side == "a" else ("B", "A")
    ways = []
    if tie.apart:
        ways.append(f"separate in {there}" + ("" if tie.counts else ", whose container holds no ties"))
    if tie.missing:
        ways.append(f"{there} lacks {short(tie.missing)}")
    names = (*tie.names, *tie.missing)
    text = " = ".join([_name(name) for name in names]) if len(names) <= _PATTERNS else short(names)
    return DiffGroup(f"tied in {here}", len(names), text, "; ".join(ways))


def _singles(label: str, singles: Sequence[Single], every: bool, why: str) -> Iterator[DiffGroup]:
    """Yield the tensors of one side alone; ``why`` is said of those that the other's index has in files not read."""
    if every:
        told = [(each, f"{shape(each.tensor.shape)} {each.tensor.dtype.name}") for each in singles]
        yield from (
            DiffGroup(label, 1, _name(each.name), f"{text}, {why}" if each.lost else text) for each, text in told
        )
        return
    by_place: dict[tuple[str, str], list[str]] = {}
    for each in singles:
        place = "" if each.weights else each.name.split("/")[0]
        by_place.setdefault((place, why if each.lost else ""), []).append(each.name)
    yield from _some(DiffGroup(label, len(names), short(names), remark) for (_, remark), names in by_place.items())


def _others(others: Sequence[Other], every: bool) -> Iterator[DiffGroup]:
    made = (DiffGroup("other", 0, f"{_name(each.name)}  {_held(each.a)} → {_held(each.b)}") for each in others)
    yield from made if every else _some(made)


def _held(node: object) -> str:
    return "absent" if isinstance(node, Absent) else value(node)  # type: ignore[arg-type]  # all else is a node


def _name(name: str) -> str:
    return abridged(escape(name), NAME)


def _some(made: Iterable[DiffGroup]) -> Iterator[DiffGroup]:
    """Yield the first lines of a kind; the others are counted."""
    every = list(made)
    yield from every[:_MOST]
    rest = every[_MOST:]
    if rest:
        yield DiffGroup(
            rest[0].label, sum(each.count for each in rest), beyond(len(rest), "line", before="… ", after=": --all")
        )


# ---- in which order the elements of a tensor lie in memory, in a word that torch's users know


_CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}  # torch.memory_format


def order(tensor: Tensor) -> str:
    """Return ``contiguous``, ``channels_last``, ``transposed``, or the strides."""
    if is_contiguous(tensor):
        return "contiguous"
    rank = len(tensor.shape)
    if rank in _CHANNELS_LAST and _lies(tensor, (0, *range(2, rank), 1)):
        return _CHANNELS_LAST[rank]
    if rank == 2 and _lies(tensor, (1, 0)):
        return "transposed"
    return f"strides ({', '.join(map(plain, tensor.stride))})"


def _lies(tensor: Tensor, dimensions: tuple[int, ...]) -> bool:
    """Return whether the elements are without gaps, in this order of dimensions, from the slowest to the fastest."""
    wanted = contiguous_stride(tuple([tensor.shape[each] for each in dimensions]))
    return all(
        tensor.shape[each] == 1 or tensor.stride[each] == want for each, want in zip(dimensions, wanted, strict=True)
    )
