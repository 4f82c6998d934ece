"""Labels the facts about a line of a comparison. Text from the files is escaped here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.differences import Absent, Numbers, Other, Pair, Tie, Verdict
from ckptdoctor.rendering.contents import value
from ckptdoctor.rendering.diff_groups import short
from ckptdoctor.rendering.diff_text import figures
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import amount_of, count, plural, shape, size
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.models.comparison import ComparedEntries
from ckptdoctor.tui.models.facts import Fact
from ckptdoctor.tui.models.side_by_side import ComparisonLine, EntryLine, FoldLine, HeadLine, OtherLine
from ckptdoctor.wording import and_more, beyond, percent

_NAMED = 4  # tied names that are written out
_SHORTENED = 5_000  # names that are brought into patterns while somebody waits
_NAME = 120

_TOLD = {
    Verdict.EQUAL: "equal, bit for bit",
    Verdict.ROUNDED: "exactly as converted",
    Verdict.CLOSE: "within the tolerances",
    Verdict.CHANGED: "changed",
    Verdict.OTHER_BYTES: "different bytes",
    Verdict.NOT_COMPARED: "not compared",
}


def title(comparison: ComparedEntries, line: ComparisonLine) -> str:
    """Return the title of the line."""
    if isinstance(line, EntryLine):
        pair = comparison.pair(line.entry)
        if pair is not None and pair.renamed:
            return f"{_name(pair.name)} → {_name(pair.name_b)}"
        return _name(comparison.name(line.entry))
    if isinstance(line, HeadLine):
        return _name(comparison.groups[line.group])
    if isinstance(line, FoldLine):
        return same(comparison, len(line.entries))
    return _name(comparison.found.others[line.number].name) if line.number >= 0 else "other values"


def same(comparison: ComparedEntries, number: int) -> str:
    """Return the words for so many tensors that do not differ, as far as they were compared."""
    if comparison.found.compared:
        return f"{plural(number, 'tensor')} the same"
    return f"{plural(number, 'tensor')} alike by name, shape and dtype"


def differ(number: int) -> str:
    """Return the verb for so many: ``differs`` or ``differ``."""
    return "differs" if number == 1 else "differ"


def differing(line: HeadLine, of: str = "") -> str:
    """Return how many tensors of a module differ in more than their names, and how many in these alone.

    ``of`` goes behind the first number.
    """
    changed = line.differing - line.renamed
    if not changed and line.renamed:
        return f"{count(line.renamed)} renamed"
    renamed = f", {count(line.renamed)} renamed" if line.renamed else ""
    return f"{count(changed)}{of} {differ(changed)}{renamed}"


def facts(comparison: ComparedEntries, line: ComparisonLine) -> Iterator[Fact]:
    """Yield the facts about the line, most important first."""
    if isinstance(line, HeadLine):
        yield from _head(comparison, line)
    elif isinstance(line, FoldLine):
        yield from _names(comparison, line.entries)
    elif isinstance(line, OtherLine):
        if line.number >= 0:
            yield from _other(comparison.found.others[line.number])
        else:
            others = len(comparison.found.others)
            yield "", f"{plural(others, 'value')} that {differ(others)}"
    else:
        yield from _entry(comparison, line.entry)


def _entry(comparison: ComparedEntries, entry: int) -> Iterator[Fact]:
    pair = comparison.pair(entry)
    if pair is None:
        one, other = comparison.tensors(entry)
        yield "A", _tensor(one) if one is not None else "missing"
        yield "B", _tensor(other) if other is not None else "missing"
    else:
        yield "A", _tensor(pair.a)
        yield "B", _tensor(pair.b)
        yield from _values(comparison, pair)
        yield from _name_told(comparison, pair)
    names = [comparison.name(entry), pair.name_b if pair is not None else ""]
    for name in dict.fromkeys(names):
        yield from _ties(comparison.ties.get(name, ()), name)


def _tensor(tensor: Tensor) -> str:
    pieces = [f"{tensor.dtype.name} {shape(tensor.shape)}", size(tensor.nbytes), escape(tensor.device)]
    if tensor.layout != "strided" or tensor.subclass is not None:
        pieces.append(escape(tensor.subclass or tensor.layout))
    elif is_contiguous(tensor):
        pieces.append("contiguous")
    else:
        pieces.append(f"stride {shape(tensor.stride)}")
    return " · ".join(pieces)


def _values(comparison: ComparedEntries, pair: Pair) -> Iterator[Fact]:
    values = pair.values
    if values is None:
        yield "values", "not compared yet" if comparison.found.compared else "not compared: v compares them"
        return
    told = _TOLD[values.verdict]
    numbers = values.numbers
    if numbers is not None and numbers.changed:
        told += f" · {count(numbers.changed)} of {plural(numbers.elements, 'element')} ({_share(numbers)})"
    if pair.transposed:
        told += " · transposed"
    yield "values", told + (f": {escape(values.why)}" if values.why else "")
    if numbers is not None:
        yield from distances(numbers)


def distances(numbers: Numbers) -> Iterator[Fact]:
    """Yield how far the values are apart, and how many are NaN."""
    largest, mean, relative, cosine = figures(numbers)
    yield "", f"max |Δ| {largest} · mean |Δ| {mean} · rel. L2 {relative} · cosine {cosine}"
    if numbers.nan_a or numbers.nan_b:
        places = f", {count(numbers.odd)} of them on one side only" if numbers.odd else ", in the same places"
        yield "NaN", f"{count(numbers.nan_a)} in A, {count(numbers.nan_b)} in B{places}"


def _share(numbers: Numbers) -> str:
    return percent(numbers.changed, numbers.elements)


def _name_told(comparison: ComparedEntries, pair: Pair) -> Iterator[Fact]:
    if pair.by_content:
        yield "renamed", "identified by its contents, which are the same"
    elif not pair.sure:
        yield "renamed", "a guess: other tensors fit as well"
    elif pair.renamed and comparison.found.steps:
        yield "renamed", abridged(escape(", ".join(comparison.found.steps)), _NAME)


def _ties(ties: Sequence[Tie], name: str) -> Iterator[Fact]:
    """Yield the ties of a tensor with others that only one side has."""
    for tie in ties:
        here, there = ("A", "B") if tie.side == "a" else ("B", "A")
        others = [_name(each) for each in (*tie.names, *tie.missing) if each != name]
        named = and_more(others, _NAMED, spelt=str)
        ways = [f"separate in {there}"] if tie.apart else []
        ways += [f"{there} lacks {plural(len(tie.missing), 'of them', 'of them')}"] if tie.missing else []
        yield "ties", f"tied to {named} in {here}; {', '.join(ways)}"


def _head(comparison: ComparedEntries, line: HeadLine) -> Iterator[Fact]:
    elements = sum([_elements(comparison, entry) for entry in line.entries])
    what = f"{plural(len(line.entries), 'tensor')} · {amount_of(elements, 'element')}"
    yield "", f"{what} · {differing(line)}"
    numbers = comparison.numbers(line.group)
    if numbers.changed:
        yield (
            "values",
            f"{count(numbers.changed)} of {plural(numbers.elements, 'element')} changed ({_share(numbers)})",
        )
        yield from distances(numbers)


def _elements(comparison: ComparedEntries, entry: int) -> int:
    one, other = comparison.tensors(entry)
    tensor = one if one is not None else other
    return tensor.numel if tensor is not None else 0


def _names(comparison: ComparedEntries, entries: Sequence[int]) -> Iterator[Fact]:
    elements = sum([_elements(comparison, entry) for entry in entries[:_SHORTENED]])
    if len(entries) <= _SHORTENED:
        yield "", amount_of(elements, "element")
        yield "", short([comparison.name(entry) for entry in entries], _NAME)
        return
    groups = list(dict.fromkeys([comparison.group_of[entry] for entry in entries]))
    named = [_name(comparison.groups[group]) or "outside any module" for group in groups[:_NAMED]]
    yield "", ", ".join(named) + beyond(len(groups) - _NAMED, "module")


def _other(other: Other) -> Iterator[Fact]:
    for side, node in (("A", other.a), ("B", other.b)):
        yield side, "missing" if isinstance(node, Absent) else value(node)


def _name(name: str) -> str:
    return abridged(escape(name), _NAME)
