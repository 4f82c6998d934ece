"""Lists the repairs that findings offer: chosen or not, how safe, why others are refused; and the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Input

from ckptdoctor.edits import Safety
from ckptdoctor.examine.offers import AUTO, Offer, toggled, usual
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ChoiceChanged
from ckptdoctor.tui.widgets.line_view import LineView, broken, fit
from ckptdoctor.tui.widgets.plan import room

_ONE_LINE = 70  # cells from which an offer is a single line
_BESIDE = 100  # cells of a screen from which on the list is as high as the screen, and has lines to spare
_NAME, _AROUND = 34, 18  # cells of a name at most, and of what is around the text of an offer in a single line
_TEXT = 600  # characters of a title or a reason that are considered
_MOST = 4  # lines of one
_HEADS = {
    Safety.SAFE: "safe: no value changes",
    Safety.CONFIRMED: "confirmed: the target decides",
    Safety.UNSAFE: "unsafe: changes or drops",
    None: "no repair",
}
_LOOKS = {Safety.SAFE: "dim", Safety.CONFIRMED: "accent", Safety.UNSAFE: "warning", None: "dim"}

_Line = tuple[int, list[tuple[str, str]]]


class FixList(LineView):
    """Space chooses. An offer takes one line, or several where there is little width; the cursor is on its first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("space", "choose", "choose", "Choose the repair, or deselect it", show=True, display="space"),
        key("a", "usual", "safe ones", "Choose all safe repairs and nothing else", show=True),
    ]

    def __init__(self, offered: Sequence[Offer], id: str | None = None) -> None:
        super().__init__(id=id)
        self.offered = offered
        self.chosen = usual(offered)
        self._lines: list[_Line] = []
        self._stops: list[int] = []

    def on_mount(self) -> None:
        """Make the lines."""
        self._put_in_lines()

    def on_resize(self, event: Resize) -> None:
        """Make lines as long as there is room."""
        at = self.at
        self._put_in_lines()
        if self._stops:
            self.cursor = self._stops[at or 0]
        super().on_resize(event)

    @property
    def at(self) -> int | None:
        """The offer under the cursor."""
        return self._lines[self.cursor][0] if self.cursor < len(self._lines) else None

    def go_to(self, code: str) -> None:
        """Move the cursor to the offer of this rule, if there is one."""
        found = next((at for at, offer in enumerate(self.offered) if offer.code == code), None)
        if found is not None and self._stops:
            self.cursor = self._stops[found]

    def count(self) -> int:
        """Return the number of lines, of which an offer may have several."""
        return len(self._lines)

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Yield one of the lines that were made."""
        yield from self._lines[number][1]

    def validate_cursor(self, cursor: int) -> int:
        """Return the first line of the offer that is nearest in the direction of the move."""
        if not self._stops:
            return 0
        if cursor > self.cursor:
            return next((stop for stop in self._stops if stop >= cursor), self._stops[-1])
        return next((stop for stop in reversed(self._stops) if stop <= cursor), self._stops[0])

    def show_cursor(self) -> None:
        """Scroll until all lines of the offer are on the screen, and the heading above the first."""
        height = self.scrollable_content_region.height
        if not self._stops or not height:
            return
        first = 0 if self.cursor == self._stops[0] else self.cursor
        last = next((stop for stop in self._stops if stop > self.cursor), self.count()) - 1
        if first < self.scroll_offset.y:
            self.scroll_to(y=first, animate=False, immediate=True)
        elif last >= self.scroll_offset.y + height:
            self.scroll_to(y=min(last - height + 1, self.cursor), animate=False, immediate=True)

    def clicked(self, number: int, x: int) -> None:
        """Choose the offer whose box was clicked."""
        if x < len("[x] ") + 1 and number in self._stops:
            self.action_choose()

    def activated(self, number: int) -> None:
        """Choose the offer that was clicked twice."""
        self.action_choose()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action can be used: choosing needs a repair."""
        return action not in ("choose", "usual") or self.has_repairs

    @property
    def has_repairs(self) -> bool:
        """Whether anything can be chosen."""
        return any(offer.safety is not None for offer in self.offered)

    def action_choose(self) -> None:
        """Choose the repair under the cursor, or leave it out."""
        at = self.at
        if at is None:
            return
        if self.offered[at].safety is None:
            self.app.notify(self.offered[at].why or "There is no repair for this.", markup=False)
            return
        self._choose(toggled(self.offered, self.chosen, at))

    def action_usual(self) -> None:
        """Choose what is safe and nothing else."""
        self._choose(usual(self.offered))

    def _choose(self, chosen: frozenset[int]) -> None:
        if chosen != self.chosen:
            self.chosen = chosen
            self._put_in_lines()
            self.post_message(ChoiceChanged())

    def _put_in_lines(self) -> None:
        width = room(self)
        if width <= 0:
            return
        self._lines, self._stops = [], []
        in_one = width >= _ONE_LINE and (self.app.size.width < _BESIDE or _fits(self.offered, width))
        head: object = ""
        for at, offer in enumerate(self.offered):
            if not in_one and offer.safety is not head:
                self._lines += [(at, [])] if self._lines else []
                self._lines.append((at, [(fit(_HEADS[offer.safety], width), "dim")]))
            head = offer.safety
            self._stops.append(len(self._lines))
            lines = _in_one(offer, at in self.chosen, width) if in_one else None
            self._lines += [(at, line) for line in lines or _in_several(offer, at in self.chosen, width)]
        self.redraw()


def _box(offer: Offer, chosen: bool) -> tuple[str, str]:
    if offer.safety is None:
        return "    ", "dim"
    return ("[✓] ", "accent") if chosen else ("[ ] ", "plain")


def _name(offer: Offer) -> str:
    return escape(offer.name if offer.code == AUTO else f"{offer.code} {offer.name}")


def _says(offer: Offer) -> str:
    """Return the effect of the fix, or why there is none."""
    text = (offer.title or offer.message) if offer.safety is not None else (offer.why or offer.message)
    return abridged(escape(text), _TEXT)


def _cells_of_name(width: int) -> int:
    return min(_NAME, width // 3)


def _fits(offered: Sequence[Offer], width: int) -> bool:
    """Return whether nothing is cut where each offer is one line."""
    name = _cells_of_name(width)
    return all(cell_len(_name(each)) <= name and cell_len(_says(each)) <= width - name - _AROUND for each in offered)


def _in_one(offer: Offer, chosen: bool, width: int) -> list[list[tuple[str, str]]]:
    safety = offer.safety.value if offer.safety is not None else "no repair"
    name = _cells_of_name(width)
    return [
        [
            _box(offer, chosen),
            (fit(_name(offer), name), "level" if offer.safety is not None else "plain"),
            ("  " + fit(_says(offer), width - name - _AROUND), "plain" if offer.safety is not None else "dim"),
            (fit(safety, 12, right=True), _LOOKS[offer.safety]),
        ]
    ]


def _in_several(offer: Offer, chosen: bool, width: int) -> list[list[tuple[str, str]]]:
    look = "level" if offer.safety is not None else "plain"
    first = [_box(offer, chosen), (fit(_name(offer), width - 4), look)]
    texts = [offer.message, offer.title] if offer.code == AUTO and offer.title else [_says(offer)]
    most = _MOST if offer.safety is not None else None  # the advice is all that there is
    said = [line for text in texts for line in broken(abridged(escape(text), _TEXT), width - 4)[:most]]
    return [first, *[[("    ", "plain"), (line, "dim")] for line in said]]


class OutputName(Input):
    """Shows the end of a name that has no room, which tells most, until somebody moves about in it.

    ``edited`` is whether somebody typed or deleted here, be it that there was nothing to delete.
    """

    edited = False

    def replace(self, text: str, start: int, end: int) -> None:
        """Note that the text was edited: every way to edit goes through this."""
        self.edited = True
        super().replace(text, start, end)

    def on_resize(self, event: Resize) -> None:
        """Show the end of the name again: there may be less room now."""
        if not self.has_focus:
            self.action_home()
            self.action_end()
