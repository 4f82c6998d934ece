"""Lets people choose repairs, see what they do, and have the repaired file written under a new name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.timer import Timer
from textual.widgets import Input, Static

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.offers import Offer, planned, request_of
from ckptdoctor.findings import RepairReport
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.shell import with_path
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import Background
from ckptdoctor.tui.keys import PANES, key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.planned import PlanRow, changed_bytes, dropped, free, objection, rows, summary
from ckptdoctor.tui.screens import STACKED, WIDTHS
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.screens.questions import ConfirmScreen
from ckptdoctor.tui.screens.writing import WritingScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.fix_list import FixList, OutputName
from ckptdoctor.tui.widgets.plan import PlanView
from ckptdoctor.tui.workers import SharedTarget

if TYPE_CHECKING:
    from ckptdoctor.repair.plan import Plan

_PAUSE = 0.06  # seconds without another change before the plan is made


@dataclass(frozen=True, slots=True)
class _Sight:
    """The outcome of a request: a plan, or why there is none; and what speaks against the name of the output."""

    request: FixRequest
    plan: Plan | None = None
    report: RepairReport | None = None
    rows: tuple[PlanRow, ...] = ()
    refusal: str = ""
    dropped: tuple[str, ...] = ()
    usual: str = ""
    objection: str = ""
    remark: str = ""


class RepairScreen(PanedScreen[str], Background):
    """Gives the path of the repaired file where it is to be opened."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = STACKED
    AUTO_FOCUS = "FixList"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "write", "write", "Write the repaired file, after a question", show=True, display="⏎"),
        key("n", "name", "name", "Change the name of the new file", show=True),
        *PANES,
        key(
            "escape,less_than_sign,alt+left",
            "back",
            "back",
            "Back to the contents; nothing is written",
            show=True,
            display="esc",
        ),
        key("question_mark,f1", "help", "help", "All keys", show=True),
    ]

    def __init__(
        self,
        path: str,
        offered: Sequence[Offer],
        settings: Settings | None = None,
        at: str | None = None,
        target: SharedTarget | None = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.offered = [replace(each, why=with_path(each.why, path)) for each in offered]
        self.settings = settings or Settings()
        self.target = target or SharedTarget(self.settings, path)
        self._at = at
        self._sight: _Sight | None = None
        self._waiting: Timer | None = None
        self._named = False  # whether somebody has given the output its name
        self._wanted = False  # whether it is to be written as soon as it is planned
        self._given = ""  # the name that was put into the field last, and not typed

    def compose(self) -> ComposeResult:
        """Yield repairs, what they do, and the name of the new file."""
        yield TitleBar([escape(addresses.shown(self.path)), "repair"], id="title")
        with Container(id="repair"):
            yield FixList(self.offered, id="fixes")
            yield PlanView(id="plan")
        with Horizontal(id="output"):
            yield OutputName(compact=True, id="output-name")
            yield Static("", markup=False, id="output-said")
        yield KeyBar()

    def on_mount(self) -> None:
        """Make the plan of what is usual."""
        self.query_one("#fixes").border_title = "repairs"
        self.query_one("#plan").border_title = "plan"
        self.query_one("#output").border_title = "new file"
        if self._at is not None:
            self.call_after_refresh(self.query_one(FixList).go_to, self._at)
        self._plan_anew()

    def command(self) -> str:
        """Return the equal command line."""
        request, sight = self._request(), self._sight
        if request is None:
            return command_line.check(self.path, self.settings)
        if sight is None or sight.plan is None:
            return command_line.fix(request, self.settings)
        return command_line.fix(replace(request, output=sight.plan.output), self.settings, sight.usual)

    # the plan

    def on_choice_changed(self, message: messages.ChoiceChanged) -> None:
        """Make another plan."""
        self._plan_anew()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Plan again with another name, once typing pauses."""
        event.stop()
        if self.query_one(Input).has_focus:
            self._named = True
            self._sight, self._wanted = None, False
            self._plan_soon()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the name, and go on to the question."""
        event.stop()
        self.action_write()

    def _plan_soon(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = self.set_timer(_PAUSE, self._plan_named)

    def _plan_named(self) -> None:
        wanted = self._wanted
        self._plan_anew()
        self._wanted = wanted

    def _plan_anew(self) -> None:
        chosen = self.query_one(FixList).chosen
        possible = sum([offer.safety is not None for offer in self.offered])
        self.query_one("#fixes").border_subtitle = f"{len(chosen)} of {possible} chosen" if possible else ""
        self._sight, self._wanted, request = None, False, self._request()
        self.query_one(TitleBar).say(state="" if request is None else "planning…")
        if request is None:
            self.workers.cancel_group(self, "plan")
            self._show_nothing()
            return
        self.compute(lambda: _seen(request, self.target), self._show, "plan")

    def _request(self) -> FixRequest | None:
        """Return the choice as a request; None where nothing is chosen."""
        chosen = self.query_one(FixList).chosen
        if not chosen:
            return None
        name = os.path.expanduser(self.query_one(Input).value.strip()) if self._named else None
        return request_of(self.path, self.offered, chosen, self.settings, name)

    def _show_nothing(self) -> None:
        any_at_all = any(offer.safety is not None for offer in self.offered)
        text = "Choose a repair with the space bar." if any_at_all else "There is no repair for what was found."
        # what to do instead has more room here than in the list
        instead = [] if any_at_all else [escape(f"{each.code} {each.name}: {each.why}") for each in self.offered]
        shown = [PlanRow("note", text), *[PlanRow("plain", line) for each in instead for line in ("", each)]]
        self.query_one(PlanView).show(shown)
        self.query_one("#plan").border_subtitle = ""
        self._say("")

    def _show(self, sight: _Sight) -> None:
        if sight.request != self._request():  # something else has been chosen or typed meanwhile
            return
        self._sight = sight
        self.query_one(TitleBar).say(state="")
        self._tell(sight)
        if self._wanted:
            self._wanted = False
            self.action_write()

    def _tell(self, sight: _Sight) -> None:
        pane = self.query_one("#plan")
        report = sight.report
        if report is None:
            first, *more = [escape(line) for line in sight.refusal.split("\n")]
            self.query_one(PlanView).show([PlanRow("error", first), *[PlanRow("plain", line) for line in more]])
            pane.border_subtitle = "refused"
            self._say("")
            return
        self.query_one(PlanView).show(sight.rows)
        pane.border_subtitle = summary(report) if report.steps else ""
        if not self._named:
            self._give(report.output if sight.plan is not None and sight.plan.recipe else "")
        said = [sight.remark, changed_bytes(report)] if sight.plan is not None and sight.plan.recipe is not None else []
        self._say(sight.objection or " · ".join(filter(None, said)), wrong=bool(sight.objection))

    def _give(self, usual: str) -> None:
        """Put the usual name into the field; behind it, if it would not print, or if somebody has emptied the field."""
        name = self.query_one(OutputName)
        prints = usual.isprintable()
        name.placeholder = "" if prints and not name.edited else escape(usual)
        if name.value == self._given and not name.edited:
            with self.prevent(Input.Changed):
                name.value = self._given = usual if prints else ""
            name.action_end()

    def _say(self, text: str, *, wrong: bool = False) -> None:
        said = self.query_one("#output-said", Static)
        said.update(text)
        said.set_class(wrong, "-wrong")

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action can be used: a new file needs a repair."""
        return action not in ("write", "name") or any(offer.safety is not None for offer in self.offered)

    def action_write(self) -> None:
        """Ask, then write."""
        sight = self._sight
        if sight is None:
            self._wanted = self._request() is not None  # as soon as there is a plan
            if not self._wanted:
                self.app.notify("No repair is chosen: press space to choose one.", markup=False)
            return
        if sight.plan is None or sight.report is None:
            self.app.notify(sight.refusal.split("\n")[0], severity="error", markup=False)
        elif sight.plan.recipe is None:
            self.app.notify("The chosen repairs change nothing: there is nothing to write.", markup=False)
        elif sight.objection:
            self.app.notify(sight.objection, severity="error", markup=False)
            self.action_name()
        else:
            plan, question = sight.plan, ConfirmScreen(sight.report, sight.dropped)
            self.app.push_screen(question, lambda yes: self._write(plan) if yes else None)

    def _write(self, plan: Plan) -> None:
        self.app.push_screen(WritingScreen(plan), lambda opened: self._written(plan, bool(opened)))

    def _written(self, plan: Plan, opened: bool) -> None:
        if opened:
            self.dismiss(plan.output)
        else:
            self._plan_anew()  # the name is taken now

    def action_name(self) -> None:
        """Go to the name of the new file."""
        name = self.query_one(Input)
        self.set_focus(name)
        name.action_end()

    def action_back(self) -> None:
        """Go from the name to the repairs, and from there to the contents."""
        name = self.query_one(OutputName)
        if not name.has_focus:
            self.dismiss(None)
            return
        self.query_one(FixList).focus()
        if not name.value.strip():  # nothing given: the usual name again
            self._named, self._given, name.edited = False, name.value, False
            self._plan_anew()

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))


def _objection(plan: Plan, request: FixRequest, report: RepairReport) -> str:
    return objection(plan.output, request.path, report.format, request.output)


def _seen(request: FixRequest, target: SharedTarget) -> _Sight:
    """Make the plan, and look whether its output may be written; for a thread."""
    from ckptdoctor.repair.repair import preview

    try:
        plan = planned(replace(request, reference=target.read()) if request.auto else request, target.settings)
    except CkptDoctorError as error:
        return _Sight(request, refusal=error.message)
    own, remark = plan.output, ""
    if request.output is None and plan.recipe is not None:
        plan = replace(plan, output=free(own))
        remark = "" if plan.output == own else f"{os.path.basename(own)} already exists"
    report, tree = preview(plan), plan.original.tree
    return _Sight(
        request,
        plan,
        report,
        rows=tuple(rows(report, tree)) if report.steps else (PlanRow("note", "Nothing to change."),),
        dropped=tuple(dropped(report, tree)),
        usual=own if request.output is None else "",
        objection=_objection(plan, request, report) if plan.recipe is not None else "",
        remark=remark,
    )
