"""Shows the facts about the thing under the cursor: a tensor, a level, a value or a finding.

What the headers say comes first, at once, without reading anything; values follow when the cursor rests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Static

from ckptdoctor.filters.words import RULES, WORDS
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.rendering.contents import place
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.rendering.value_numbers import number
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ItemWanted
from ckptdoctor.tui.models import summaries
from ckptdoctor.tui.models.facts import facts, title
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch, TreeItem, TreeValue
from ckptdoctor.tui.widgets.line_view import broken, fit, fit_middle, hanging, of_severity
from ckptdoctor.tui.widgets.looks import Looks
from ckptdoctor.tui.widgets.values_preview import PreviewMap, ValuesPreview
from ckptdoctor.wording import and_more, beyond, percent

_HEADINGS = {Severity.ERROR: "error", Severity.WARNING: "alarm", Severity.INFO: "level"}  # looks of severities
_KEYS = 200  # keys of a finding that are listed
_PARTS = 8  # parts of a level that are drawn
_PART = 22  # cells of their names, or a third of the pane where that is more
_BLOCKS = 8  # blocks that are named
_LABEL = 8  # cells of what a line is called
_NAME = 10  # cells of the name of a fact, where none is longer
_AT_ONCE = 600  # tensors of a level that are counted while a key waits
_LOW = 8  # lines of the pane up to which there is no room for all that the headers say
_TALL = 20  # lines of the pane from which on what is drawn by depth has two
_SHORT = 8  # cells that names have at least, before numbers are left out
_BAR = 4  # cells of a bar at least
_SHARE = 9  # cells of a share of the whole, and the blanks around it
_LITTLE = 16 << 20  # bytes of values that are read when a file is opened
_CONSOLE = Console(width=80)  # which rich wants to wrap a text
_FINDINGS = 6  # findings about something that are listed with it
_MESSAGE = 400  # characters of the message of such a finding
_FEW = 2  # lines of them where there is little room


class Detail(VerticalScroll, Looks):
    """A pane that scrolls when there is more than fits. Layers that are drawn by depth can be chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("left,h", "step(-1)", "layer before", "Choose the previous layer in the depth strip", display="←"),
        key("right,l", "step(1)", "layer after", "Choose the next layer in the depth strip", display="→"),
        key("enter", "go_there", "go there", "Go to the chosen layer", show=True),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._opened_on: TreeItem | None = None
        self._has_moved = False
        self._is_quiet = False  # whether nothing else reads the file that was opened
        self._shown: tuple[OpenedCheckpoint, TreeItem] | None = None
        self._blocks: list[TreeBranch] = []  # that are drawn by depth
        self._prepared: TreeBranch | None = None  # the large level whose parts are counted
        self._block: int | None = None  # the one of these that is chosen
        self._drawn_in = 0  # cells of the pane
        self._again: Callable[[], None] = lambda: None  # says the same once more, in another width or other colours

    def compose(self) -> Iterator[Widget]:
        """Yield the text; more parts, such as histograms, are mounted below it."""
        yield Static(id="facts", markup=False)
        yield ValuesPreview(id="values-preview")
        yield PreviewMap(None, 0, id="preview-map")

    def on_mount(self) -> None:
        """Hear when colours are others: those of a text stay what they were when it was written."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._again())

    @property
    def has_more(self) -> bool:
        """Whether there is anything to do in it: to scroll, or to choose a layer."""
        return self.max_scroll_y > 0 or bool(self._blocks)

    def explain_filters(self) -> None:
        """Say how filters are written, where nothing is left that could be shown."""
        self._again = self.explain_filters
        self._shown, self._blocks = None, []
        self.border_title = Content("how to filter")
        text = Text(f"{RULES}\n\n")
        room = max([cell_len(word) for word, _ in WORDS]) + 2
        for word, kept in WORDS:
            text.append(f"{word:<{room}}", self.look("accent")).append(hanging(kept, self._width(), room) + "\n")
        self._say(text)

    def show_item(self, opened: OpenedCheckpoint, item: TreeItem) -> None:
        """Say what the headers say of it, and which findings name it."""
        self._again = partial(self.show_item, opened, item)
        if self._shown != (opened, item):
            self._block = None
        self._shown, self._blocks = (opened, item), []
        self.border_title = Content(title(opened, item))
        text = Text()
        label = self.look("dim")
        listed = list(facts(opened, item))
        has_values = isinstance(item, int) or (isinstance(item, TreeBranch) and bool(item.rows))
        low = has_values and self.scrollable_content_region.height < _LOW
        if low:  # values would not be seen otherwise
            del listed[1:]
        longest = max([_NAME, *[cell_len(name) for name, _ in listed]])
        for name, said in listed:
            lead = f"{fit_middle(name, min(longest, max(_NAME, self._width() // 3)))} " if name else ""
            text.append(lead, label).append(hanging(said, self._width(), len(lead)) + "\n")
        self._findings(opened, item, text, low)
        branch = self._whole(opened, item)
        large = branch is not None and len(branch.rows) > _AT_ONCE and self._prepared is not branch
        if branch is not None and not large:
            self._sum_up(opened, branch, text, "" if low else "\n")
        self._say(text)
        if self._opened_on is None:
            self._opened_on = item
        self._has_moved |= item != self._opened_on
        if branch is not None and large:
            self.query_one(ValuesPreview).prepare(opened, branch, lambda: self._ready(opened, branch, item))
            return
        if not (self._has_moved or self._reads_at_once(opened, item)):
            return
        if isinstance(item, int):
            self.query_one(ValuesPreview).look_at(opened, item)
        elif isinstance(item, TreeBranch):
            self.query_one(ValuesPreview).measure(opened, item, lambda: self._known(opened, item))

    def read_at_once(self) -> None:
        """Read what the cursor is on since the file was opened, where that is little: the rules have all they need."""
        self._is_quiet = True
        if self._shown is not None and not self._has_moved:
            self.show_item(*self._shown)

    def _reads_at_once(self, opened: OpenedCheckpoint, item: TreeItem) -> bool:
        """Return whether values are read though no key was pressed: few of them, of a file on this machine."""
        if not self._is_quiet or is_address(opened.path) or isinstance(item, TreeValue):
            return False
        nbytes = opened.table.nbytes[item] if isinstance(item, int) else opened.lines.tree.figures(item).nbytes
        return nbytes <= _LITTLE

    def _findings(self, opened: OpenedCheckpoint, item: TreeItem, text: Text, low: bool) -> None:
        """List the findings about it; where there is little room, each on one line, so that values are seen as well."""
        about = opened.badges.about(item)
        most = _FINDINGS if not low else _FEW if len(about) <= _FEW else _FEW - 1
        for at, finding in enumerate(about[:most]):
            badge, _ = of_severity(finding.severity)
            name = f"{badge.strip()} {finding.code} {finding.name}"
            said = escape(abridged(finding.message, _MESSAGE))
            text.append("" if at or low else "\n").append(name, self.look(_HEADINGS[finding.severity]))
            if low:
                said = fit(said, max(0, self.scrollable_content_region.width - cell_len(name) - 4)).rstrip()
            text.append(f"  {said}\n")
        if len(about) > most:
            more = beyond(len(about) - most, "finding", before="and ", after="\n")
            text.append(more, self.look("dim"))

    def _known(self, opened: OpenedCheckpoint, item: TreeItem) -> None:
        """Say it again, now that the values are known."""
        if self._shown == (opened, item):
            self.show_item(opened, item)

    def _ready(self, opened: OpenedCheckpoint, branch: TreeBranch, item: TreeItem) -> None:
        self._prepared = branch
        self._known(opened, item)

    def _whole(self, opened: OpenedCheckpoint, item: TreeItem) -> TreeBranch | None:
        """Return the level whose parts are drawn; next to a single value of the file, where there is room, the file."""
        if isinstance(item, TreeValue):
            has_room = self.scrollable_content_region.height >= _TALL and len(item.path) == 1
            item = opened.lines.tree.root if has_room else item
        return item if isinstance(item, TreeBranch) and item.rows else None

    def _sum_up(self, opened: OpenedCheckpoint, branch: TreeBranch, text: Text, lead: str) -> None:
        """Draw what is in a level: the values of its blocks from the first to the last, and the sizes of its parts.

        ``lead`` is in front of each of these: a blank line where there is room for it.
        """
        pane, width = self.scrollable_content_region, self._width()
        fold = summaries.blocks_of(opened, branch)
        if fold is not None:
            self._by_depth(opened, fold, text, width, lead)
        label, drawn = self.look("dim"), self.look("accent")
        used = len(text.wrap(_CONSOLE, width)) + 3
        listed = summaries.parts(opened, branch, max(_PARTS, pane.height - used))
        if len(listed) < 2:
            return
        whole = sum([part.nbytes for part in listed if not part.depth]) or 1
        largest = max([part.nbytes for part in listed])
        lines = max(_PARTS, pane.height - used)
        names = [f"{'  ' * part.depth}{escape(part.name)}" for part in listed[:lines]]
        stds = [f"  σ {number(part.std)}" if part.std is not None else "" for part in listed[:lines]]
        spare = width - _SHARE - _BAR - max(map(len, stds)) + 1  # for names, next to the shortest bar
        if spare < _SHORT:
            stds, spare = [""] * len(stds), max(1, width - _SHARE - _BAR)
        room = min(max(_PART, width // 3), width // 2, max(map(cell_len, names)), spare)
        cells = max(_BAR, width - room - _SHARE - max(map(len, stds)))
        of_what = " of one of them" if branch.blocks else "" if branch.parent is not None else " in the file"
        text.append(f"{lead}sizes{of_what}", label)
        for part, name, std in zip(listed, names, stds, strict=False):
            text.append(f"\n{fit_middle(name, room)} ")
            text.append(fit(summaries.bar(part.nbytes, largest, cells), cells), label if part.depth else drawn)
            text.append(f"{percent(part.nbytes, whole):>7}{std}", label)
        if len(listed) > lines:
            text.append(beyond(len(listed) - lines, "part", before="\nand ", after=""), label)
        text.append("\n")

    def _by_depth(self, opened: OpenedCheckpoint, fold: TreeBranch, text: Text, width: int, lead: str) -> None:
        label, drawn = self.look("dim"), self.look("accent")
        found = summaries.blocks(fold, opened.glimpse_of, lambda row: len(opened.table.tensors[row].shape) > 1)
        if not found:
            text.append(f"{lead}by depth  press e to read the values\n", label)
            return
        at = self._block
        self._blocks = fold.blocks
        cells = width - _LABEL - 1
        columns = min(cells, len(found))
        wide, height = max(1, cells // columns), 2 if self.scrollable_content_region.height >= _TALL else 1
        chosen = at * columns // len(found) if at is not None else None
        for name, numbers in (("norm", [each.norm for each in found]), ("std", [each.std for each in found])):
            text.append(f"{lead if name == 'norm' else ''}{name:<{_LABEL}} ", label)
            for line, strip in enumerate(summaries.strip(numbers, cells, height)):
                text.append("" if not line else f"\n{'':<{_LABEL}} ")
                for cell, sign in enumerate(strip):
                    text.append(sign * wide, drawn + Style(reverse=True) if cell == chosen else drawn)
            text.append(f"\n{'':<{_LABEL}} {number(min(numbers))} … {number(max(numbers))}\n", label)
        first, last = found[0].name, found[-1].name
        text.append(f"{'layer':<{_LABEL}} {first}{last.rjust(wide * columns - len(first))}\n", label)
        if at is not None:
            here = found[at]
            said = f"norm {number(here.norm)}  std {number(here.std)}  NaN {here.nan}"
            text.append(f"{'':<{_LABEL}} {here.name}", self.look("accent")).append(f"  {said}\n")
        elif self.has_focus:
            text.append(f"{'':<{_LABEL}} ← → choose a layer, ⏎ goes there\n", label)
        for name, odd, look in (
            ("NaN", [each.name for each in found if each.nan], "error"),
            ("infinite", [each.name for each in found if each.infinite], "error"),
            ("all zero", [each.name for each in found if each.zero], "alarm"),
        ):
            if odd:
                text.append(f"{name:<{_LABEL}} ", label)
                said = hanging(f"in {and_more(odd, _BLOCKS, spelt=str)}", width, _LABEL + 1)
                text.append(said + "\n", self.look(look))

    def _width(self) -> int:
        """The cells of a line of the text."""
        return max(20, self.scrollable_content_region.width - 2)

    def on_resize(self, event: Resize) -> None:
        """What is as wide as the pane is drawn again."""
        if event.size.width != self._drawn_in:
            self._drawn_in = event.size.width
            self._again()

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action can be used: choosing a layer needs layers."""
        return bool(self._blocks) if action in ("step", "go_there") else True

    def action_step(self, by: int) -> None:
        """Choose another layer of those that are drawn."""
        if self._shown is not None and self._blocks:
            at = self._block if self._block is not None else -1 if by > 0 else len(self._blocks)
            self._block = max(0, min(len(self._blocks) - 1, at + by))
            self.show_item(*self._shown)

    def action_go_there(self) -> None:
        """Go to the layer that was chosen."""
        if self._block is not None and self._blocks:
            self.post_message(ItemWanted(self._blocks[self._block]))

    def on_focus(self) -> None:
        """Say what the keys do."""
        if self._shown is not None and self._blocks:
            self.show_item(*self._shown)

    def show_finding(self, finding: Finding, more: str = "") -> None:
        """Say all that a finding says, and ``more`` that can be done here."""
        self._again = partial(self.show_finding, finding, more)
        self._shown, self._blocks = None, []
        self.border_title = Content(f"{finding.code} {finding.name}")
        text = Text()
        text.append(finding.severity.value, self.look(_HEADINGS[finding.severity])).append(
            f"  {escape(finding.message)}\n"
        )
        if finding.cause:
            text.append(f"\n{escape(finding.cause)}\n")
        if finding.torch_says:
            text.append("\nLoading reports\n", self.look("dim"))
            text.append("".join([self._below(escape(line)) for line in finding.torch_says]))
        if finding.fix is not None:
            text.append(f"\n{finding.fix.safety.value} repair  ", self.look("dim"))
            text.append(f"{escape(finding.fix.option)}\n", self.look("accent"))
            text.append(f"{escape(finding.fix.title)}\n")
        if finding.advice:
            text.append(f"\n{escape(finding.advice)}\n")
        text.append("".join([f"  {escape(each)}\n" for each in finding.commands]), self.look("accent"))
        if more:
            text.append(f"\n{more}\n")
        self._keys(text, finding)
        self._say(text)

    def _keys(self, text: Text, finding: Finding) -> None:
        if not finding.keys:
            return
        text.append(f"\n{plural(len(finding.keys), 'key')}\n", self.look("dim"))
        text.append("".join([self._below(abridged(place(path))) for path in finding.keys[:_KEYS]]))
        if len(finding.keys) > _KEYS:
            text.append(beyond(len(finding.keys) - _KEYS, "key", before="  … and ", after="\n"))

    def _below(self, said: str) -> str:
        """Return a line below a heading; what is too long goes on further in, behind a word or a part of a name."""
        lines = broken(said, self._width() - 4)
        return "  " + "\n    ".join(lines) + "\n"

    def _say(self, text: Text) -> None:
        self.query_one(ValuesPreview).forget()
        self.query_one(PreviewMap).display = False
        text.rstrip()
        facts = self.query_one("#facts", Static)
        facts.update(text, layout=False)
        room = facts.content_size
        # as many lines as before need no other places for all that is on the screen, which take most of a key's time
        if not room.width or facts.visual.get_height(facts.styles.get_render_rules(), room.width) != room.height:
            facts.refresh(layout=True)
        self.scroll_home(animate=False)
