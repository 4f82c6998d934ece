"""Turns a request into a plan: which edits, in which order, what comes of them, and how it will be written."""

from __future__ import annotations

from dataclasses import field, replace
from time import perf_counter

from ckptdoctor import formats
from ckptdoctor.account.account import require_accounted
from ckptdoctor.checkpoint import Checkpoint, Container, Source, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.checkpoint.source import to_be_rewritten
from ckptdoctor.diagnose.findings import findings_of, possible
from ckptdoctor.diagnose.fixes import container_findings, fixes, independent, lost_by, of_index, outside
from ckptdoctor.edits import (
    Cast,
    Drop,
    Edit,
    Flatten,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Safety,
    SetSuffix,
    TakeRoot,
    Truncate,
    WriteIndex,
)
from ckptdoctor.edits.applied.apply_edits import apply, told, without_returning
from ckptdoctor.edits.applied.compacting import Piece
from ckptdoctor.edits.applied.wanted import Origins, Wanted
from ckptdoctor.edits.elements import Elements
from ckptdoctor.edits.fix import Change, Step
from ckptdoctor.edits.kinds import Compute
from ckptdoctor.edits.tensors import runs
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.facts.incomplete import require_own_values
from ckptdoctor.facts.notes import unwrapped_path
from ckptdoctor.findings import Finding, NextStep, Severity
from ckptdoctor.formats.suffixes import asked_for
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.nested_parts import parts_for
from ckptdoctor.match.parametrized import orthogonals
from ckptdoctor.noun import noun
from ckptdoctor.repair.attention import attention_edits
from ckptdoctor.repair.casts import dtype_edits, loss_change, lost, values_fixes
from ckptdoctor.repair.chain import next_link
from ckptdoctor.repair.finishing import Attempt
from ckptdoctor.repair.fits_target import (
    UnfitError,
    answered,
    one_choice,
    rearranged,
    require_fit,
    require_no_others,
    spare_parts,
)
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.repair.remapping import in_its_place, remap_edits
from ckptdoctor.repair.request import EXPERT_LAYOUTS, FixRequest, index_path, output_path, require_local
from ckptdoctor.repair.sharing import require_twins
from ckptdoctor.repair.steps_from_options import option_steps
from ckptdoctor.repair.target_from_error import require_confirmed, with_target
from ckptdoctor.repair.witness import with_ties, witnessed
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.rules.shape.moe_stacked_experts import edits_for
from ckptdoctor.wording import plural
from ckptdoctor.writing import Recipe

# Rounds of diagnosis and repair: far more than wrappers are ever nested; a rule whose fix does not help ends here
_ROUNDS = 64

# edits that leave tensors as they are, whatever their state makes of them
_ONLY_NAMES = (Drop, Rename, RenameModules, Renumber, Reorder, SetSuffix, TakeRoot, Truncate, WriteIndex)


@noun
class Plan:
    """A repair before anything is written.

    ``expected`` is what the output must hold. ``recipe`` says how to write it in the container of the original; it is
    None where there is nothing to repair, and where that container is read but not written. ``pieces`` are the byte
    ranges of the original's storages that storages (by key) shrink to. ``remade`` is what new storages (by key in
    ``expected``) hold: views of the original's storages, and values that stood in the pickle. ``left`` are the
    findings of the rules that were to be fixed for which no fix is in the plan: there is none, or it is unsafe.
    ``index`` is the name of the index that is written anew, where the checkpoint is a folder: the output is that index.
    Planning took so many ``seconds``: a cast is measured first.
    ``next`` is what to do with the original where there is nothing to repair. ``converts`` is the container that the
    output's name asks for, where the original's is another: what is wanted is written in that one. ``file`` is where
    the original's bytes lie: itself, what it was unpacked into, or a folder.
    """

    request: FixRequest
    output: str
    original: Checkpoint
    expected: Checkpoint
    steps: tuple[Step, ...]
    recipe: Recipe | None
    pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    remade: dict[str, Elements] = field(default_factory=dict)
    left: tuple[Finding, ...] = ()
    index: str | None = None
    seconds: float = 0.0
    next: NextStep | None = None
    converts: str | None = None
    file: str = ""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, in order."""
        return tuple([edit for step in self.steps for edit in step.edits])

    @property
    def wanted(self) -> Wanted:
        """What is wanted of the output."""
        return Wanted(self.original, self.expected, self.edits, self.remade, self.pieces)


@collector_paused()
def plan(request: FixRequest) -> Plan:
    """What the request means for its file. Reads headers only, and writes nothing.

    Raises UnreadableError, NotACheckpointError and DamagedError for the file, UsageError for a bad option,
    RefusedError for what cannot be done without loss or a guess, UnprovenError where a lossless repair cannot be
    promised: the file cannot be written as it was, or what would come of it does not add up (``account.account``).
    """
    started = perf_counter()
    rules = request.selection.chosen(all_rules())
    require_local(request.path)
    with formats.opened(request.path) as (source, container):
        to_be_rewritten(source)
        original = formats.read(source, container)
        request = with_target(request, original)
        require_confirmed(request)
        draft = _Draft(original, request.unsafe)
        for finding, fix in values_fixes(original, source, rules) if request.selection.select is not None else ():
            draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits)
        _add_options(draft, request)
        if request.remap_optimizer and request.reference is not None:
            request = replace(request, reference=in_its_place(request.reference, draft.checkpoint))
        if request.auto:
            if request.reference is not None:
                request = replace(request, reference=with_ties(request.reference))
            _fit_or_say(draft, source, request, rules)
            _unpack(draft, container)
        if request.remap_optimizer:
            edits = tuple(remap_edits(draft.checkpoint, request.reference, request.unsafe))
            draft.add("--remap-optimizer", "", "number the parameters of optimizers anew", Safety.SAFE, edits)
        if request.dtype is not None:
            _cast(draft, request.dtype)
        left = _fix_findings(draft, container, rules, request.unsafe) if request.fixes else []
        edits = tuple([edit for step in draft.steps for edit in step.edits])
        if not all(isinstance(edit, _ONLY_NAMES) for edit in edits):
            require_own_values(original)
        require_accounted(original, draft.checkpoint, edits, draft.origins.remade, draft.origins.pieces)
        converts = None if draft.index is not None else asked_for(request.output, draft.checkpoint.format)
        recipe = None
        if edits and (converts is None or formats.is_written(original.format)):
            recipe = formats.rewrite(source, draft.wanted)
        after = None
        if not edits:
            wrong = _wrong(original, container, request)
            left += [each for each in wrong if (each.code, each.keys) not in {(one.code, one.keys) for one in left}]
            after = next_step(request.path, original, wrong, weights_only_refusal(source, container))
    suffix = next((edit.suffix for edit in reversed(edits) if isinstance(edit, SetSuffix)), None)
    output = output_path(request, suffix, unwrapped_path(container))
    if draft.index is not None:
        output = index_path(request, draft.index)
    return Plan(
        request=request,
        output=output,
        original=original,
        expected=draft.checkpoint,
        steps=tuple(draft.steps),
        recipe=recipe,
        pieces=draft.origins.pieces,
        remade=draft.origins.remade,
        left=tuple(left),
        index=draft.index,
        seconds=perf_counter() - started,
        next=after,
        converts=converts,
        file=source.file,
    )


def _unpack(draft: _Draft, container: Container) -> None:
    """Take what fits as it is out of the archive that it is packed in; what is written anew is not packed anyway."""
    for finding in () if draft.steps else container_findings(container, all_rules()):
        if finding.code == "C102" and finding.fix is not None:
            draft.add(finding.code, finding.name, finding.fix.title, finding.fix.safety, finding.fix.edits)


@collector_paused()
def is_carried_out(request: FixRequest) -> bool:
    """Whether the chain towards a target would be written, and lose no weight.

    As ``plan``, without what would finish where it is not.

    Raises what ``plan`` does where it is refused.
    """
    with formats.opened(request.path) as (source, container):
        original = formats.read(source, container)
        draft = _Draft(original, request.unsafe)
        _add_options(draft, request)
        fit_to_reference(draft, source, request, all_rules())
        edits = tuple([edit for step in draft.steps for edit in step.edits])
        if not all(isinstance(edit, _ONLY_NAMES) for edit in edits):
            require_own_values(original)
        return bool(edits) and not draft.lost and formats.rewrite(source, draft.wanted) is not None


def _add_options(draft: _Draft, request: FixRequest) -> None:
    """Add the steps of the options."""
    for step in option_steps(request):
        edits = tuple(step.edits(draft.checkpoint))
        safety = Safety.UNSAFE if _loses(draft.checkpoint, edits) else Safety.SAFE
        draft.add(step.label, "", step.title, safety, edits)


def _fit_or_say(draft: _Draft, source: Source, request: FixRequest, rules: tuple[Rule, ...]) -> None:
    """Fit the target, or raise the refusal with what would finish, each way of which is planned here."""
    original = draft.original

    def attempt(wanted: FixRequest) -> Attempt:
        tried = _Draft(original, wanted.unsafe)
        try:
            _add_options(tried, wanted)
            fit_to_reference(tried, source, wanted, rules)
        except (RefusedError, UsageError) as error:
            return Attempt(tried.checkpoint, tuple(tried.steps), False, error.message)
        return Attempt(tried.checkpoint, tuple(tried.steps), fits=True, lost=tuple(tried.lost))

    try:
        fit_to_reference(draft, source, request, rules)
    except UnfitError as error:
        raise answered(error, original, request, attempt) from None


def _wrong(checkpoint: Checkpoint, container: Container, request: FixRequest) -> list[Finding]:
    """The errors in a file in which nothing is to be repaired: a target may want what is wrong by itself."""
    contents = findings_of(checkpoint, all_rules(), request.reference if request.auto else None)
    found = [possible(each, container) for each in [*container_findings(container, all_rules()), *contents]]
    return [each for each in found if each.severity is Severity.ERROR]


class _Draft:
    """The steps so far, and the contents that they lead to."""

    def __init__(self, checkpoint: Checkpoint, unsafe: bool = False) -> None:
        self.checkpoint = checkpoint
        self.steps: list[Step] = []
        self.origins = Origins()
        self.original = checkpoint
        self.lost: list[str] = []  # weights that rules leave out, and that are nowhere else
        self._unsafe = unsafe

    @property
    def index(self) -> str | None:
        """The name of the index that is written anew, where one is."""
        return next((each.name for step in self.steps for each in step.edits if isinstance(each, WriteIndex)), None)

    @property
    def wanted(self) -> Wanted:
        """What all steps together want."""
        edits = tuple([edit for step in self.steps for edit in step.edits])
        return Wanted(self.original, self.checkpoint, edits, self.origins.remade, self.origins.pieces)

    def add(
        self,
        label: str,
        name: str,
        title: str,
        safety: Safety,
        edits: tuple[Edit, ...],
        reference: Reference | None = None,
    ) -> None:
        """One more step; nothing where it has no edits."""
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


def _loses(checkpoint: Checkpoint, edits: tuple[Edit, ...]) -> bool:
    """Whether something that the file holds is not in it afterwards: a loss, though it was asked for."""
    roots = [edit.path for edit in edits if isinstance(edit, TakeRoot)]
    left_out = any(True for path in roots for _ in beside(checkpoint.tree, path))
    return left_out or any(isinstance(edit, (Compute, Drop)) for edit in edits)


def _cast(draft: _Draft, dtype: str) -> None:
    """Add the step that casts the weights."""
    edits = tuple(dtype_edits(draft.checkpoint, dtype))
    draft.add(f"--dtype {dtype}", "", f"cast to {dtype}", Safety.SAFE, edits)


def _fit(checkpoint: Checkpoint, reference: Reference | None) -> tuple[int, int] | None:
    if reference is None:
        return None
    coverage = compare(checkpoint, reference).coverage
    return coverage.keys, coverage.total_keys


def fit_to_reference(draft: _Draft, source: Source, request: FixRequest, rules: tuple[Rule, ...]) -> None:
    """Add the steps that make the contents fit the target.

    Raises UsageError without a target, and RefusedError where they do not fit in the end: what is left, and why.
    """
    reference = request.reference
    if reference is None:
        raise UsageError("--auto needs to know the target: add --like OTHER, or --model MODULE:CLASS.")
    _put_together(draft, reference)
    chosen = one_choice(draft.checkpoint, reference, request, source)
    if chosen is not None:
        title = f"take {show_path(chosen)}, which has the same bytes as the others or the target"
        draft.add("W301", "nested-state-dict", title, Safety.SAFE, (TakeRoot(chosen),))
    spare = spare_parts(draft.checkpoint, reference, request, source)
    if spare:  # every byte was compared, so that nothing is lost
        title = f"leave out {plural(len(spare), 'key')} with the same bytes as others"
        draft.add("values", "", title, Safety.CONFIRMED, (Drop(spare),), reference)
    heads = reference.heads if request.heads is None else request.heads
    asked, reference = reference, replace(reference, certain=True, heads=heads)
    for _ in range(_ROUNDS):
        if not (
            _rename_towards(draft, reference)
            or _confirm(draft, request, reference, rules)
            or _arrange_attention(draft, request, reference)
            or _arrange_experts(draft, request, reference)
            or _compute_orthogonal(draft, request, reference)
            or _go_by_values(draft, source, reference)
        ):
            break
    require_fit(draft.checkpoint, replace(asked, heads=heads))
    require_no_others(draft.checkpoint, reference)


def _put_together(draft: _Draft, reference: Reference) -> None:
    """Make one flat state dict of the parts of the target, where they lie in dicts of their own."""
    parts = parts_for(draft.checkpoint, reference)
    if parts is not None:
        title = "put the parts of the model together, by the names on the way"
        edits: tuple[Edit, ...] = (Flatten(parts.path, parts.tensors),)
        if parts.path:
            edits = (TakeRoot(parts.path), Flatten((), parts.tensors))
        draft.add("W312", "parts-apart", title, Safety.CONFIRMED, edits, reference)


def _arrange_attention(draft: _Draft, request: FixRequest, reference: Reference) -> bool:
    """Split or fuse projections in the layout that was stated; whether there were any."""
    if request.qkv_layout is None:
        return False
    edits = attention_edits(draft.checkpoint, reference, request.qkv_layout, request.heads)
    title = f"queries, keys and values as {request.qkv_layout}"
    draft.add("S507", "fused-qkv", title, Safety.UNSAFE, edits, reference)
    return bool(edits)


def _arrange_experts(draft: _Draft, request: FixRequest, reference: Reference) -> bool:
    """Stack or unbind experts whose slices lie as was stated; whether there were any."""
    if request.expert_layout is None:
        return False
    edits = edits_for(compare(draft.checkpoint, reference), request.expert_layout == EXPERT_LAYOUTS[1])
    draft.add("S509", "moe-stacked-experts", f"experts as {request.expert_layout}", Safety.CONFIRMED, edits, reference)
    return bool(edits)


def _compute_orthogonal(draft: _Draft, request: FixRequest, reference: Reference) -> bool:
    """Compute the weights under a parametrization by the map that was stated; whether there were any."""
    if request.orthogonal_map is None:
        return False
    comparison, form = compare(draft.checkpoint, reference), request.orthogonal_map
    here, edits = comparison.renamed.here, []
    for key, parts in orthogonals(comparison):
        paths = tuple([here[part].path for part in parts])
        edits.append(Compute(paths, key, form, here[parts[0]].dtype.name, comparison.path))
    if edits:
        title = f"compute {plural(len(edits), 'orthogonal weight')} by {form}"
        draft.add("N430", "parametrized-weight", title, Safety.UNSAFE, tuple(edits), reference)
    return bool(edits)


def _go_by_values(draft: _Draft, source: Source, reference: Reference) -> bool:
    """Rename what names do not tell, and what has the very bytes of one tensor of the target; whether there was any."""
    if reference.beside is None:
        return False
    comparison = compare(draft.checkpoint, reference)
    if rearranged(comparison):  # equal bytes elsewhere say nothing of those that another code base arranges
        return False
    pairs = witnessed(source, comparison)
    if comparison.state_dict is None or all(old == new for old, new in pairs.items()):
        return False
    edits, _ = rename_edits(comparison.state_dict, lambda key: pairs.get(key, key))
    if edits:
        draft.add("values", "", "rename what has the same bytes in the target", Safety.SAFE, edits, reference)
    return bool(edits)


def _rename_towards(draft: _Draft, reference: Reference) -> bool:
    """Add the next step of the chain; whether there was one."""
    link = next_link(draft.checkpoint, reference)
    if link is None:
        return False
    draft.add(link.code, link.name, link.title, Safety.SAFE, link.edits, reference)
    return True


def _confirm(draft: _Draft, request: FixRequest, reference: Reference, rules: tuple[Rule, ...]) -> bool:
    """Add fixes that are safe, or that the reference confirms; whether there were any."""
    found = findings_of(draft.checkpoint, rules, reference)
    wanted = [each for each in fixes(found, request.unsafe, confirmed=True) if not outside(each[1].edits)]
    for finding, fix in independent(wanted):
        draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits, reference)
    return bool(wanted)


def _fix_findings(draft: _Draft, container: Container, rules: tuple[Rule, ...], unsafe: bool) -> list[Finding]:
    """Add the fixes of what the rules find, round after round, until none is left that may be applied.

    Gives the findings that stay. Raises RuntimeError for a rule whose fix does not help: that is a bug in the rule.
    """
    around = container_findings(container, rules)
    fixed: list[tuple[str, tuple[Edit, ...]]] = []  # a list: the values of edits need not be hashable
    for _ in range(_ROUNDS):
        found = [*around, *findings_of(draft.checkpoint, rules)]
        wanted = fixes(found, unsafe)
        alone = [each for each in wanted if of_index(each[1].edits)]
        if draft.index is not None or alone:  # the index changes, and no shard does
            wanted = alone
        if not wanted:
            return [possible(each, container) for each in found]
        for finding, fix in independent(wanted):
            if (finding.code, fix.edits) in fixed:
                raise RuntimeError(f"{finding.code} finds the same again after its own fix ({fix.title})")
            fixed.append((finding.code, fix.edits))
            draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits)
            if outside(fix.edits):  # the file around the contents is examined again once it is written
                around.remove(finding)
    raise RuntimeError(f"there is no end of fixes; the last one was that of {draft.steps[-1].label}")
