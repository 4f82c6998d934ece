"""Areas as rectangles that are as square as they can be (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.noun import noun


@noun
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def within(self, margin: float, top: float) -> Box:
        """What is left of it inside of a margin, and below a title."""
        width, height = max(0.0, self.width - 2 * margin), max(0.0, self.height - top - margin)
        return Box(self.x + margin, self.y + top, width, height)


def squarified(sizes: Sequence[float], box: Box) -> Iterator[Box]:
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
            box = Box(box.x + thick, box.y, max(0.0, box.width - thick), box.height)
        else:
            box = Box(box.x, box.y + thick, box.width, max(0.0, box.height - thick))
        start = end


def _worst(largest: float, smallest: float, row: float, side: float) -> float:
    """The worst ratio of sides in a row of such areas."""
    if not (row and smallest and side):
        return float("inf")
    return max(side * side * largest / (row * row), row * row / (side * side * smallest))


def _row(areas: Sequence[float], box: Box, thick: float) -> Iterator[Box]:
    at = 0.0
    for area in areas:
        long = area / thick if thick else 0.0
        if box.width >= box.height:
            yield Box(box.x, box.y + at, thick, long)
        else:
            yield Box(box.x + at, box.y, long, thick)
        at += long
