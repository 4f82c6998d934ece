"""Describes a checkpoint compared with what a target expects: what fits as it is, and after the renames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.expectation import Coverage, CoverageStep, Expected, Reference, is_extra_state
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.match.second_names import twins_of
from ckptdoctor.noun import field, noun

if TYPE_CHECKING:
    from ckptdoctor.match.moves import Move
    from ckptdoctor.match.nested_parts import Parts
    from ckptdoctor.match.prefixes import Cut, Prefix
    from ckptdoctor.match.published.matching import LayoutConversion
    from ckptdoctor.match.wrappers import NameFix


@noun(eq=False)
class Alignment:
    """Keys (under the names that ``here`` gives them) and a reference. ``parameters`` counts the elements that fit.

    ``tied`` are expected names, not here, of tensors that are here under another name (expected name → that one): they
    are missing as well, unless what loads the file ties them itself. ``twins`` are the reverse: keys here that the
    target does not name, though its model may have them, each with the fitting key of the very same tensor; they are
    not unexpected. ``spared`` are expected keys that do not count as missing although there is no tensor of that name:
    what ties itself, and extra state that is not a tensor. ``others`` are the extra states here that are not tensors;
    ``extra_missing`` and ``extra_unexpected`` are the missing and unexpected ones of that kind.
    """

    here: Mapping[str, Tensor]
    fits: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    recast: tuple[str, ...]
    parameters: int
    tied: Mapping[str, str] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)
    spared: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    extra_missing: tuple[str, ...] = ()
    extra_unexpected: tuple[str, ...] = ()

    @property
    def covered(self) -> int:
        """How many of the expected keys are fine."""
        return len(self.fits) + len(self.spared)


@noun(eq=False)
class Comparison:
    """One state dict of a checkpoint against a reference.

    ``state_dict`` is None where the checkpoint holds no weights. ``nested``: it is deeper than the reference's keys
    do in their own file, and nobody asked for it by name. ``rivals`` are other state dicts that fit just as well.
    ``plain`` compares the keys as they are, ``before_prefix`` after ``name_fixes``, ``after_prefix`` after ``prefix``
    as well, and ``renamed`` after ``moves``, the renames that come last. ``cut``: all keys lack their first letters,
    which is then neither a prefix nor a rename. ``conversion`` is the way from the layout of another code base, where
    one is published: it is in the place of prefix and moves, and ``renamed`` is what it comes to, unless it lacks
    something. ``parts`` are those of the target, where they are in dicts of their own: then there is no state dict yet,
    and ``before_prefix`` is that of all parts together.
    """

    checkpoint: Checkpoint
    reference: Reference
    state_dict: StateDict | None
    nested: bool
    rivals: tuple[StateDict, ...]
    plain: Alignment
    before_prefix: Alignment
    after_prefix: Alignment
    renamed: Alignment
    name_fixes: tuple[NameFix, ...]
    prefix: Prefix | None
    moves: tuple[Move, ...]
    steps: tuple[CoverageStep, ...]
    cut: Cut | None = None
    conversion: LayoutConversion | None = None
    parts: Parts | None = None

    @property
    def path(self) -> KeyPath:
        """Where the compared state dict is."""
        return self.state_dict.path if self.state_dict is not None else ROOT

    @property
    def uncovered(self) -> bool:
        """Whether even after all renames less than half of the reference fits, and less than half of what is here."""
        fits, renamed = self.renamed.covered, self.renamed
        return (
            2 * fits < len(self.reference.tensors)
            and 2 * renamed.parameters < max(self.total_parameters, 1)
            and 2 * fits <= len(renamed.here)
        )

    def name_after_prefix(self, key: str) -> str:
        """Return what a key of the state dict is called after the renames and the prefix."""
        for fix in self.name_fixes:
            key = fix.change(key)
        if self.conversion is not None:
            return self.conversion.change(key)
        return self.prefix.change(key) if self.prefix is not None else key

    def final_name(self, key: str, upto: Move | None = None) -> str:
        """Return what a key of the state dict is called after all moves, or after those up to one of them."""
        key = self.name_after_prefix(key)
        for move in self.moves:
            key = move.change(key)
            if move is upto:
                break
        return key

    @property
    def total_parameters(self) -> int:
        """Elements that the reference expects."""
        return sum([prod(expected.shape) for expected in self.reference.tensors.values()])

    @property
    def coverage(self) -> Coverage:
        """What fits when the file is loaded as it is, and after each step."""
        return Coverage(
            reference=self.reference.source,
            state_dict=self.path,
            total_keys=len(self.reference.tensors),
            total_parameters=self.total_parameters,
            keys=0 if self.nested else self.plain.covered,
            parameters=0 if self.nested else self.plain.parameters,
            steps=self.steps,
            option=self.reference.option if self._decided else "",
            retied=sum([key in self.renamed.tied for key in self.renamed.spared]),
            told=self.reference.told,
        )

    @property
    def _decided(self) -> bool:
        """Whether the steps do it all: nothing is left over, no name is a guess, and no other weights are meant."""
        alone = len(weights_among(self.checkpoint.state_dicts)) == 1
        renamed = self.renamed
        strange = renamed.unexpected or renamed.extra_unexpected or renamed.extra_missing
        return alone and not strange and all(move.sure for move in self.moves)


def align(here: Mapping[str, Tensor], wanted: Mapping[str, Expected]) -> Alignment:
    """Sort the keys by how they fit what is wanted, where nothing else is known of it."""
    return sort_keys(here, Reference("", wanted))


def sort_keys(here: Mapping[str, Tensor], reference: Reference, others: Iterable[str] = ()) -> Alignment:
    """Sort the keys by how they fit: same key and shape, same key and other shape, missing, unexpected.

    ``others`` are the keys here of extra state that is not a tensor.
    """
    wanted, extra, others = reference.tensors, reference.extra, tuple(others)
    fits, missing, mismatched, recast = [], [], [], []
    parameters = 0
    for key, expected in wanted.items():
        tensor = here.get(key)
        if tensor is None:
            missing.append(key)
        elif key in extra:  # the module itself loads it, whatever its shape
            fits.append(key)
            parameters += prod(expected.shape)
        elif tensor.shape != expected.shape:
            mismatched.append(key)
        else:
            fits.append(key)
            parameters += tensor.numel
            if expected.dtype is not None and expected.dtype.name != tensor.dtype.name:
                recast.append(key)
    unexpected = [key for key in here if key not in wanted and key not in extra]
    twins = twins_of(here, unexpected, fits, reference.ties) if unexpected and reference.once else {}
    tied = _tied(here, reference.ties) if missing and reference.ties else {}
    known = set(others)
    fitting = set(fits) if tied and reference.retied else ()
    spared = [key for key in missing if key in known or tied.get(key, "") in fitting]
    parameters += sum([prod(wanted[key].shape) for key in spared])
    unasked = known.union(tied if reference.retied else ())
    return Alignment(
        here=here,
        fits=tuple(fits),
        missing=tuple([key for key in missing if key not in unasked]),
        unexpected=tuple([key for key in unexpected if key not in twins]),
        mismatched=tuple(mismatched),
        recast=tuple(recast),
        parameters=parameters,
        tied=tied,
        twins=twins,
        spared=tuple(spared),
        others=others,
        extra_missing=tuple(filter(is_extra_state, extra.difference(wanted, here, known))),
        extra_unexpected=tuple([key for key in others if key not in extra]),
    )


def _tied(here: Mapping[str, Tensor], ties: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Return, by each name that is not here, another name of the same tensor that is."""
    found = {}
    for keys in ties:
        there = next((key for key in keys if key in here), None)
        if there is not None:
            found.update({key: there for key in keys if key not in here})
    return found


def subject_of(comparison: Comparison) -> str:
    """Return what was compared, for people: ``state_dict`` or ``the checkpoint``."""
    return show_path(comparison.path) if comparison.path else "the checkpoint"


@noun
class Explained:
    """Missing, unexpected and mismatched keys, under their names after all renames, that some rule explains."""

    missing: frozenset[str] = frozenset()
    unexpected: frozenset[str] = frozenset()
    mismatched: frozenset[str] = frozenset()

    def __or__(self, other: Explained) -> Explained:
        """Return what either explains."""
        return Explained(
            self.missing | other.missing,
            self.unexpected | other.unexpected,
            self.mismatched | other.mismatched,
        )
