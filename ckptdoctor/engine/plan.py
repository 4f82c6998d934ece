"""Turns a request into a plan: which edits, in which order, what comes of them, and how it will be written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, FileSource, Tensor
from ckptdoctor.edits import Compact, Edit, MakeContiguous, MoveToCpu, Safety, SetSuffix
from ckptdoctor.edits.steps import Change, Step
from ckptdoctor.engine.apply_edits import apply
from ckptdoctor.engine.compacting import Piece, byte_span, kept_pieces, narrowed, remade_views
from ckptdoctor.engine.cures import container_findings, cures, independent, outside
from ckptdoctor.engine.diagnose import findings_of
from ckptdoctor.engine.moving import held_values
from ckptdoctor.engine.options import wishes
from ckptdoctor.engine.request import FixRequest, output_path
from ckptdoctor.engine.steps import changes
from ckptdoctor.findings import Finding
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.writing import Recipe

# Rounds of diagnosis and cure: far more than wrappers are ever nested; a rule whose cure does not heal ends here
_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """A repair before anything is written.

    ``expected`` is what the output must hold. ``recipe`` is None where there is nothing to repair. ``pieces`` are the
    byte ranges of the original's storages that storages (by key) shrink to. ``remade`` are the views of them, and the
    tensors with values in the pickle, whose elements new storages (by key in ``expected``) hold. ``left`` are the
    findings of the rules that were to be cured for which no cure is in the plan: there is none, or it is unsafe.
    """

    request: FixRequest
    output: str
    original: Checkpoint
    expected: Checkpoint
    steps: tuple[Step, ...]
    recipe: Recipe | None
    pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    remade: dict[str, Tensor] = field(default_factory=dict)
    left: tuple[Finding, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, in order."""
        return tuple([edit for step in self.steps for edit in step.edits])


def plan(request: FixRequest) -> Plan:
    """What the request means for its file. Reads headers only, and writes nothing.

    Raises UnreadableError, NotACheckpointError and DamagedError for the file, UsageError for a bad option,
    RefusedError for what cannot be done without loss or a guess, UnprovenError where a lossless repair cannot be
    promised.
    """
    rules = request.selection.chosen(all_rules())
    with FileSource(request.path) as source:
        container = formats.examine(source)
        original = formats.read(source, container)
        draft = _Draft(original)
        for wish in wishes(request):
            draft.add(wish.label, "", wish.title, Safety.SAFE, tuple(wish.edits(draft.checkpoint)))
        left = _cure(draft, container, rules, request.unsafe) if request.cures else []
        edits = tuple([edit for step in draft.steps for edit in step.edits])
        recipe = formats.rewrite(source, original, edits) if edits else None
    suffix = next((edit.suffix for edit in reversed(edits) if isinstance(edit, SetSuffix)), None)
    output = output_path(request, suffix)
    return Plan(
        request=request,
        output=output,
        original=original,
        expected=draft.checkpoint,
        steps=tuple(draft.steps),
        recipe=recipe,
        pieces=draft.pieces,
        remade=draft.remade,
        left=tuple(left),
    )


class _Draft:
    """The steps so far, and the contents that they lead to."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.steps: list[Step] = []
        self.pieces: dict[str, tuple[Piece, ...]] = {}
        self.remade: dict[str, Tensor] = {}

    def add(self, label: str, name: str, title: str, safety: Safety, edits: tuple[Edit, ...]) -> None:
        """One more step; nothing where it has no edits."""
        said: list[Change] = []
        for edit in edits:
            self._remember(edit)
            after = apply(self.checkpoint, (edit,))
            said += changes(self.checkpoint, edit, after)
            self.checkpoint = after
        if edits:
            self.steps.append(Step(label, name, title, safety, edits, tuple(said)))

    def _remember(self, edit: Edit) -> None:
        """Where the bytes of storages come from that ``edit`` takes apart, in terms of the original."""
        if isinstance(edit, Compact):
            for key, kept in kept_pieces(self.checkpoint.tensors, edit.storages).items():
                self.pieces[key] = narrowed(self.pieces[key], kept) if key in self.pieces else kept
        elif isinstance(edit, MoveToCpu):
            self.remade.update(held_values(self.checkpoint, edit))
        elif isinstance(edit, MakeContiguous):
            for key, view in remade_views(self.checkpoint, edit).items():
                assert view.storage is not None
                pieces = self.pieces.get(view.storage.key)
                if pieces is not None:
                    start, stop = byte_span(view)
                    ranges = narrowed(pieces, ((start, stop - start),))
                    offset = ranges[0][0] * 8 // view.dtype.bits if ranges else 0
                    view = replace(view, offset=offset)
                self.remade[key] = view


def _cure(draft: _Draft, container: Container, rules: tuple[Rule, ...], unsafe: bool) -> list[Finding]:
    """Add the cures of what the rules find, round after round, until none is left that may be applied.

    Gives the findings that stay. Raises RuntimeError for a rule whose cure does not heal: that is a bug in the rule.
    """
    around = container_findings(container, rules)
    cured: list[tuple[str, tuple[Edit, ...]]] = []  # a list: the values of edits need not be hashable
    for _ in range(_ROUNDS):
        found = [*around, *findings_of(draft.checkpoint, rules)]
        wanted = cures(found, unsafe)
        if not wanted:
            return found
        for finding, fix in independent(wanted):
            if (finding.code, fix.edits) in cured:
                raise RuntimeError(f"{finding.code} finds the same again after its own cure ({fix.title})")
            cured.append((finding.code, fix.edits))
            draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits)
            if outside(fix.edits):  # the file around the contents is examined again once it is written
                around.remove(finding)
    raise RuntimeError(f"there is no end of cures; the last one was that of {draft.steps[-1].label}")
