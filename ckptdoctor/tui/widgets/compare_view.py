"""Draws two checkpoints line by line: what each has, a sign between them, and how far apart the values are."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan, log10
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.differences import Absent, Verdict
from ckptdoctor.rendering.contents import value
from ckptdoctor.rendering.depth import FROM_ZERO, far
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import count, shape
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import LineActivated, LineSelected, LinesWanted
from ckptdoctor.tui.models.comparison import OTHER_FORM, ComparedEntries, Flag
from ckptdoctor.tui.models.comparison_facts import differ, differing, facts, same, title
from ckptdoctor.tui.models.side_by_side import ComparisonLine, EntryLine, FoldLine, HeadLine, OtherLine
from ckptdoctor.tui.widgets.line_view import PHONE, LineView, fit, fit_apart, fit_middle, fit_renaming, hanging
from ckptdoctor.tui.widgets.looks import Looks

_SIGN = 3
_NUMBER = 9  # cells of a magnitude
_BAR = 9
_ROOMY = 96  # cells of a line from which on both sides have their names, and magnitudes a bar
_SHAPES = 40  # cells of a side from which on every tensor has shape and dtype
_NAME = 400  # characters of a name that are considered

_FLOOR, _CEILING = -6.0, 0.0  # decades that the bar spans
_STEPS = ((1e-4, "dim"), (1e-2, "plain"), (1e-1, "warning"), (inf, "error"))

Pieces = Iterator[tuple[str, str]]


class CompareView(LineView):
    """Lines of a comparison; folds and modules open and close."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "activate", "open", "Open or close the line; show the difference of a tensor", show=True),
        key("space", "toggle_line", "open or close", "Open or close a module or fold"),
        key("right,l", "unfold", "unfold", "Open the line, or go to the next one", display="→"),
        key("left,h", "fold", "fold", "Close the line, or go to the one above it", display="←"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.comparison: ComparedEntries | None = None
        self.lines: list[ComparisonLine] = []
        self.say_nothing("No tensor matches: press m for other kinds of change, / for another filter.")

    def show(self, comparison: ComparedEntries, lines: list[ComparisonLine]) -> None:
        """Show these lines; the cursor stays on what it was on, where that still has one."""
        line = self.line()
        self.comparison, self.lines = comparison, lines
        self.redraw()
        if line is not None:
            self.cursor = _place(lines, line, self.cursor)
        now = self.line()
        if now is not None and (self.has_focus or line is None or now.key != line.key):
            self.selected(self.cursor)

    def go_to_first_difference(self) -> None:
        """Put the cursor on what differs, unless somebody has moved it: nobody wants to hear first what does not."""
        if not self.cursor:
            self.cursor = next((at for at, each in enumerate(self.lines) if not isinstance(each, FoldLine)), 0)

    def count(self) -> int:
        """Return the number of lines."""
        return len(self.lines)

    def line(self) -> ComparisonLine | None:
        """Return the line that the cursor is on."""
        return self.lines[self.cursor] if self.cursor < len(self.lines) else None

    def draw(self, number: int, width: int) -> Pieces:
        """Yield both sides of a line."""
        assert self.comparison is not None
        line = self.lines[number]
        if isinstance(line, EntryLine):
            yield from _entry(self.comparison, line, width)
        elif isinstance(line, HeadLine):
            yield from _head(self.comparison, line, width)
        elif isinstance(line, FoldLine):
            yield from _fold(self.comparison, line, width)
        else:
            yield from _beside(self.comparison, line, width)

    def selected(self, number: int) -> None:
        """Tell what the cursor is on."""
        if number < len(self.lines):
            self.post_message(LineSelected(self.lines[number]))

    def activated(self, number: int) -> None:
        """Open or close; show more of a tensor."""
        line = self.lines[number]
        if is_level(line):
            self.post_message(LinesWanted(line.key, not _is_open(self.lines, number)))
        elif isinstance(line, EntryLine):
            self.post_message(LineActivated(line))

    def clicked(self, number: int, x: int) -> None:
        """Open or close a level whose marker was clicked."""
        if is_level(self.lines[number]) and x < 4:
            self.activated(number)

    def action_toggle_line(self) -> None:
        """Open or close a module or fold."""
        line = self.line()
        if line is not None and is_level(line):
            self.activated(self.cursor)

    def action_unfold(self) -> None:
        """Open the line, or go to the next one."""
        line = self.line()
        if line is not None and is_level(line) and not _is_open(self.lines, self.cursor):
            self.activated(self.cursor)
        else:
            self.cursor += 1

    def action_fold(self) -> None:
        """Close the line, or go to the one that it is listed under."""
        line = self.line()
        if line is None:
            return
        if is_level(line) and _is_open(self.lines, self.cursor):
            self.activated(self.cursor)
            return
        above = (number for number in range(self.cursor - 1, -1, -1) if is_level(self.lines[number]))
        self.cursor = next(above, self.cursor)


def is_level(line: ComparisonLine) -> bool:
    """Return whether the line opens and closes."""
    return isinstance(line, (HeadLine, FoldLine)) or (isinstance(line, OtherLine) and line.number < 0)


def _is_open(lines: list[ComparisonLine], number: int) -> bool:
    line = lines[number]
    if isinstance(line, (HeadLine, FoldLine)):
        return line.is_open
    return number + 1 < len(lines)


def _place(lines: list[ComparisonLine], line: ComparisonLine, before: int) -> int:
    """Return the present place of a line, which mostly is near where it was."""
    wanted = line.key
    if before < len(lines) and lines[before].key == wanted:
        return before
    return next((number for number, each in enumerate(lines) if each.key == wanted), before)


def _entry(comparison: ComparedEntries, line: EntryLine, width: int) -> Pieces:
    entry = line.entry
    indent = "  " * (line.depth + 1)
    measured = comparison.found.compared or comparison.magnitudes[entry] == comparison.magnitudes[entry]
    shown = _columns(width) if comparison.measuring or measured else 0
    flags = comparison.flags[entry]
    one, other = comparison.tensors(entry)
    pair = comparison.pair(entry)
    lead = comparison.groups[comparison.group_of[entry]] if line.depth else ""
    names = (pair.name, pair.name_b) if pair is not None else (comparison.name(entry),) * 2
    if width < _ROOMY and names[0] != names[1] and not names[1].startswith(f"{lead}."):
        lead = ""  # the names of a renamed tensor stand next to each other: both whole, then
    inside = [_inside(name, lead) for name in names]
    room = width - len(indent) - _SIGN - shown
    yield indent, "plain"
    if width < _ROOMY:
        yield from _once(inside, (one, other), room)
        yield _sign(flags, comparison, entry)
    else:
        yield from _beside_each_other(inside, (one, other), room, _sign(flags, comparison, entry))
    if shown:
        yield from _far(comparison.magnitudes[entry], shown)


def _inside(name: str, lead: str) -> str:
    """Return a name as it is shown below the line of its module."""
    return abridged(escape(name[len(lead) + 1 :] if lead and name.startswith(f"{lead}.") else name), _NAME)


def _once(names: list[str], sides: tuple[Tensor | None, Tensor | None], room: int) -> Pieces:
    """Yield one name, or what it has become, with shape and dtype: of both if they differ, as far as there is room."""
    one, other = sides
    differs = one is not None and other is not None and _meta(one) != _meta(other)
    if one is not None and other is not None and differs:
        reshaped = one.shape != other.shape
        said = " ≠ ".join([shape(each.shape) if reshaped else each.dtype.short for each in (one, other)])
    else:
        said = _both(one or other)
    renamed = names[0] != names[1]
    wanted = cell_len(names[0]) + (cell_len(names[1]) + 3 if renamed else 0)
    if not differs and wanted + 1 + len(said) > room:
        said = ""  # the facts of the line under the cursor have it
    taken = min(len(said), max(room * 3 // 5, room - wanted - 1))
    space = room - taken - 1
    yield (fit_renaming(names[0], names[1], space) if renamed else fit_middle(names[0], space)) + " ", "plain"
    yield fit(said, taken, right=True), "warning" if differs else "dim"


def _beside_each_other(
    names: list[str], sides: tuple[Tensor | None, Tensor | None], room: int, sign: tuple[str, str]
) -> Pieces:
    """Yield both sides with the sign between them; a name that both have is there once where it is long."""
    one, other = sides
    half, spare = divmod(room, 2)
    alike = one is not None and other is not None and _meta(one) == _meta(other)
    renamed, paired = names[0] != names[1], one is not None and other is not None
    look = "dim" if alike or not paired else "warning"
    metas = [_both(each) if half >= _SHAPES or (paired and not alike) else "" for each in sides]
    if paired and not renamed and cell_len(names[0]) + 1 + len(metas[0]) > half:
        yield fit_middle(names[0], half), "plain"
        yield sign
        yield fit(metas[1] if alike else " ≠ ".join(metas), half + spare, right=True), look
        return
    rooms = half, half + spare
    for at, (side, name, meta, space) in enumerate(zip(sides, names, metas, rooms, strict=True)):
        if at:
            yield sign
            meta = "" if alike else meta
        if side is None:
            yield fit("missing", space), "dim"
            continue
        if alike and cell_len(name) + 1 + len(meta) > space:
            meta = ""
        taken = min(len(meta), space * 3 // 5)
        yield (
            fit_apart(name, names[1 - at], space - taken - 1) + " ",
            "accent" if at and renamed else "dim" if at and paired else "plain",
        )
        yield fit(meta, taken, right=True), look


def _meta(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    return tensor.shape, tensor.dtype.name


def _both(tensor: Tensor | None) -> str:
    """Return shape and dtype; "" for no tensor."""
    return f"{shape(tensor.shape)} {tensor.dtype.short:>4}" if tensor is not None else ""


def _sign(flags: int, comparison: ComparedEntries, entry: int) -> tuple[str, str]:
    """Return the character that says how both sides are related, and its look: colour only repeats it.

    ``~`` is the same values in another dtype, kind or arrangement, or with another device tag.
    """
    if flags & Flag.ONLY_A:
        return " − ", "error"
    if flags & Flag.ONLY_B:
        return " + ", "accent"
    if flags & (Flag.CHANGED | Flag.RESHAPED):
        return " ≠ ", "warning"
    if flags & OTHER_FORM:
        return " ~ ", "warning"
    if flags & Flag.UNKNOWN:
        return " ? ", "warning"
    if flags & Flag.RENAMED:
        return (" ≟ " if flags & Flag.GUESSED else " → "), "accent"
    pair = comparison.pair(entry)
    values = pair.values if pair is not None else None
    return (" = ", "dim") if values is not None and values.verdict is Verdict.EQUAL else (" · ", "dim")


def _columns(width: int) -> int:
    return _NUMBER + _BAR if width >= _ROOMY else _NUMBER


def _far(far: float, room: int) -> Pieces:
    """Yield the number of a magnitude and, where there is room, a bar that spans six decades."""
    if far == FROM_ZERO:
        yield fit("from 0", _NUMBER, right=True) + " " * (room - _NUMBER), "dim"
        return
    if isnan(far):
        yield " " * room, "plain"
        return
    text = "0" if not far else "NaN/inf" if far == inf else f"{far:.2g}"
    look = look_of(far)
    yield fit(text, _NUMBER, right=True), look
    if room > _NUMBER:
        yield " " + fit(_bar(far, _BAR - 1), room - _NUMBER - 1), look


def look_of(far: float) -> str:
    """Return the look of a magnitude."""
    return next(name for limit, name in _STEPS if far <= limit) if far > 0 else "dim"


def _bar(far: float, cells: int) -> str:
    """Return a line in halves of a cell, on a logarithmic scale."""
    if not far:
        return ""
    share = 1.0 if far == inf else (log10(far) - _FLOOR) / (_CEILING - _FLOOR)
    halves = max(1, round(2 * cells * min(1.0, max(0.0, share))))
    return "━" * (halves // 2) + "╸" * (halves % 2)


def _head(comparison: ComparedEntries, line: HeadLine, width: int) -> Pieces:
    numbers = comparison.numbers(line.group)
    shown = _columns(width) if comparison.measuring or comparison.found.compared else 0
    number = count(len(line.entries))
    said = differing(line, f" of {number}") if line.differing else number
    if width < PHONE:  # names come first: the tensors themselves say that they are only renamed
        said = said.partition(",")[0]
    room = width - 2 - shown - len(said) - 1
    yield "▾ " if line.is_open else "▸ ", "accent"
    yield fit_middle(abridged(escape(comparison.groups[line.group]), _NAME), room) + " ", "level"
    yield said, "dim"
    if shown:
        yield from _far(far(numbers) if numbers.elements else float("nan"), shown)


def _fold(comparison: ComparedEntries, line: FoldLine, width: int) -> Pieces:
    indent = "  " * line.depth
    text = same(comparison, len(line.entries))
    names = [comparison.groups[comparison.group_of[entry]] for entry in (line.entries[0], line.entries[-1])]
    if not line.depth and names[0] and names[1]:
        span = names[0] if names[0] == names[1] else f"{names[0]} … {names[1]}"
        text += f"   {abridged(escape(span), _NAME)}"
    yield indent + ("▾ " if line.is_open else "▸ "), "dim"
    yield fit(text, width - len(indent) - 2), "dim"


def _beside(comparison: ComparedEntries, line: OtherLine, width: int) -> Pieces:
    others = comparison.found.others
    if line.number < 0:
        yield "▾ ", "accent"
        yield fit(f"other values: {count(len(others))} {differ(len(others))}", width - 2), "level"
        return
    other = others[line.number]
    room = (width - 2 - _SIGN) // 3
    sides = ["missing" if isinstance(node, Absent) else value(node) for node in (other.a, other.b)]
    yield "  " + fit_middle(abridged(escape(other.name), _NAME), room - 1) + " ", "plain"
    yield fit(sides[0], room), "dim" if isinstance(other.a, Absent) else "plain"
    if isinstance(other.a, Absent):
        yield " + ", "accent"
    else:
        yield (" − ", "error") if isinstance(other.b, Absent) else (" ≠ ", "warning")
    yield fit(sides[1], width - 2 - _SIGN - 2 * room), "dim" if isinstance(other.b, Absent) else "plain"


class CompareDetail(VerticalScroll, Looks):
    """A pane that scrolls when there is more than fits."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[ComparedEntries, ComparisonLine] | None = None

    def on_mount(self) -> None:
        """Hear when colours are others: those of a text stay what they were when it was written."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._say_again())

    def on_resize(self, event: Resize) -> None:
        """Lines are broken elsewhere."""
        self._say_again()

    def _say_again(self) -> None:
        if self._shown is not None:
            self.show(*self._shown)

    def compose(self) -> Iterator[Static]:
        """Yield the text."""
        yield Static(id="compare-facts", markup=False)

    def show(self, comparison: ComparedEntries, line: ComparisonLine) -> None:
        """Say all of a line."""
        text = Text()
        label = self.look("dim")
        for name, said in facts(comparison, line):
            lead = f"{name:<8} "
            text.append(lead, label).append(hanging(said, self.scrollable_content_region.width - 2, len(lead)) + "\n")
        self.say(title(comparison, line), text)
        self._shown = comparison, line

    def say(self, title: str, text: Text | str) -> None:
        """Say something, which is escaped already, in the place of a line."""
        self._shown = None
        self.border_title = Content(title)
        self.query_one("#compare-facts", Static).update(text)
        self.scroll_home(animate=False)
