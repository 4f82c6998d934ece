"""Draws the modules as areas as large as their bytes, without a script; the one drawn over it unfolds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.noun import noun
from ckptdoctor.rendering.html.examined import Examined
from ckptdoctor.rendering.html.markup import coordinate, element, section, text
from ckptdoctor.rendering.html.table import Modules, bounded, children, sizes
from ckptdoctor.rendering.numbers import size
from ckptdoctor.wording import beyond

_WIDTH, _HEIGHT = 1120.0, 460.0
_MOST = 60  # areas in one
_DEEP = 2  # levels below the first
_COLOURS = 8
_TITLE = 22.0  # height of a title
_LETTER = 7.2  # width of one


@noun
class _Cell:
    name: str
    nbytes: int
    level: int | None  # None: a tensor


def treemap(examined: Examined, made: Modules) -> str:
    """The section; "" where there are no bytes."""
    nbytes = [0 if number in examined.tied else bounded(each.nbytes) for number, each in enumerate(examined.tensors)]
    if not sum(nbytes):
        return ""
    drawing = "".join(_Drawing(made, nbytes).svg())
    modes = '<option value="module">module</option><option value="dtype">dtype</option>'
    if examined.difference is not None:
        modes += '<option value="change">change</option>'
    bar = (
        '<div class="bar scripted"><nav id="crumbs" aria-label="Where you are"></nav>'
        f'<label>colour by <select id="colours">{modes}</select></label></div>'
    )
    about = "Each area is a module; its size is that of its tensors. Tensors that share their memory count once."
    map_ = f'<div id="treemap" class="treemap" role="group" aria-labelledby="size-title">{drawing}</div>'
    return section("size", "Where the bytes are", f'{bar}\n{map_}\n<div id="treemap-key" class="legend"></div>', about)


class _Drawing:
    """Areas within areas, as deep as there is room."""

    def __init__(self, made: Modules, nbytes: list[int]) -> None:
        self.made = made
        self.nbytes = nbytes
        self.below = children(made)
        self.totals = sizes(made, nbytes)

    def svg(self) -> Iterator[str]:
        yield (
            f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="Sizes of modules"'
            ' preserveAspectRatio="none">'
        )
        yield from self._areas([self._folded(0)], Rectangle(0, 0, _WIDTH, _HEIGHT), None, 0)
        yield "</svg>"

    def _areas(self, cells: Sequence[_Cell], box: Rectangle, colour: int | None, depth: int) -> Iterator[str]:
        if len(cells) == 1 and cells[0].level is not None and depth == 0:  # the whole file needs no frame
            cells = self._cells(cells[0].level)
        places = squarified([float(cell.nbytes) for cell in cells], box)
        for number, (cell, place) in enumerate(zip(cells, places, strict=True)):
            own = number % _COLOURS if colour is None else colour
            yield _drawn(cell, place, own, inner=depth > 0)
            room = place.within(3, _TITLE)
            if cell.level is not None and depth < _DEEP and room.width > 34 and room.height > 24:
                fills = colour is None and place.width * place.height > 0.6 * box.width * box.height
                yield from self._areas(self._cells(cell.level), room, None if fills else own, depth + 1)

    def _cells(self, level: int) -> list[_Cell]:
        """The contents of a level, largest first; the smallest as one."""
        levels, tensors = self.below[level]
        found = [self._folded(each) for each in levels if self.totals[each]]
        found += [_Cell(self.made.pieces[self.made.leaves[each]], self.nbytes[each], None) for each in tensors]
        found = sorted([cell for cell in found if cell.nbytes], key=lambda cell: -cell.nbytes)
        rest = found[_MOST:]
        more = _Cell(beyond(len(rest), before="", spelt=str), sum([cell.nbytes for cell in rest]), None)
        return [*found[:_MOST], more] if rest else found

    def _folded(self, level: int) -> _Cell:
        """A level; those with nothing but one level in them are one."""
        name = self.made.pieces[self.made.levels[level]] if level else ""
        while True:
            levels, tensors = self.below[level]
            inner = [each for each in levels if self.totals[each]]
            leaves = [each for each in tensors if self.nbytes[each]]
            if not inner and len(leaves) == 1:
                return _Cell(name + self.made.pieces[self.made.leaves[leaves[0]]], self.totals[level], None)
            if len(inner) != 1 or leaves:
                return _Cell(name, self.totals[level], level)
            level = inner[0]
            name += self.made.pieces[self.made.levels[level]]


def _drawn(cell: _Cell, box: Rectangle, colour: int, inner: bool = False) -> str:
    name = cell.name.rstrip("./")
    title = f"<title>{text(name)}: {text(size(cell.nbytes))}</title>"
    width, height = max(0.0, box.width - 1), max(0.0, box.height - 1)
    place = {"x": coordinate(box.x), "y": coordinate(box.y)}
    shown = element(
        "rect",
        title,
        **place,
        width=coordinate(width),
        height=coordinate(height),
        rx=3,
        class_=f"cell h{colour}{' inner' if inner else ''}",
    )
    room = int((box.width - 10) / _LETTER)
    if room < 3 or box.height < 18:
        return shown
    label = name if len(name) <= room else f"{name[: room - 1]}…"
    return shown + element("text", text(label), x=coordinate(box.x + 6), y=coordinate(box.y + 15))


# ---- areas as rectangles that are as square as they can be (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000)


@noun
class Rectangle:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def within(self, margin: float, top: float) -> Rectangle:
        """The rest of it inside of a margin, and below a title."""
        width, height = max(0.0, self.width - 2 * margin), max(0.0, self.height - top - margin)
        return Rectangle(self.x + margin, self.y + top, width, height)


def squarified(sizes: Sequence[float], box: Rectangle) -> Iterator[Rectangle]:
    """A rectangle for each size, largest first as they must come; together they fill the box."""
    total = sum(sizes)
    if total <= 0:
        return
    scale = box.width * box.height / total
    areas = [size * scale for size in sizes]
    start = 0
    while start < len(areas):
        side = min(box.width, box.height)
        end, row = start + 1, areas[start]
        while end < len(areas) and _worst(areas[start], areas[end], row + areas[end], side) <= _worst(
            areas[start], areas[end - 1], row, side
        ):
            row += areas[end]
            end += 1
        thick = row / side if side else 0.0
        yield from _row(areas[start:end], box, thick)
        if box.width >= box.height:
            box = Rectangle(box.x + thick, box.y, max(0.0, box.width - thick), box.height)
        else:
            box = Rectangle(box.x, box.y + thick, box.width, max(0.0, box.height - thick))
        start = end


def _worst(largest: float, smallest: float, row: float, side: float) -> float:
    """The worst ratio of sides in a row of such areas."""
    if not (row and smallest and side):
        return float("inf")
    return max(side * side * largest / (row * row), row * row / (side * side * smallest))


def _row(areas: Sequence[float], box: Rectangle, thick: float) -> Iterator[Rectangle]:
    at = 0.0
    for area in areas:
        long = area / thick if thick else 0.0
        if box.width >= box.height:
            yield Rectangle(box.x, box.y + at, thick, long)
        else:
            yield Rectangle(box.x + at, box.y, long, thick)
        at += long
