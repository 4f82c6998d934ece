"""What the file is, and what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.report.contents import other_contents, state_dict_row
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.markup import coordinate, element, lines, name, section, text
from ckptdoctor.report.html.payload import bounded
from ckptdoctor.report.numbers import amount, count, plural, size
from ckptdoctor.report.summary import summarise
from ckptdoctor.wording import first_few, percent

_NAMED = 6  # dtypes or devices in a list
_ROWS = 40  # state dicts
_OTHERS = 24
_WIDTH = 600.0


def tiles(examined: Examined) -> str:
    """The figures to see first."""
    return f'<dl class="tiles">{"".join(_tiles(examined))}</dl>'


def _tiles(examined: Examined) -> Iterator[str]:
    report = examined.report
    yield _verdict(examined)
    if report.container is not None:
        yield _tile("Size", size(report.container.size), report.container.format or "unknown contents")
    if examined.checkpoint is None:
        return
    figures = summarise(examined.checkpoint)
    noun = "Parameters" if figures.has_model else "Elements"
    tied = f", {plural(len(examined.tied), 'tied tensor')}" if examined.tied else ""
    yield _tile(noun, amount(figures.parameters), count(figures.parameters) + tied)
    yield _tile("Tensors", count(figures.tensors), f"in {plural(len(examined.checkpoint.state_dicts), 'state dict')}")
    for label, found in (("Element type", figures.dtypes), ("Device tag", figures.devices)):
        if len(found) == 1:
            yield _tile(label, next(iter(found)), "all tensors")
        elif found:
            (first, _), *rest = found.items()
            yield _tile(label, first, ", ".join([f"{each} {number:,}" for each, number in rest[:2]]))


def _verdict(examined: Examined) -> str:
    tally = Counter(finding.severity for finding in examined.report.findings)
    if not tally:
        return _tile("Findings", "none", "of what was examined", "good")
    worst = max(tally, key=lambda each: each.rank)
    nouns = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "remark"}
    told = [plural(tally[each], noun) for each, noun in nouns.items() if tally[each]]
    return _tile("Findings", told[0], ", ".join(told[1:]) or "and nothing else", worst.value)


def _tile(label: str, value: str, about: str, kind: str = "") -> str:
    inside = f"<dt>{text(label)}</dt><dd>{text(value, 40)}<small>{text(about, 80)}</small></dd>"
    return element("div", inside, class_=kind or None)


def contents(examined: Examined) -> str:
    """The state dicts, everything beside them, and the bytes of each dtype."""
    checkpoint = examined.checkpoint
    if checkpoint is None:
        return ""
    rows = [_row(*state_dict_row(checkpoint.tree, each)) for each in checkpoint.state_dicts[:_ROWS]]
    rest = len(checkpoint.state_dicts) - _ROWS
    if rest > 0:
        rows.append(f'<tr><td colspan="5">{plural(rest, "more state dict")}</td></tr>')
    others = list(other_contents(checkpoint))
    shown = first_few(others, _OTHERS)
    head = (
        '<thead><tr><th>what</th><th>under</th><th class="n">tensors</th><th class="n">bytes</th><th></th></tr></thead>'
    )
    table = (
        f'<div class="scroll"><table class="plain">{head}<tbody>{"".join(rows)}</tbody></table></div>' if rows else ""
    )
    beside = "".join([f"<li>{name(each)}</li>" for each in shown])
    listed = f'<h3>Beside the tensors</h3><ul class="chips">{beside}</ul>' if beside else ""
    return section("contents", "What is in it", lines((table, listed, _dtypes(examined))))


def _row(role: str, where: str, tensors: str, nbytes: str, remark: str) -> str:
    number = tensors.split(" ")[0]
    return (
        f'<tr><th scope="row">{text(role)}</th><td class="key">{name(where)}</td><td class="n">{text(number)}</td>'
        f'<td class="n">{text(nbytes)}</td><td class="soft">{text(remark)}</td></tr>'
    )


def _dtypes(examined: Examined) -> str:
    """How the bytes are shared among dtypes: one bar, and its key."""
    totals: Counter[str] = Counter()
    for number, tensor in enumerate(examined.tensors):
        if number not in examined.tied:
            totals[tensor.dtype.name] += bounded(tensor.nbytes)
    whole = sum(totals.values())
    if len(totals) < 2 or not whole:
        return ""
    bars, key, at = [], [], 0.0
    for number, (dtype, nbytes) in enumerate(totals.most_common(_NAMED)):
        wide = _WIDTH * nbytes / whole
        told = f"{dtype}: {size(nbytes)}, {percent(nbytes, whole)}"
        place = {"x": coordinate(at), "width": coordinate(max(wide - 1, 0.5))}
        bars.append(element("rect", f"<title>{text(told)}</title>", **place, height=14, rx=3, class_=f"f{number % 8}"))
        key.append(f'<span><i class="f{number % 8}"></i>{text(told)}</span>')
        at += wide
    rest = len(totals) - _NAMED
    if rest > 0:
        key.append(f"<span>{rest} more</span>")
    drawing = element("svg", "".join(bars), viewBox=f"0 0 {_WIDTH:.0f} 14", class_="stack", preserveAspectRatio="none")
    return f'<h3>Bytes by element type</h3>{drawing}<p class="legend">{"".join(key)}</p>'
