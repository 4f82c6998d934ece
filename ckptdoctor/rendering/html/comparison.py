"""Shows the difference to another file: what was added, removed and changed, and how far modules are apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from math import isfinite

from ckptdoctor.differences import Difference, Side, Single
from ckptdoctor.rendering.depth import FROM_ZERO, DepthMap, in_columns, of_difference, short_kinds
from ckptdoctor.rendering.diff_groups import DiffGroup, DiffRow, groups, rows
from ckptdoctor.rendering.diff_text import figures
from ckptdoctor.rendering.html.examined import Examined
from ckptdoctor.rendering.html.markup import coordinate, element, lines, name, section, text
from ckptdoctor.rendering.numbers import amount, count, plural, shape, size
from ckptdoctor.rendering.summary import summarise
from ckptdoctor.wording import beyond

_LETTERS = 60  # of the name of a kind
_COLUMNS = 120  # of layers: neighbours share one where there are more
_MARKS = 5  # below the layers, besides the first
_LIMITS = (1e-4, 1e-3, 1e-2, 1e-1)
_SHADES = ("no change", "up to 0.01 % of the norm", "0.1 %", "1 %", "10 %", "more")
_NAMED = 200  # tensors that only one has


def comparison(examined: Examined) -> str:
    """Return the section; "" where there is one file alone."""
    found = examined.difference
    if found is None:
        return ""
    parts = [
        f'<p class="message">{name(_sentence(found.summary), 1200)}</p>',
        _sides(found),
        _groups(groups(found)),
        _depth(of_difference(found)) if found.compared else "",
        _modules(rows(found)),
        _singles("Only in A", found.removed),
        _singles("Only in B", found.added),
        *[f'<p class="soft">Not examined: {text(note)}</p>' for note in found.unseen[:8]],
    ]
    return section("comparison", "Comparison", lines(parts))


def _sentence(summary: str) -> str:
    return f"{summary[:1].upper()}{summary[1:]}." if summary else ""


def _sides(found: Difference) -> str:
    body = "".join([_side(mark, side) for mark, side in (("A", found.a), ("B", found.b))])
    return f'<div class="scroll"><table class="plain sides"><tbody>{body}</tbody></table></div>'


def _side(mark: str, side: Side) -> str:
    told = summarise(side.checkpoint)
    facts = (plural(told.tensors, "tensor"), amount(told.parameters), size(side.checkpoint.size))
    cells = "".join([f'<td class="n">{text(each)}</td>' for each in facts])
    return f'<tr><th scope="row">{mark}</th><td class="key">{name(side.path)}</td>{cells}</tr>'


def _groups(found: Sequence[DiffGroup]) -> str:
    if not found:
        return ""
    body = "".join(
        [
            f'<tr><th scope="row"><span class="way {each.label.split(" ")[0]}">{text(each.label)}</span></th>'
            f'<td class="n" data-label="tensors">{count(each.count) if each.count else ""}</td>'
            f'<td class="key">{name(each.text, 400)}</td><td class="soft">{text(each.remark)}</td></tr>'
            for each in found
        ]
    )
    head = '<thead><tr><th>what</th><th class="n">tensors</th><th>which</th><th></th></tr></thead>'
    return f'<div class="scroll"><table class="plain groups">{head}<tbody>{body}</tbody></table></div>'


def _depth(found: DepthMap | None) -> str:
    """Return the change of each kind of tensor in each layer, in shades; neighbours of one shade are one piece."""
    if found is None:
        return ""
    kinds = zip(short_kinds(found.kinds), found.cells, strict=True)
    body = "".join([_kind(found, kind, row) for kind, row in kinds])
    last = len(found.layers) - 1
    marks = min(_MARKS, last)  # evenly spread, so that the last one is that of the last layer
    labels = "".join([f"<span>{found.layers[round(mark * last / marks)]}</span>" for mark in range(marks + 1)])
    axis = f'<tr><td></td><td class="layers"><div>{labels}</div></td></tr>'
    key = "".join([f'<span><i class="c{number}"></i>{text(told)}</span>' for number, told in enumerate(_SHADES)])
    headline = f'<p class="about">{text(found.headline.capitalize())}.</p>' if found.headline else ""
    table = f'<table class="depths"><tbody>{body}{axis}</tbody></table>'
    return f'<h3>Changes by layer</h3>{headline}{table}<p class="legend">{key}</p>'


def _kind(found: DepthMap, kind: str, row: Sequence[float | None]) -> str:
    """Return the row of a kind: a bar with the layers from left to right."""
    shades = [shade(far) for far in in_columns(tuple(row), _COLUMNS)]
    drawn, at = [], 0
    for number, run in groupby(shades):
        end = at + len(list(run))
        if number is not None:
            title = f"<title>{text(kind)}, {_layers(found, at, end, len(shades))}: {text(_SHADES[number])}</title>"
            drawn.append(element("rect", title, x=at, y=0, width=end - at, height=1, class_=f"depth c{number}"))
        at = end
    bar = element(
        "svg", "".join(drawn), viewBox=f"0 0 {len(shades)} 1", preserveAspectRatio="none", role="img",
        aria_label=f"Changes of {kind} by layer",
    )  # fmt: skip
    return f'<tr><th scope="row" class="key">{name(kind, _LETTERS)}</th><td>{bar}</td></tr>'


def _layers(found: DepthMap, begin: int, end: int, columns: int) -> str:
    """Return the layers that some of so many columns are for."""
    layers = len(found.layers)
    first, last = found.layers[round(begin * layers / columns)], found.layers[round(end * layers / columns) - 1]
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def shade(far: float | None) -> int | None:
    """Return the shade of a change, as the areas of sizes have them; None where it is not known.

    What was all zeros has no norm to compare with: it is shown as the smallest change.
    """
    if far is None or far != far:
        return None
    if far == 0:
        return 0
    return 1 if far == FROM_ZERO else next((number for number, most in enumerate(_LIMITS, 1) if far <= most), 5)


# the columns of distances; on a phone each figure has its title in front of it
_CHANGED, _FIGURES = "changed", ("max |Δ|", "mean |Δ|", "relative L2", "cosine")


def _modules(found: Sequence[DiffRow]) -> str:
    """Return the distance of the values of modules, with a bar for the difference relative to A."""
    if not found:
        return ""
    finite = [row.numbers.relative for row in found if isfinite(row.numbers.relative)]
    top = max(finite, default=0.0) or 1.0
    odd = any(row.numbers.odd for row in found)
    body = "".join([_module(row, top, odd) for row in found])
    titles = (_CHANGED, *_FIGURES, *(["NaN"] if odd else []))
    head = "".join([f'<th class="n">{text(title)}</th>' for title in titles])
    table = f"<thead><tr><th>module</th><th></th>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<h3>Distance of values</h3><div class="scroll"><table class="plain wide groups">{table}</table></div>'


def _module(row: DiffRow, top: float, odd: bool) -> str:
    """Return a row; with ``odd`` it also says where values are NaN on one side only, which no figure counts."""
    relative = row.numbers.relative
    wide = 120 * min(1.0, relative / top) if relative == relative else 0.0
    bar = element("rect", width=coordinate(max(wide, 1)), height=10, rx=2, class_="bin")
    drawing = element("svg", bar, viewBox="0 0 120 10", class_="meter", aria_hidden="true")
    figured = zip(_FIGURES, figures(row.numbers), strict=True)
    cells = "".join([f'<td class="n" data-label="{text(title)}">{text(each)}</td>' for title, each in figured])
    if odd:
        numbers = row.numbers
        told = f"{count(numbers.nan_a)} in A, {count(numbers.nan_b)} in B" if numbers.odd else ""
        cells += f'<td class="n odd" data-label="NaN">{text(told)}</td>'
    changed = f'<td class="n" data-label="{_CHANGED}">{row.changed:,} of {row.tensors:,}</td>'
    return f'<tr><th scope="row" class="key">{name(row.name, 80)}</th><td>{drawing}</td>{changed}{cells}</tr>'


def _singles(title: str, singles: Sequence[Single]) -> str:
    if not singles:
        return ""
    told = [(each.name, f"{each.tensor.dtype.name} {shape(each.tensor.shape)}") for each in islice(singles, _NAMED)]
    items = [f'<li>{name(key)} <span class="soft">{text(about)}</span></li>' for key, about in told]
    rest = beyond(len(singles) - _NAMED, before="")
    items += [f'<li class="soft">{rest}</li>'] if rest else []
    head = f"<summary>{text(title)}: {plural(len(singles), 'tensor')}</summary>"
    return f'<details>{head}<ul class="keys">{"".join(items)}</ul></details>'
