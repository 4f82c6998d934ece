"""Takes the cursor to places: findings, layers, values, bookmarks, and back to where somebody has been."""

from __future__ import annotations

from ckptdoctor.checkpoint import show_path
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fates import damaged_file
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import OPENS
from ckptdoctor.tui.models import history
from ckptdoctor.tui.models.tree import TreeItem
from ckptdoctor.tui.screens.examined import ExaminedScreen
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from ckptdoctor.tui.workers import SharedTarget


class PlacesScreen(ExaminedScreen):
    """Its lines are gone to by what they are, not by where they are."""

    def __init__(self, path: str, settings: Settings, target: SharedTarget | None = None) -> None:
        super().__init__(path, settings, target)
        self._chosen: int | None = None  # the finding that n has come to
        self._trail = history.Trail()

    def on_item_activated(self, message: messages.ItemActivated) -> None:
        """Show the values of a tensor; of anything else, go into the pane with its details, if there is more there."""
        detail = self.query_one(Detail)
        if isinstance(message.item, int):
            self._open(message.item)
        elif detail.has_more or not detail.display:
            detail.focus()
        else:
            self.app.notify("The pane with its details shows all of it.", markup=False)

    def on_item_wanted(self, message: messages.ItemWanted) -> None:
        """Go to a layer that was chosen in the pane at the right."""
        self._trail.leave(self._under_cursor())
        self._show_item(message.item)

    def on_element_wanted(self, message: messages.ElementWanted) -> None:
        """Open the tensor under the cursor at the value that was clicked on."""
        item = self._under_cursor()
        if isinstance(item, int):
            self._open(item, message.index)

    def _open(self, row: int, at: tuple[int, ...] | None = None) -> None:
        from ckptdoctor.tui.screens.tensor import TensorScreen

        if self.opened is not None:
            self.app.push_screen(TensorScreen(self.opened, row, at))

    def on_finding_activated(self, message: messages.FindingActivated) -> None:
        """Go to the first thing that it names, and there."""
        self._go_to(message.finding, entered=True)

    def action_next_finding(self, by: int) -> None:
        """Choose another finding, and show what it is about."""
        view = self.query_one(FindingsView)
        if view.findings:
            at = 0 if by > 0 else -1
            self._chosen = (at if self._chosen is None else self._chosen + by) % len(view.findings)
            view.cursor = self._chosen
            self._go_to(view.findings[view.cursor], entered=False)

    def _go_to(self, finding: Finding, *, entered: bool) -> None:
        """Show the first thing that it names, in tree or list; where none is there, the file that is damaged."""
        named = finding.keys or (() if finding.location.path is None else (finding.location.path,))
        if self.opened is None:
            return
        there = self.opened.first_of(named)
        if not entered and there is None:
            self.query_one(FindingsView).selected(self.query_one(FindingsView).cursor)
        elif there is None and damaged_file(self.path, finding) is not None:
            self._salvage(finding)
        elif not named:
            self.app.notify("This finding is about the file as a whole.", markup=False)
        else:
            view = self._contents()
            self._trail.leave(self._under_cursor())
            view.reveal(named[0] if there is None else there)
            self._arrive()
            if there is None:
                self.app.notify(escape(f"{show_path(named[0])} is not in the checkpoint."), markup=False)

    def _salvage(self, finding: Finding) -> None:
        file = damaged_file(self.path, finding)
        if file is None:
            return

        def show(report: FileReport) -> None:
            from ckptdoctor.tui.screens.damaged import DamagedScreen

            if self.is_current:
                self.app.push_screen(DamagedScreen(report, file, self._of))

        self.compute(lambda: check(file), show, OPENS)

    # where somebody has been

    def wander(self, by: int) -> bool:
        """Put the cursor back on what it was on before it was taken elsewhere, or forward again."""
        item = self._trail.wander(by, self._under_cursor())
        if item is not None:
            self._show_item(item)
        return item is not None

    def _show_item(self, item: TreeItem) -> None:
        view = self._contents()
        assert self.opened is not None
        if isinstance(view, TreeView):
            view.reveal_item(item)
        elif isinstance(item, int):
            view.reveal(self.opened.table.tensors[item].path)
        self._arrive()

    def _arrive(self) -> None:
        """Go on where the cursor was taken: a list without the focus does not tell other panes that it has moved."""
        view = self._contents()
        if view.focusable:
            view.focus()
        else:  # another pane has all the room
            view.selected(view.cursor)

    def action_bookmark(self) -> None:
        """Put a bookmark on what the cursor is on, or take it away."""
        item, opened = self._under_cursor(), self.opened
        if opened is None or item is None:
            return
        name = opened.name_of(item)
        if name in opened.bookmarks:
            opened.bookmarks.remove(name)
        else:
            opened.bookmarks.append(name)
        self.query_one(TreeView).redraw()
        self.query_one(ListView).redraw()
        kept = list(opened.bookmarks)
        self.run_worker(lambda: self._keep(kept), group="bookmarks", thread=True)

    def _keep(self, marked: list[str]) -> None:
        """Write bookmarks down; for a thread."""
        if not history.keep_bookmarks(self.path, marked):
            self.post_message(messages.Computed(self._say_lost, None))

    def _say_lost(self, _: None) -> None:
        said = "Bookmarks cannot be saved here: these are gone when the browser is closed."
        self.app.notify(said, severity="warning", markup=False)

    def action_next_bookmark(self) -> None:
        """Go to the next bookmark, in the order in which they were put."""
        item, opened = self._under_cursor(), self.opened
        if opened is None or item is None:
            return
        marked = opened.bookmarks
        if not marked:
            self.app.notify("There are no bookmarks yet: press b to set one at the cursor.", markup=False)
            return
        here = opened.name_of(item)
        name = marked[(marked.index(here) + 1) % len(marked) if here in marked else 0]

        def go(found: TreeItem | None) -> None:
            if found is None:
                self.app.notify(f"{escape(name)} is no longer in the checkpoint.", markup=False)
            else:
                self._trail.leave(self._under_cursor())
                self._show_item(found)

        self.compute(lambda: opened.item_called(name), go, "bookmark", len(opened.table))

    def _under_cursor(self) -> TreeItem | None:
        view = self._contents()
        if isinstance(view, ListView):
            return view.rows[view.cursor] if view.count() else None
        line = view.line()
        return line.item if line is not None else None
