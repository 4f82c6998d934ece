"""The parts of the browser tell each other these things. Work in threads reports with them: posting is thread-safe."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:  # each screen imports what it shows, and not what others do
    from ckptdoctor.checkpoint import Container
    from ckptdoctor.checkpoint.progress import Progress
    from ckptdoctor.diagnose.settings import Settings
    from ckptdoctor.findings import FileReport, Finding, RepairReport
    from ckptdoctor.tui.models.comparison import ComparedEntries, News
    from ckptdoctor.tui.models.fitted import FitRow
    from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
    from ckptdoctor.tui.models.side_by_side import ComparisonLine, LineKey
    from ckptdoctor.tui.models.tree import TreeItem
    from ckptdoctor.values.statistics import Values


class OnlyTheLatest(Message):
    """A message of which a later one takes the place of one that nobody has read yet."""

    def can_replace(self, message: Message) -> bool:
        """Return whether the waiting message is of the same kind, so that this one makes it out of date."""
        return isinstance(message, type(self))


@dataclass(eq=False, repr=False)
class FileRecognised(Message):
    """The first bytes of the file say what it is."""

    container: Container


@dataclass(eq=False, repr=False)
class CheckpointOpened(Message):
    """The headers are read and everything that the first painting needs is there."""

    opened: OpenedCheckpoint


@dataclass(eq=False, repr=False)
class FindingFound(Message):
    """A rule has found something, which speaks of the tensors in ``rows``."""

    finding: Finding
    rows: array[int]


@dataclass(eq=False, repr=False)
class Progressed(OnlyTheLatest):
    """Reading every byte has come so far."""

    progress: Progress


@dataclass(eq=False, repr=False)
class ValuesMeasured(Message):
    """Every value has been read: what they are, tensor by tensor."""

    values: Values


@dataclass(eq=False, repr=False)
class ExaminationEnded(Message):
    """Nothing more will be found. ``report`` has everything, or the error why there is nothing.

    ``what`` is the file in a line, in pieces, which takes a while to count for many tensors. ``rows`` are those of the
    tensors that each finding of the report speaks of, where there are contents.
    """

    report: FileReport
    what: list[str]
    rows: list[array[int]]


class FileReplaced(Message):
    """Something else is now at the path of the file whose contents are shown."""


@dataclass(eq=False, repr=False)
class ExaminationFailed(Message):
    """The file, or the request, could not be examined at all; in one sentence."""

    sentence: str


class ChoiceChanged(Message):
    """Other repairs are chosen than before."""


@dataclass(eq=False, repr=False)
class RepairDone(Message):
    """The repaired file is written and verified."""

    report: RepairReport


@dataclass(eq=False, repr=False)
class RepairFailed(Message):
    """Nothing was written; why, in one sentence."""

    sentence: str


@dataclass(eq=False, repr=False)
class ItemSelected(OnlyTheLatest):
    """The cursor of the tree or of the list is on this now: a tensor (its row), a level, or a value."""

    item: TreeItem


@dataclass(eq=False, repr=False)
class ItemActivated(Message):
    """Enter, or a double click, on a tensor or a value: show more of it."""

    item: TreeItem


@dataclass(eq=False, repr=False)
class ItemWanted(Message):
    """Go to this in the contents."""

    item: TreeItem


@dataclass(eq=False, repr=False)
class FindingSelected(Message):
    """The cursor of the findings is on this one now."""

    finding: Finding


@dataclass(eq=False, repr=False)
class FindingActivated(Message):
    """Enter, or a double click, on a finding: go to what it speaks of."""

    finding: Finding


@dataclass(eq=False, repr=False)
class ComparisonWanted(Message):
    """Compare the file with another one of its folder."""

    path: str
    settings: Settings


@dataclass(eq=False, repr=False)
class PathChosen(Message):
    """Open this checkpoint of those to choose from."""

    path: str


@dataclass(eq=False, repr=False)
class ElementWanted(Message):
    """Go to the element of the tensor at these indexes."""

    index: tuple[int, ...]


@dataclass(eq=False, repr=False)
class OrderChanged(Message):
    """The lines of tree or list follow each other in another order, in words."""

    order: str


@dataclass(eq=False, repr=False)
class FilterChanged(Message):
    """Another filter was typed, and this one is understood ("": show everything)."""

    text: str


@dataclass(eq=False, repr=False)
class Computed(Message):
    """A thread has worked out a result; ``then`` takes it, on the thread of the screen."""

    then: Callable[[Any], None]
    result: object


@dataclass(eq=False, repr=False)
class ComparisonMade(Message):
    """The headers of two checkpoints are compared, or contents have brought more tensors together."""

    comparison: ComparedEntries


@dataclass(eq=False, repr=False)
class ValuesCompared(Message):
    """More values are compared; ``ended`` when these were the last, or nobody wanted more."""

    news: News | None
    ended: bool = False


@dataclass(eq=False, repr=False)
class ComparingFailed(Message):
    """Two checkpoints could not be compared, or not to the end; in one sentence."""

    sentence: str


@dataclass(eq=False, repr=False)
class LineSelected(OnlyTheLatest):
    """The cursor of a comparison is on this line now."""

    line: ComparisonLine


@dataclass(eq=False, repr=False)
class LineActivated(Message):
    """Enter, or a double click, on a tensor of a comparison: show how its values differ."""

    line: ComparisonLine


@dataclass(eq=False, repr=False)
class LinesWanted(Message):
    """Open or close a line of a comparison."""

    key: LineKey
    is_open: bool


@dataclass(eq=False, repr=False)
class RowSelected(OnlyTheLatest):
    """The cursor of the coverage is on this row now."""

    row: FitRow


class RowActivated(Message):
    """Enter on a row of the coverage: go to the names that it is about."""
