"""Tells how a checkpoint fits a target: what each repair of the proposed chain renames, and what is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import Checkpoint, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.diagnose.findings import attainable, findings_of, possible
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.offers import Offer, offers
from ckptdoctor.facts.whole_modules import with_modules
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Alignment, Comparison
from ckptdoctor.noun import noun

Pair = tuple[str, str]
_ROOT = "W301"


@noun
class FitStep:
    """One repair of the chain: its rule, what it does, how many keys and parameters fit after it.

    ``pairs`` are names before and after it; "" for one that goes.
    """

    code: str
    title: str
    keys: int
    parameters: int
    pairs: tuple[Pair, ...]


@noun
class Misfit:
    """A key that does not fit: its shape here and in the target, None where it is not there."""

    key: str
    here: tuple[int, ...] | None
    wanted: tuple[int, ...] | None


@noun
class Fit:
    """How much of ``target`` fits as it is, after each of ``steps``, and what does not fit after all of them.

    ``option`` names the target on the command line, where the steps alone decide everything; "" otherwise.
    ``place`` is the state dict that was compared, "" for the whole contents; ``rivals`` are others that fit as well.
    """

    target: str
    option: str
    place: str
    total_keys: int
    total_parameters: int
    keys: int
    parameters: int
    steps: tuple[FitStep, ...]
    missing: tuple[Misfit, ...]
    unexpected: tuple[Misfit, ...]
    mismatched: tuple[Misfit, ...]
    rivals: tuple[str, ...] = ()

    @property
    def keys_after(self) -> int:
        """Keys that fit after all steps."""
        return self.steps[-1].keys if self.steps else self.keys

    @property
    def complete(self) -> bool:
        """Whether the steps make everything fit that is wanted."""
        return self.keys_after == self.total_keys and not self.unexpected


def fitting_offers(checkpoint: Checkpoint, settings: Settings, reference: Reference | None) -> list[Offer]:
    """Return what a repair screen offers for a target."""
    root = find_root(checkpoint.tree, settings.root) if settings.root is not None else None
    found = findings_of(checkpoint, reference=reference, root=root)
    if checkpoint.container is not None:
        container = checkpoint.container
        found = [possible(each, container) for each in found]
    coverage = compare(checkpoint, reference, root).coverage if reference is not None else None
    return offers(found, coverage)


def fit_to(checkpoint: Checkpoint, reference: Reference, root: str | None = None) -> Fit:
    """Hold a checkpoint against a target. Raises UsageError for a root that is not there."""
    path = find_root(checkpoint.tree, root) if root is not None else None
    found = compare(checkpoint, reference, path)
    if found.state_dict is None:  # a module that was pickled whole
        found = compare(with_modules(checkpoint), reference, path)
    coverage, renamed = found.coverage, found.renamed
    if checkpoint.container is not None:
        coverage = attainable(coverage, checkpoint.path, checkpoint.container)
    return Fit(
        target=reference.source,
        option=coverage.option,
        place=show_path(found.path) if found.path else "",
        total_keys=coverage.total_keys,
        total_parameters=coverage.total_parameters,
        keys=coverage.keys,
        parameters=coverage.parameters,
        steps=tuple(_steps(found)),
        missing=tuple([Misfit(key, None, _wanted(found, key)) for key in (*renamed.missing, *renamed.extra_missing)]),
        unexpected=tuple([_unexpected(renamed, key) for key in (*renamed.unexpected, *renamed.extra_unexpected)]),
        mismatched=tuple([Misfit(key, renamed.here[key].shape, _wanted(found, key)) for key in renamed.mismatched]),
        rivals=tuple([show_path(each.path) for each in found.rivals]),
    )


def _wanted(found: Comparison, key: str) -> tuple[int, ...] | None:
    expected = found.reference.tensors.get(key)
    return expected.shape if expected is not None else None


def _unexpected(renamed: Alignment, key: str) -> Misfit:
    tensor = renamed.here.get(key)
    return Misfit(key, tensor.shape if tensor is not None else None, None)


def _steps(found: Comparison) -> Iterator[FitStep]:
    """Yield the steps with what each renames, on top of those before it."""
    names = list(found.plain.here)
    changes = iter(_changes(found))
    for step in found.steps:
        pairs: list[Pair]
        if step.code == _ROOT and found.nested:
            lead = show_path(found.path)
            pairs = [(f"{lead}/{name}", name) for name in names]
        else:
            change, dropped = next(changes)
            pairs = [(name, change(name)) for name in names if name != dropped]
            names = [new for _, new in pairs]
            pairs = [(old, new) for old, new in pairs if old != new]
            pairs += [(dropped, "")] if dropped is not None else []
        yield FitStep(step.code, step.title, step.keys, step.parameters, tuple(pairs))


def _changes(found: Comparison) -> Iterator[tuple[Callable[[str], str], str | None]]:
    for fix in found.name_fixes:
        yield fix.change, fix.drops.key if fix.drops is not None else None
    if found.conversion is not None:
        yield found.conversion.change, None
    if found.prefix is not None:
        yield found.prefix.change, None
    for move in found.moves:
        yield move.change, None
