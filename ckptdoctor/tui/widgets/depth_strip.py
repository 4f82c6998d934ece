"""Draws what has changed by depth: a strip of layers for each kind of tensor."""

from __future__ import annotations

from math import inf

from rich.cells import cell_len
from rich.text import Text
from textual.events import Resize
from textual.geometry import Size
from textual.widget import Widget

from ckptdoctor.rendering.depth import FROM_ZERO, DepthMap, in_columns, short_kinds
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import count
from ckptdoctor.tui.widgets.compare_view import CompareView, look_of
from ckptdoctor.tui.widgets.line_view import fit, fit_middle

_KIND = 24  # cells of the name of a kind of tensor
_WIDEST = 4  # cells of a layer
_SHADES = ((0.0, "·"), (1e-4, "░"), (1e-2, "▒"), (1e-1, "▓"), (inf, "█"))


def _shade(change: float | None) -> str:
    if change is None:
        return " "
    return _SHADES[2][1] if change == FROM_ZERO else next(sign for most, sign in _SHADES if change <= most)


class DepthStrip(Widget):
    """Layers from left to right, kinds of tensors from top to bottom, shaded by how much has changed."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._map: DepthMap | None = None

    def show(self, found: DepthMap | None) -> None:
        """Draw this; hide where no layer has changed, or none is known to have."""
        drawn = found is not None and any(each for row in found.cells for each in row)
        self._map = found if drawn else None
        self.set_class(drawn, "-drawn")  # where the screen is low, the lines need the room
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the height: a line for each kind, and one for the numbers of the layers."""
        return len(self._map.kinds) + 1 if self._map is not None else 0

    def on_resize(self, event: Resize) -> None:
        """Draw again with more or fewer columns."""
        self.refresh()

    def render(self) -> Text:
        """Return a line for each kind, its name before its shades."""
        text = Text(no_wrap=True)
        found = self._map
        if found is None:
            return text
        names = [escape(name) for name in short_kinds(found.kinds)]
        label = min(_KIND, max(map(cell_len, names)))
        view = self.screen.query_one(CompareView)
        room = max(1, self.content_size.width - label - 2)
        columns = min(room, len(found.layers))
        drawn = min(room, _WIDEST * columns)
        for name, row in zip(names, found.cells, strict=True):
            text.append(f"{fit_middle(name, label)}  ", view.look("dim"))
            for at, change in enumerate(in_columns(row, columns)):
                wide = (at + 1) * drawn // columns - at * drawn // columns
                text.append(_shade(change) * wide, view.look(look_of(change or 0.0)))
            text.append("\n")
        first, last = str(found.layers[0]), str(found.layers[-1])
        ends = first + last.rjust(drawn - len(first)) if drawn > len(first) + len(last) else first
        more = fit(f"and {count(found.more)} more" if found.more else "", label)
        return text.append(f"{more}  {ends}", view.look("dim"))
