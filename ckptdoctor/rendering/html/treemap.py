"""Draws the modules as areas as large as their bytes, without a script; the one drawn over it unfolds."""

from __future__ import annotations

from collections import Counter
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
_SHORTEST = 8  # letters of a label that is cut
_REPEATED = 13  # layers alike that are drawn as one


@noun
class Area:
    """A module, or several alike as one: its ``levels``. A tensor, or the same one of several modules, has none.

    ``path`` is the name with those of the modules around it.
    """

    name: str
    nbytes: int
    levels: tuple[int, ...] = ()
    path: str = ""


def treemap(examined: Examined, made: Modules) -> str:
    """Return the section; "" where there are no bytes."""
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
    about = (
        f"Each area is a module, as large as its tensors. {_REPEATED} or more layers with the same tensors are drawn "
        "as one. Tensors that share memory count once."
    )
    map_ = f'<div id="treemap" class="treemap" role="group" aria-labelledby="size-title">{drawing}</div>'
    return section("size", "Sizes", f'{bar}\n{map_}\n<div id="treemap-key" class="legend"></div>', about)


class _Drawing:
    """Areas within areas, as deep as there is room."""

    def __init__(self, made: Modules, nbytes: list[int]) -> None:
        self.made = made
        self.nbytes = nbytes
        self.below = children(made)
        self.totals = sizes(made, nbytes)
        self.kinds = _kinds(made, self.below)

    def svg(self) -> Iterator[str]:
        yield f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="Sizes of modules">'
        yield from self._areas([self._folded("", (0,), "")], Rectangle(0, 0, _WIDTH, _HEIGHT), None, 0)
        yield "</svg>"

    def _areas(self, areas: Sequence[Area], box: Rectangle, colour: int | None, depth: int) -> Iterator[str]:
        if len(areas) == 1 and areas[0].levels and depth == 0:  # the whole file needs no frame
            areas = self._inside(areas[0])
        places = squarified([float(area.nbytes) for area in areas], box)
        for number, (area, place) in enumerate(zip(areas, places, strict=True)):
            own = number % _COLOURS if colour is None else colour
            yield drawn(area, place, own, inner=depth > 0)
            room = place.within(3, _TITLE)
            if area.levels and depth < _DEEP and room.width > 34 and room.height > 24:
                fills = colour is None and place.width * place.height > 0.6 * box.width * box.height
                yield from self._areas(self._inside(area), room, None if fills else own, depth + 1)

    def _inside(self, area: Area) -> list[Area]:
        """Return the contents of an area, largest first; the smallest as one."""
        inner, leaves = self._split(area.levels)
        found = [self._folded(name, inside, area.path) for name, inside in inner]
        pieces = self.made.pieces
        found += [Area(pieces[piece], nbytes, (), area.path + pieces[piece]) for piece, nbytes in leaves.items()]
        found = sorted(found, key=lambda area: -area.nbytes)
        rest = found[_MOST:]
        more = Area(beyond(len(rest), before="", spelt=str), sum([area.nbytes for area in rest]))
        return [*found[:_MOST], more] if rest else found

    def _folded(self, name: str, levels: tuple[int, ...], before: str) -> Area:
        """These levels as one area; those with nothing but one level in them are one with it."""
        nbytes = sum([self.totals[level] for level in levels])
        while True:
            inner, leaves = self._split(levels)
            if not inner and len(leaves) == 1:
                name += self.made.pieces[next(iter(leaves))]
                return Area(name, nbytes, (), before + name)
            if len(inner) != 1 or leaves:
                return Area(name, nbytes, levels, before + name)
            ((more, levels),) = inner
            name += more

    def _split(self, levels: tuple[int, ...]) -> tuple[list[tuple[str, tuple[int, ...]]], Counter[int]]:
        """Return the levels below by name, and bytes by the number of the tensor; what is empty is left out."""
        inner: dict[int, list[int]] = {}
        leaves: Counter[int] = Counter()
        for level in levels:
            below, tensors = self.below[level]
            for each in below:
                if self.totals[each]:
                    inner.setdefault(self.made.levels[each], []).append(each)
            for tensor in tensors:
                if self.nbytes[tensor]:
                    leaves[self.made.leaves[tensor]] += self.nbytes[tensor]
        return list(self._grouped(inner)), leaves

    def _grouped(self, inner: dict[int, list[int]]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the levels by name; many that are called by numbers and have the same tensors are one: ``{0…219}.``."""
        alike: dict[frozenset[int] | int, list[int]] = {}
        for piece, levels in inner.items():
            numbered = self.made.pieces[piece].rstrip("./").isdigit()
            alike.setdefault(frozenset([self.kinds[each] for each in levels]) if numbered else piece, []).append(piece)
        for pieces in alike.values():
            if len(pieces) >= _REPEATED:
                together = tuple([level for piece in pieces for level in inner[piece]])
                yield _range([self.made.pieces[piece] for piece in pieces]), together
            else:
                yield from [(self.made.pieces[piece], tuple(inner[piece])) for piece in pieces]


def _kinds(made: Modules, below: dict[int, tuple[list[int], list[int]]]) -> list[int]:
    """Return a number for each level: the same for those with the same names in them, all the way down."""
    numbers: dict[object, int] = {}
    found = [0] * len(made.parents)
    for level in range(len(found) - 1, -1, -1):  # a level comes after its parent
        levels, tensors = below[level]
        inner = tuple(sorted([(made.levels[each], found[each]) for each in levels]))
        leaves = tuple(sorted([made.leaves[each] for each in tensors]))
        found[level] = numbers.setdefault((inner, leaves), len(numbers))
    return found


def _range(pieces: Sequence[str]) -> str:
    """Return ``{0…219}.`` for ``0.``, ``1.``, and so on; ``{0, 8…56}.`` where some are left out."""
    sign = pieces[0][len(pieces[0].rstrip("./")) :]
    numbers = sorted([int(piece.rstrip("./")) for piece in pieces])
    first = str(numbers[0]) if numbers[-1] - numbers[0] == len(numbers) - 1 else f"{numbers[0]}, {numbers[1]}"
    return f"{{{first}…{numbers[-1]}}}{sign}"


def _label(area: Area) -> str:
    """Return the name, and for a number the module that it is one of: ``layers.0``."""
    before = area.path.removesuffix(area.name) if area.name[:1].isdigit() or area.name.startswith("{") else ""
    module = before.rstrip("./").replace("/", ".").rpartition(".")[2]
    return (before[len(before.rstrip("./")) - len(module) :] + area.name).rstrip("./")


def drawn(area: Area, box: Rectangle, colour: int, *, inner: bool) -> str:
    """Return a rectangle with as much of its name as there is room for."""
    name = area.name.rstrip("./")
    title = f"<title>{text(area.path.rstrip('./') or name)}: {text(size(area.nbytes))}</title>"
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
    if box.height < 18 or room < min(len(name), _SHORTEST):
        return shown
    full = _label(area)
    name = full if len(full) <= room else name
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
        """Return the rest of it inside of a margin, and below a title."""
        width, height = max(0.0, self.width - 2 * margin), max(0.0, self.height - top - margin)
        return Rectangle(self.x + margin, self.y + top, width, height)


def squarified(sizes: Sequence[float], box: Rectangle) -> Iterator[Rectangle]:
    """Yield a rectangle for each size, largest first as they must come; together they fill the box."""
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
    """Return the worst ratio of sides in a row of such areas."""
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
