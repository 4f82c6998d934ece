"""Draws lines one by one when they come into view, with a cursor: what tree, list and findings have in common.

However many lines there are, only those on the screen are made. Each is a ``Strip``, kept until what it shows changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import ClassVar

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.events import Blur, Click, Focus, Resize
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ckptdoctor.findings import Severity
from ckptdoctor.rendering.wrapping import joined
from ckptdoctor.tui.background import Background
from ckptdoctor.tui.keys import MOVING
from ckptdoctor.tui.widgets.looks import Looks

import_module("textual.scrollbar")  # Textual does with the first key that scrolls, which would wait for it

PHONE = 60  # cells of a line below which names come before everything else
_KEPT = 4_000  # drawn lines that are remembered
_ENDS = (" ", ",./", "_")  # what a line is broken behind, best first: a word, a part of a name, a part of such a part

Pieces = Iterable[tuple[str, str]]  # text, already escaped, and the name of its look


class LineView(ScrollView, Looks, Background, can_focus=True):
    """A scrolling view of lines. Subclasses say how many there are, and draw one."""

    BINDINGS: ClassVar[list[BindingType]] = [*MOVING]

    cursor: reactive[int] = reactive(0, repaint=False)

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._strips: dict[tuple[int, int], Strip] = {}
        self._empty: Style | None = None  # the style of what has no text, as it was asked of all that is above
        self._nothing = ""
        self._nothing_look = "dim"
        self.letters: dict[int, str] = {}  # of lines, while one of them is to be chosen

    def count(self) -> int:
        """Return the number of lines."""
        raise NotImplementedError  # abc.ABC and Textual's widgets have metaclasses that do not go together

    def draw(self, number: int, width: int) -> Pieces:
        """Yield the content of a line, in ``width`` cells."""
        raise NotImplementedError  # abc.ABC and Textual's widgets have metaclasses that do not go together

    def selected(self, number: int) -> None:
        """Do what there is to do when the cursor has come to this line."""

    def activated(self, number: int) -> None:
        """Do what there is to do when enter was pressed on this line, or it was clicked twice."""

    def say_nothing(self, nothing: str, look: str = "dim") -> None:
        """Set the text that is shown where there are no lines."""
        self._nothing, self._nothing_look = nothing, look
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if self._nothing and not number and not self.count():
            return Strip([Segment(fit(self._nothing, width), self.look(self._nothing_look))], width)
        if number >= self.count():
            return Strip.blank(width, self._blank())
        strip = self._drawn(number, width)
        if number in self.letters:
            letter = Segment(self.letters[number], self.look("accent") + Style(bold=True, reverse=True))
            return Strip.join([Strip([letter], 1), strip.crop(1, width)])
        if number != self.cursor:
            return strip
        style = self.look("cursor" if self.has_focus else "cursor-blurred")
        if self.app.no_color:
            style = Style(reverse=self.has_focus, underline=not self.has_focus)
        # what is dim on the background could not be read on the cursor's
        dim, readable = self.look("dim"), self.look("soft")
        styles = [style if own is None else (readable if own == dim else own) + style for _, own, _ in strip]
        return Strip([Segment(text, each) for (text, _, _), each in zip(strip, styles, strict=True)], width)

    def _drawn(self, number: int, width: int) -> Strip:
        self.keep_looks()
        strip = self._strips.get((number, width))
        if strip is None:
            if len(self._strips) > _KEPT:
                self._strips.clear()
            segments = [Segment(text, self.look(name)) for text, name in self.draw(number, width - 1)]
            strip = Strip(segments).adjust_cell_length(width, self._blank())
            self._strips[number, width] = strip
        return strip

    def _blank(self) -> Style:
        """Return the style of what has no text: asked for each line, it took a quarter of the time of a key."""
        self.keep_looks()
        if self._empty is None:
            self._empty = self.rich_style
        return self._empty

    def redraw(self) -> None:
        """Draw everything again: what the lines show, or how many there are, has changed."""
        self._strips.clear()
        self._empty = None
        self.virtual_size = Size(1, self.count())
        if self.cursor >= self.count():
            self.cursor = max(0, self.count() - 1)
        self.refresh()

    def forget_looks(self) -> None:
        """Forget what was drawn in other colours."""
        super().forget_looks()
        self._strips.clear()
        self._empty = None

    def validate_cursor(self, cursor: int) -> int:
        """Return the nearest line that exists."""
        return max(0, min(cursor, self.count() - 1))

    def watch_cursor(self, before: int, after: int) -> None:
        """Draw the two lines that have changed, and scroll to the new one."""
        self.refresh_line(before)
        self.refresh_line(after)
        self.show_cursor()
        if self.has_focus:
            self.selected(after)

    def show_cursor(self) -> None:
        """Scroll so that the cursor is on the screen."""
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if not height:
            return
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)

    def go_to_line(self, number: int) -> None:
        """Put the cursor on a line of lines that have just changed, with what is around it on the screen as well."""
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        self.cursor = number
        if not top <= number < top + height:
            self.call_after_refresh(self._centre, number)  # before that, nobody knows how far it can be scrolled

    def _centre(self, number: int) -> None:
        if number == self.cursor:
            height = self.scrollable_content_region.height
            self.scroll_to(y=max(0, number - height // 2), animate=False, immediate=True)

    def on_resize(self, event: Resize) -> None:
        """Keep the cursor on the screen when there is more or less room."""
        self.show_cursor()

    def on_focus(self, event: Focus) -> None:
        """Give the cursor its full colour, and let other panes show what it is on."""
        self.refresh_line(self.cursor)
        if self.count():
            self.selected(self.cursor)

    def on_blur(self, event: Blur) -> None:
        """Let the cursor fade."""
        self.refresh_line(self.cursor)

    def on_click(self, event: Click) -> None:
        """Move the cursor to where the mouse is; a second click does what enter does."""
        offset = event.get_content_offset(self)
        number = offset.y + self.scroll_offset.y if offset is not None else -1
        if offset is None or not 0 <= number < self.count():
            return
        self.cursor = number
        if event.chain == 2:
            self.activated(number)
        elif event.chain == 1:
            self.clicked(number, offset.x)

    def clicked(self, number: int, x: int) -> None:
        """Do what there is to do when a line was clicked once, at this column."""

    def action_move(self, by: int) -> None:
        """Move the cursor by so many lines."""
        self.cursor += by

    def action_page(self, by: int) -> None:
        """Move the cursor by so many pages."""
        self.cursor += by * max(1, self.scrollable_content_region.height - 1)

    def action_first(self) -> None:
        """Go to the first line."""
        self.cursor = 0

    def action_last(self) -> None:
        """Go to the last line."""
        self.cursor = self.count() - 1

    def action_activate(self) -> None:
        """Enter."""
        if self.count():
            self.activated(self.cursor)


_BADGES = {Severity.ERROR: " ●", Severity.WARNING: " ▲", Severity.INFO: " •"}


def of_severity(severity: Severity | None) -> tuple[str, str]:
    """Return the badge of a severity, and its look: colour only repeats what the sign says."""
    return ("  ", "plain") if severity is None else (_BADGES[severity], severity.value)


def taken(text: str) -> int:
    """Return the cells that ``text`` takes: as ``cell_len``, which is slow for many different texts."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return ``text`` in exactly ``width`` cells: filled with spaces, or cut with … where it is too long."""
    if width <= 0:
        return ""
    cells = taken(text)
    if cells > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - cells) + text if right else text + " " * (width - cells)


_STEP = re.compile(r"[^./]+[./]?|[./]")
_BETWEEN = "./,{} "  # what stands between the words of a name, or of several


def fit_middle(text: str, width: int) -> str:
    """Return the same with the middle left out, between words if possible: the end of a name tells most."""
    cells = taken(text)
    if cells <= width or width < 8:
        return fit(text, width)
    if numbered := _without_words(text, width):
        return fit(numbered, width)
    keep = (width - 1) * 2 // 3
    tail = text[-keep:]
    while cell_len(tail) > keep:
        tail = tail[1:]
    tail = tail[next((at for at, sign in enumerate(tail[: len(tail) // 2]) if sign in _BETWEEN), 0) :]
    head = set_cell_size(text, width - 1 - cell_len(tail))
    if not text.startswith(head):  # a space stands for half a character
        head = head[:-1]
    end = max([head.rfind(sign) + 1 for sign in _BETWEEN])
    head = head[:end] if end > len(head) // 2 else head
    return fit(f"{head}…{tail}", width)


def _without_words(name: str, width: int) -> str:
    """A dotted name without steps in front of its last one, those with a number last: these tell layers apart.

    "" where that does not make it fit, or where no step has a number.
    """
    steps = name.split(".")
    numbered = [any(map(str.isdigit, step)) for step in steps]
    if len(steps) < 3 or not any(numbered) or " " in name or "/" in name:
        return ""
    kept = dict(enumerate(steps))
    for at in (*range(1, len(steps) - 2), 0, len(steps) - 2):  # what is in front of the last says most
        if not numbered[at]:
            del kept[at]
            shown = _joined(kept)
            if taken(shown) <= width:
                return shown
    return ""


def _joined(kept: dict[int, str]) -> str:
    """The steps with dots between them, and … for those that are missing."""
    text, before = "", -1
    for at, step in kept.items():
        text += ("." if text else "") if at == before + 1 else "…"
        text, before = text + step, at
    return text


def fit_apart(name: str, other: str, width: int) -> str:
    """Return a name in so many cells; where it is too long, what it has in common with the other one goes first."""
    if taken(name) <= width or name == other:
        return fit_middle(name, width)
    head, differs, _, tail = _apart(name, other)
    shorter = (f"{'…' if head else ''}{differs}{tail}", f"{'…' if head else ''}{differs}{'…' if tail else ''}")
    return fit_middle(next((each for each in shorter if taken(each) <= width), differs), width)


def fit_renaming(old: str, new: str, width: int) -> str:
    """Return both names in so many cells, what they have in common once: ``layers.0.{attn → self_attn}.weight``."""
    if taken(old) + taken(new) + 3 <= width:
        return fit(f"{old} → {new}", width)
    head, one, other, tail = _apart(old, new)
    for before, after in ((head, tail), ("…" if head else "", tail), ("…" if head else "", "…" if tail else "")):
        room = width - taken(before) - taken(after) - 5
        if taken(one) + taken(other) <= room:
            return fit(f"{before}{{{one} → {other}}}{after}", width)
    half = max(1, (width - 3) // 2)
    return fit(f"{fit_middle(one, min(half, taken(one)))} → {fit_middle(other, min(half, taken(other)))}", width)


def _apart(name: str, other: str) -> tuple[str, ...]:
    """Return the steps that two names begin with, those between in either, and those that both end in."""
    one, two = _STEP.findall(name), _STEP.findall(other)
    least = min(len(one), len(two))
    begin = next((at for at in range(least) if one[at] != two[at]), least)
    end = next((at for at in range(least - begin) if one[-1 - at] != two[-1 - at]), least - begin)
    middles = ["".join(steps[begin : len(steps) - end]) for steps in (one, two)]
    tail = "".join(one[len(one) - end :])
    if tail and all(each.endswith(".") for each in middles):
        middles, tail = [each[:-1] for each in middles], f".{tail}"
    return "".join(one[:begin]), *middles, tail


def marked(name: str, mark: str, width: int) -> str:
    """Return a name with a mark right behind it, which stays where the name is cut."""
    room = width - len(mark)
    return fit(fit_middle(name, min(room, cell_len(name))) + mark, width)


def hanging(text: str, width: int, indent: int) -> str:
    """``text`` behind a label of ``indent`` cells: what does not fit begins below its own beginning, not the label's.

    It is broken between its pieces ("a · b"), within one only where that alone is too long.
    """
    if "\n" in text or taken(text) <= width - indent or width - indent < indent:
        return text
    room = width - indent
    lines = [line for pieces in joined(text.split(" · "), room, hang="") for line in broken(pieces, room)]
    return f"\n{' ' * indent}".join(lines)


def broken(text: str, width: int) -> list[str]:
    """Return ``text`` in lines of at most ``width`` cells, broken behind spaces and between the parts of names."""
    lines: list[str] = []
    width = max(width, 8)
    while taken(text) > width:
        piece = chop_cells(text, width)[0]
        ends = (max([piece.rfind(sign) + 1 for sign in signs]) for signs in _ENDS)
        at = next((each for each in ends if each > width // 3), len(piece))
        lines.append(text[:at].rstrip(" "))
        text = text[at:].lstrip(" ")
    return [*lines, text]
