"""Carries out a repair in a thread and reports to a screen how far it is."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from textual.message_pump import MessagePump

from ckptdoctor.diagnose.events import Progress
from ckptdoctor.errors import StoppedError
from ckptdoctor.tui.background import guarded
from ckptdoctor.tui.messages import Progressed, RepairDone, RepairFailed

if TYPE_CHECKING:
    from ckptdoctor.repair.plan import Plan


class Repairing:
    """One repair. ``stop`` ends it between two blocks; then nothing has been written."""

    def __init__(self, screen: MessagePump, plan: Plan) -> None:
        self.screen = screen
        self.plan = plan
        self._stopped = Event()

    def stop(self) -> None:
        """End it; until the new file has got its name."""
        self._stopped.set()

    def run(self) -> None:
        """Write the output and prove it; for a thread worker."""
        guarded(self._repair, lambda sentence: self.screen.post_message(RepairFailed(sentence)))

    def _repair(self) -> None:
        from ckptdoctor.converting.repaired import carry_out

        try:
            report = carry_out(self.plan, self._watch).report
        except StoppedError:
            self.screen.post_message(RepairFailed("Stopped."))
        else:
            self.screen.post_message(RepairDone(report))

    def _watch(self, progress: Progress) -> None:
        if self._stopped.is_set():
            raise StoppedError
        self.screen.post_message(Progressed(progress))
