"""Shows damaged files as maps of their bytes, with the tensors that can be recovered and those that are lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.rendering.fates import LOST, PARTIAL, SAVED, Fate, byte_map, in_natural_order, intact
from ckptdoctor.rendering.html.examined import DamagedFile, Examined
from ckptdoctor.rendering.html.markup import command, coordinate, element, lines, name, section, text
from ckptdoctor.rendering.numbers import plural, shape
from ckptdoctor.rendering.shell import with_path
from ckptdoctor.wording import beyond

_WIDTH, _HEIGHT = 1120.0, 30.0
_CELLS = 280  # of a map
_NAMED = 300  # tensors of one kind
_SIGNS = {"█": (SAVED, "intact"), "▒": (PARTIAL, "partly lost"), "░": (LOST, "lost")}  # of byte_map
_TITLES = ((LOST, "Lost"), (PARTIAL, "Partly lost"), (SAVED, "Can be recovered"))


def damage(examined: Examined) -> str:
    """Return the section; "" where no file is damaged, or its bytes were not read."""
    shown = lines([_file(each, alone=len(examined.damaged) == 1) for each in examined.damaged])
    about = "All bytes of the tensors, in the order of the file. Every intact tensor can be recovered."
    return section("damage", "Damage", shown, about)


def _file(found: DamagedFile, alone: bool) -> str:
    title = "" if alone else f'<h3 class="key">{name(found.path, 240)}</h3>'
    if found.why:
        return lines([title, f'<p class="message">Nothing can be recovered: {name(found.why, 600)}</p>'])
    listed = [
        _list(told, in_natural_order([each for each in found.fates if each.kind == kind])) for kind, told in _TITLES
    ]
    salvage = command(with_path("ckptdoctor salvage FILE", found.path))
    message = f'<p class="message">{name(intact(found.fates), 1200)}</p>'
    return lines([title, message, _map(found.fates), salvage, *listed])


def _map(fates: Sequence[Fate]) -> str:
    """Return all bytes as one bar; neighbours of one kind are one piece, which names its first and last tensor."""
    cells = byte_map(fates, _CELLS)
    if not cells:
        return ""
    ends = list(accumulate([fate.nbytes for fate in fates]))
    drawn, at = [], 0
    for sign, run in groupby(cells):
        kind, told = _SIGNS[sign]
        end = at + len(list(run))
        first = bisect_right(ends, at * ends[-1] // _CELLS)
        last = min(len(fates) - 1, bisect_right(ends, max(0, end * ends[-1] // _CELLS - 1)))
        names = dict.fromkeys([show_path(fates[place].path) for place in (first, last)])
        place = {"x": coordinate(at * _WIDTH / _CELLS), "width": coordinate((end - at) * _WIDTH / _CELLS)}
        title = f"<title>{text(told)}: {text(' to '.join(names))}</title>"
        drawn.append(element("rect", title, **place, y=0, height=coordinate(_HEIGHT), class_=f"fate {kind}"))
        at = end
    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    drawing = element(
        "svg", "".join(drawn), viewBox=box, preserveAspectRatio="none", class_="bytes", role="img",
        aria_label="Map of the bytes",
    )  # fmt: skip
    kinds = [told for sign, told in _SIGNS.items() if sign in cells]
    key = "".join([f'<span><i class="fate {kind}"></i>{text(told)}</span>' for kind, told in kinds])
    return f'{drawing}<p class="legend">{key}</p>'


def _list(title: str, fates: Sequence[Fate]) -> str:
    if not fates:
        return ""
    order = naturally([show_path(fate.path) for fate in fates])
    items = "".join([_item(fates[place]) for place in order[:_NAMED]])
    rest = beyond(len(fates) - _NAMED, before="")
    items += f'<li class="soft">{rest}</li>' if rest else ""
    head = f"<summary>{text(title)}: {plural(len(fates), 'tensor')}</summary>"
    return f'<details>{head}<ul class="keys">{items}</ul></details>'


def _item(fate: Fate) -> str:
    told = f"{fate.dtype} {shape(fate.shape)}" + (f", {fate.said}" if fate.kind != SAVED else "")
    return f'<li>{name(show_path(fate.path))} <span class="soft">{text(told)}</span></li>'
