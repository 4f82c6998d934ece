"""What the parts of the browser tell each other. Work in threads reports with these as well: posting is thread-safe."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from textual.message import Message

from ckptdoctor.checkpoint import Container
from ckptdoctor.diagnose.events import Progress
from ckptdoctor.findings import FileReport, Finding, RepairReport
from ckptdoctor.tui.models.book import Book
from ckptdoctor.tui.models.comparison import Comparison, News
from ckptdoctor.tui.models.fitted import Row
from ckptdoctor.tui.models.side_by_side import Key, Line
from ckptdoctor.tui.models.tree import Item


class FileRecognised(Message):
    """The first bytes of the file say what it is."""

    def __init__(self, container: Container) -> None:
        super().__init__()
        self.container = container


class BookOpened(Message):
    """The headers are read and everything that the first painting needs is there."""

    def __init__(self, book: Book) -> None:
        super().__init__()
        self.book = book


class FindingFound(Message):
    """A rule has found something, which speaks of the tensors in ``rows``."""

    def __init__(self, finding: Finding, rows: array[int]) -> None:
        super().__init__()
        self.finding = finding
        self.rows = rows


class Progressed(Message):
    """How far reading every byte is. Only the latest matters."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def can_replace(self, message: Message) -> bool:
        """A later one takes the place of one that nobody has read yet."""
        return isinstance(message, Progressed)


class ExaminationEnded(Message):
    """Nothing more will be found. ``report`` has everything, or the error why there is nothing.

    ``what`` is the file in a line, in pieces, which takes a while to count for many tensors.
    """

    def __init__(self, report: FileReport, what: list[str]) -> None:
        super().__init__()
        self.report = report
        self.what = what


class ExaminationFailed(Message):
    """The file, or the request, could not be examined at all; in one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class ChoiceChanged(Message):
    """Other repairs are chosen than before."""


class RepairDone(Message):
    """The repaired file is written and verified."""

    def __init__(self, report: RepairReport) -> None:
        super().__init__()
        self.report = report


class RepairFailed(Message):
    """Nothing was written; why, in one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class ItemSelected(Message):
    """The cursor of the tree or of the list is on this now: a tensor (its row), a level, or a value."""

    def __init__(self, item: Item) -> None:
        super().__init__()
        self.item = item

    def can_replace(self, message: Message) -> bool:
        """A later one takes the place of one that nobody has read yet."""
        return isinstance(message, ItemSelected)


class ItemActivated(Message):
    """Enter, or a double click, on a tensor or a value: show more of it."""

    def __init__(self, item: Item) -> None:
        super().__init__()
        self.item = item


class FindingSelected(Message):
    """The cursor of the findings is on this one now."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding


class FindingActivated(Message):
    """Enter, or a double click, on a finding: go to what it speaks of."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding


class ElementWanted(Message):
    """Go to the element of the tensor at these indexes."""

    def __init__(self, index: tuple[int, ...]) -> None:
        super().__init__()
        self.index = index


class OrderChanged(Message):
    """The lines of tree or list follow each other in another order, in words."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order


class FilterChanged(Message):
    """Another filter was typed, and this one is understood ("": show everything)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Computed(Message):
    """What a thread worked out for a widget or a screen; ``then`` takes it, on the thread of the screen."""

    def __init__(self, then: Callable[[Any], None], result: object) -> None:
        super().__init__()
        self.then = then
        self.result = result


class ComparisonMade(Message):
    """The headers of two checkpoints are compared, or contents have brought more tensors together."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison


class ValuesCompared(Message):
    """More values are compared; ``ended`` when these were the last, or nobody wanted more."""

    def __init__(self, news: News | None, *, ended: bool = False) -> None:
        super().__init__()
        self.news = news
        self.ended = ended


class ComparingFailed(Message):
    """Two checkpoints could not be compared, or not to the end; in one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class LineSelected(Message):
    """The cursor of a comparison is on this line now."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.line = line

    def can_replace(self, message: Message) -> bool:
        """A later one takes the place of one that nobody has read yet."""
        return isinstance(message, LineSelected)


class LineActivated(Message):
    """Enter, or a double click, on a tensor of a comparison: show how its values differ."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.line = line


class LinesWanted(Message):
    """Open or close a line of a comparison."""

    def __init__(self, key: Key, is_open: bool) -> None:
        super().__init__()
        self.key = key
        self.is_open = is_open


class RowSelected(Message):
    """The cursor of the coverage is on this row now."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row

    def can_replace(self, message: Message) -> bool:
        """A later one takes the place of one that nobody has read yet."""
        return isinstance(message, RowSelected)


class RowActivated(Message):
    """Enter on a row of the coverage: go to the names that it is about."""
