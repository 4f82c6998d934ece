"""Keeps a draft of a repair: the steps so far, and the contents that they lead to."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.diagnose.fixes import lost_by
from ckptdoctor.edits import Cast, Edit, Safety, WriteIndex
from ckptdoctor.edits.applied.apply_edits import apply, told, without_returning
from ckptdoctor.edits.applied.wanted import Origins, Wanted
from ckptdoctor.edits.fix import Change, Step
from ckptdoctor.edits.tensors import runs
from ckptdoctor.repair.casts import loss_change, lost
from ckptdoctor.repair.sharing import require_twins

ROUNDS = 64  # of repair: far more than wrappers are ever nested; a rule whose fix does not help ends here


class Draft:
    """The steps so far, and the contents that they lead to."""

    def __init__(self, checkpoint: Checkpoint, unsafe: bool = False) -> None:
        self.checkpoint = checkpoint
        self.steps: list[Step] = []
        self.origins = Origins()
        self.original = checkpoint
        self.lost: list[str] = []  # weights that rules leave out, and that are nowhere else
        self._unsafe = unsafe

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits so far, in order."""
        return tuple([edit for step in self.steps for edit in step.edits])

    @property
    def index(self) -> str | None:
        """The name of the index that is written again, where there is one."""
        return next((each.name for each in self.edits if isinstance(each, WriteIndex)), None)

    @property
    def wanted(self) -> Wanted:
        """What all steps together want."""
        return Wanted(self.original, self.checkpoint, self.edits, self.origins.remade, self.origins.pieces)

    def add(
        self,
        label: str,
        name: str,
        title: str,
        safety: Safety,
        edits: tuple[Edit, ...],
        reference: Reference | None = None,
    ) -> None:
        """Add one more step; nothing where it has no edits."""
        said: list[Change] = []
        require_twins(self.checkpoint, edits)
        if safety is Safety.UNSAFE and not label.startswith("--"):  # what was asked for by name is known
            self.lost += lost_by(edits, self.checkpoint)
        for run in runs(edits):
            self.origins.remember(self.checkpoint, run)
            after = apply(self.checkpoint, run)
            said += told(self.checkpoint, run, after)
            self.checkpoint = after
            if isinstance(run[0], Cast):
                loss = lost(self.original, after, self.origins.remade, run[0], self._unsafe)
                said += [] if loss is None else [loss_change(loss)]
                safety = Safety.UNSAFE if loss is not None and loss.changed else safety
        if edits:
            shown = tuple(without_returning(said, edits))
            self.steps.append(Step(label, name, title, safety, edits, shown, _fit(self.checkpoint, reference)))


def _fit(checkpoint: Checkpoint, reference: Reference | None) -> tuple[int, int] | None:
    if reference is None:
        return None
    from ckptdoctor.match.comparing import compare  # most repairs have no target

    coverage = compare(checkpoint, reference).coverage
    return coverage.keys, coverage.total_keys
