"""The table of all tensors. The first rows are here; a script sorts, filters and shows the rest from the data."""

from __future__ import annotations

from ckptdoctor.facts.values import TensorValues
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.markup import coordinate, element, lines, name, section, text
from ckptdoctor.report.html.modules import Modules
from ckptdoctor.report.html.payload import LEVELS, bars, kinds
from ckptdoctor.report.numbers import plain, plural, size

FIRST = 100  # rows that need no script

_COLUMNS = (("name", "name", ""), ("dtype", "type", ""), ("shape", "shape", ""), ("bytes", "bytes", "n"))
_MEASURED = (("bars", "values", ""), ("mean", "mean", "n"), ("std", "std", "n"), ("norm", "norm", "n"))
_COMPARED = (("change", "change", "n"),)


def table(examined: Examined, made: Modules) -> str:
    """The section; "" where there are no tensors."""
    if not examined.tensors:
        return ""
    columns = [*_COLUMNS]
    columns += _MEASURED if examined.values is not None else ()
    columns += _COMPARED if examined.difference is not None else ()
    head = "".join(
        [f'<th scope="col" data-sort="{key}" class="{kind}">{text(title)}</th>' for key, title, kind in columns]
    )
    rows = [_row(examined, made, number) for number in range(min(FIRST, len(examined.tensors)))]
    rest = len(examined.tensors) - FIRST
    told = plural(rest, "more row needs", "more rows need")
    more = f"<noscript><p>{told} JavaScript.</p></noscript>" if rest > 0 else ""
    whole = f"<thead><tr>{head}</tr></thead><tbody>{lines(rows)}</tbody>"
    grid = f'<table id="grid" class="plain wide tensors">{whole}</table>'
    inside = [
        _controls(examined),
        f'<div class="scroll" role="region" aria-labelledby="tensors-title" tabindex="0">{grid}</div>',
        '<p class="more scripted"><button type="button" id="more" hidden>show more</button></p>',
        more,
    ]
    return section("tensors", "All tensors", lines(inside))


def _controls(examined: Examined) -> str:
    choices = [("", "all tensors"), *[(f"kind:{kind}", f"of the {kind}") for kind in dict.fromkeys(kinds(examined))]]
    choices += [("mark", "with a finding")] if examined.report.findings else []
    choices += [("odd", "with NaN or infinity"), ("same", "all values the same")] if examined.values is not None else []
    choices += [("changed", "changed in B")] if examined.difference is not None else []
    options = "".join([f'<option value="{text(key)}">{text(told)}</option>' for key, told in choices])
    return (
        '<div class="bar scripted"><label class="find">filter <input id="filter" type="search" autocomplete="off" '
        'spellcheck="false" placeholder="attn weight bfloat16"></label>'
        f'<label>show <select id="only">{options}</select></label>'
        f'<output id="found" for="filter only">{plural(len(examined.tensors), "tensor")}</output></div>'
    )


def _row(examined: Examined, made: Modules, number: int) -> str:
    tensor = examined.tensors[number]
    shape = " × ".join(map(plain, tensor.shape[:16])) or "scalar"
    nbytes = "tied" if number in examined.tied else size(tensor.nbytes)
    cells = [
        f'<th scope="row" class="key">{name(made.name(number))}</th>',
        f"<td>{text(tensor.dtype.name)}</td><td>{text(shape)}</td>",
        f'<td class="n">{text(nbytes)}</td>',
    ]
    if examined.values is not None:
        cells += _figures(examined, number)
    return f"<tr>{''.join(cells)}{'<td></td>' if examined.difference is not None else ''}</tr>"


def _figures(examined: Examined, number: int) -> list[str]:
    values = examined.measured(examined.tensors[number])
    if values is None:
        return ["<td></td>"] * len(_MEASURED)
    drawing = spark(bars(values.histogram))
    return [f"<td>{drawing}</td>", *_numbers(values)]


def _numbers(values: TensorValues) -> list[str]:
    told = (("mean", values.mean), ("std", values.std), ("norm", values.norm))
    return [f'<td class="n" data-label="{label}">{number:.3g}</td>' for label, number in told]


def spark(heights: str) -> str:
    """A histogram in a cell: one path."""
    if len(heights) < 2:
        return ""
    steps = [_height(sign) for sign in heights]
    wide = 80 / len(steps)
    path = "".join(
        [
            f"M{coordinate(at * wide)} 18V{coordinate(18 - tall)}h{coordinate(wide - 0.8)}V18z"
            for at, tall in enumerate(steps)
            if tall
        ]
    )
    return element(
        "svg", element("path", d=path, class_="bin"), viewBox="0 0 80 18", class_="spark", aria_hidden="true"
    )


def _height(sign: str) -> float:
    return 18 * LEVELS.index(sign) / (len(LEVELS) - 1)
