"""A checkpoint held against what a target expects: what fits as it is, and what would fit after the cures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.coverage import Coverage, CureStep
from ckptdoctor.checkpoint.expectation import Expected, Reference, is_extra_state
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.facts import names
from ckptdoctor.facts.cures import TOKENS, NameCure, name_cures
from ckptdoctor.facts.cut import Cut, cut_of
from ckptdoctor.facts.layouts import family_of, layout
from ckptdoctor.facts.moves import Move
from ckptdoctor.facts.nested_parts import Parts, parts_for
from ckptdoctor.facts.prefixes import Prefix, best_prefix
from ckptdoctor.facts.twins import twins_of
from ckptdoctor.noun import field, noun, replace

if TYPE_CHECKING:
    from ckptdoctor.facts.published.matching import Conversion


@noun(eq=False)
class Alignment:
    """Keys (under the names that ``here`` gives them) against a reference. ``parameters`` are the elements that fit.

    ``tied`` are wanted names, not here, of tensors that are here under another name (wanted name → that one): they are
    missing as well, unless what loads the file ties them itself. ``twins`` are the other way round: keys here that the
    target does not tell, though its model may have them, each with the key that fits of the very same tensor; they are
    not unexpected. ``spared`` are keys that are wanted, and not missed
    though there is no tensor of that name: what is tied by itself, and extra state that is no tensor. ``others`` are
    the extra states here that are no tensors; ``extra_missing`` and ``extra_unexpected`` are extra states that are no
    tensors, either.
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
        """How many of the wanted keys are no trouble."""
        return len(self.fits) + len(self.spared)


@noun(eq=False)
class Comparison:
    """One state dict of a checkpoint against a reference.

    ``state_dict`` is None where the checkpoint holds no weights. ``nested``: it lies deeper than the reference's keys
    do in their own file, and nobody asked for it by name. ``rivals`` are other state dicts that fit just as well.
    ``plain`` compares the keys as they are, ``before_prefix`` after ``cures``, ``after_prefix`` after ``prefix`` as
    well, and ``cured`` after ``moves``, the renames that come last. ``cut``: all keys lack their first letters, which
    is then neither a prefix nor a rename. ``conversion`` is the way from the layout of another code base, where one is
    published: it stands in the place of prefix and moves, and ``cured`` is what it comes to, unless it lacks something.
    ``parts`` are those of the target, where they lie in dicts of their own: then there is no state dict yet, and
    ``before_prefix`` is that of all parts together.
    """

    checkpoint: Checkpoint
    reference: Reference
    state_dict: StateDict | None
    nested: bool
    rivals: tuple[StateDict, ...]
    plain: Alignment
    before_prefix: Alignment
    after_prefix: Alignment
    cured: Alignment
    cures: tuple[NameCure, ...]
    prefix: Prefix | None
    moves: tuple[Move, ...]
    steps: tuple[CureStep, ...]
    cut: Cut | None = None
    conversion: Conversion | None = None
    parts: Parts | None = None

    @property
    def path(self) -> KeyPath:
        """Where the compared state dict lies."""
        return self.state_dict.path if self.state_dict is not None else ROOT

    @property
    def uncovered(self) -> bool:
        """Whether even after all cures less than half of the reference fits, and less than half of what is here."""
        fits, cured = self.cured.covered, self.cured
        return (
            2 * fits < len(self.reference.tensors)
            and 2 * cured.parameters < max(self.total_parameters, 1)
            and 2 * fits <= len(cured.here)
        )

    def name_after_prefix(self, key: str) -> str:
        """What a key of the state dict is called after the cures and the prefix."""
        for cure in self.cures:
            key = cure.change(key)
        if self.conversion is not None:
            return self.conversion.change(key)
        return self.prefix.change(key) if self.prefix is not None else key

    def final_name(self, key: str, upto: Move | None = None) -> str:
        """What a key of the state dict is called after everything; or only up to one of the moves, this included."""
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
            retied=sum([key in self.cured.tied for key in self.cured.spared]),
            told=self.reference.told,
        )

    @property
    def _decided(self) -> bool:
        """Whether the steps do it all: nothing is left over, no name is a guess, and no other weights are meant."""
        alone = len(weights_among(self.checkpoint.state_dicts)) == 1
        cured = self.cured
        strange = cured.unexpected or cured.extra_unexpected or cured.extra_missing
        return alone and not strange and all(move.sure for move in self.moves)


def align(here: Mapping[str, Tensor], wanted: Mapping[str, Expected]) -> Alignment:
    """Sort the keys by how they fit what is wanted, where nothing else is known of it."""
    return hold(here, Reference("", wanted))


def hold(here: Mapping[str, Tensor], reference: Reference, others: Iterable[str] = ()) -> Alignment:
    """Sort the keys by how they fit: same key and shape, same key and other shape, missing, unexpected.

    ``others`` are the keys here of extra state that is no tensor.
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
    twins = twins_of(here, unexpected, fits) if unexpected and reference.once else {}
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
    """Names that are not here → another name of the same tensor that is."""
    found = {}
    for keys in ties:
        there = next((key for key in keys if key in here), None)
        if there is not None:
            found.update({key: there for key in keys if key not in here})
    return found


def compare(checkpoint: Checkpoint, reference: Reference, root: KeyPath | None = None) -> Comparison:
    """Hold the weights of a checkpoint against a reference: of several state dicts the one that fits best.

    ``root`` says that the state dict was chosen by hand, and where; a Checkpoint with only the chosen ones will do.
    """
    parts = parts_for(checkpoint, reference) if root is None else None
    if parts is not None:
        return _compared(checkpoint, reference, None, root, parts)
    candidates = weights_among(
        [each for each in checkpoint.state_dicts if root is None or each.path[: len(root)] == root]
    )
    for role in WEIGHTS:
        compared = [_compared(checkpoint, reference, each, root) for each in candidates if each.role is role]
        if compared:
            best = max(compared, key=lambda each: len(each.cured.fits))  # the first of equals
            equals = [each for each in compared if each is not best and len(each.cured.fits) == len(best.cured.fits)]
            rivals = [each.state_dict for each in equals if each.state_dict is not None]
            return replace(best, rivals=tuple(rivals)) if best.cured.fits else best
    return _compared(checkpoint, reference, None, root)


def describe(comparison: Comparison) -> str:
    """What was compared, for people: ``state_dict`` or ``the checkpoint``."""
    return show_path(comparison.path) if comparison.path else "the checkpoint"


def carries(reference: Reference, code: str) -> bool:
    """Whether the reference's own keys have what the naming rule ``code`` takes away: then nothing is wrong here."""
    keys = reference.tensors
    if code in TOKENS:
        return bool(names.present(keys, TOKENS[code]))
    if code == "N420":
        return any(names.is_counter(key) for key in keys)
    if code == "N411":
        return any(key.endswith(names.N_AVERAGED) for key in keys)
    return 2 * len(names.module_led(keys)) > len(keys)


def _compared(
    checkpoint: Checkpoint,
    reference: Reference,
    state_dict: StateDict | None,
    root: KeyPath | None,
    parts: Parts | None = None,
) -> Comparison:
    wanted = reference.tensors
    here = {tensor.key: tensor for tensor in state_dict.tensors} if state_dict is not None else {}
    others = filter(is_extra_state, state_dict.others) if state_dict is not None else ()
    nested = state_dict is not None and root is None and state_dict.path not in (ROOT, reference.root)
    plain = now = hold(here, reference, others)
    steps: list[CureStep] = []
    if parts is not None:
        by_path = {tensor.path: tensor for tensor in checkpoint.tensors}
        now = hold({key: by_path[parts.path + place] for key, place in parts.tensors}, reference)
        steps.append(_step("put the parts together", "W312", now))
    done: list[NameCure] = []
    if nested and state_dict is not None:
        steps.append(_step(f"take {show_path(state_dict.path)}", "W301", plain))
    for cure in _wanted_cures(state_dict, reference):
        renamed = _renamed(now, reference, cure.change, cure.drops)
        if not cure.sure and len(renamed.fits) <= len(now.fits):
            continue
        now = renamed
        done.append(cure)
        steps.append(_step(cure.title, cure.code, now))
    before_prefix, target = now, reference
    open_ = now.covered < len(wanted)
    other = _published(now, checkpoint, reference) if open_ else None
    cut = cut_of(now.here, wanted) if open_ and other is None else None
    prefix = best_prefix(now.here, wanted, len(now.fits)) if open_ and cut is None and other is None else None
    if other is not None and not other.lacks:
        now = hold(other.after(now.here), reference, now.others)
        steps.append(_step(f"from {other.way.one} to {other.way.other}", "N426", now))
    if prefix is not None:
        if not prefix.added and any(prefix.change(key) == key for key in now.here):
            # a part of the saved model is wanted: what lies outside is no other name of what is inside
            target = replace(reference, once=False)
        now = _renamed(now, target, prefix.change)
        steps.append(_step(f'{"add" if prefix.added else "strip"} "{prefix.text}"', prefix_code(prefix), now))
    after_prefix = now
    if cut is not None:
        moves: tuple[Move, ...] = (cut.back,) if cut.back is not None else ()
    elif other is not None:
        moves = ()
    else:
        moves = _moves(now, wanted) if _renames_help(now, wanted) else ()
    moves = certain(moves, now.here) if reference.certain else moves
    for move in moves:
        now = _renamed(now, target, move.change)
        steps.append(_step(move.pattern, move.code, now))
    return Comparison(
        checkpoint=checkpoint,
        reference=reference,
        state_dict=state_dict,
        nested=nested,
        rivals=(),
        plain=plain,
        before_prefix=before_prefix,
        after_prefix=after_prefix,
        cured=now,
        cures=tuple(done),
        prefix=prefix,
        moves=moves,
        steps=tuple(steps),
        cut=cut,
        conversion=other,
        parts=parts,
    )


def _published(now: Alignment, checkpoint: Checkpoint, reference: Reference) -> Conversion | None:
    from ckptdoctor.facts.published.heads import with_heads  # tables that a check without a target has no use for
    from ckptdoctor.facts.published.matching import conversion

    found = conversion(now.here, reference)
    return None if found is None else with_heads(found, now.here, checkpoint, reference)


def _moves(now: Alignment, wanted: Mapping[str, Expected]) -> tuple[Move, ...]:
    from ckptdoctor.facts.search import find_moves  # much code, which a check without a target has no use for

    return tuple(find_moves(now.here, wanted))


def certain(moves: tuple[Move, ...], here: Mapping[str, Tensor]) -> tuple[Move, ...]:
    """The moves without the guesses among them, and without what only a guess would make room for."""
    found: list[Move] = []
    keys = set(here)
    for move in moves:
        names = {old: new for old, new in move.names.items() if old in keys} if move.sure else {}
        while stay := {new for new in names.values() if new in keys and new not in names}:
            names = {old: new for old, new in names.items() if new not in stay}
        if names:
            found.append(replace(move, names=names))
            keys = {names.get(key, key) for key in keys}
    return tuple(found)


def _renames_help(now: Alignment, wanted: Mapping[str, Expected]) -> bool:
    """Whether names are what keeps the rest from fitting: another code base arranges values in another way, too."""
    return now.covered < len(wanted) and family_of(layout(now.here), layout(wanted)) is None


def prefix_code(prefix: Prefix) -> str:
    """The rule that speaks of a prefix.

    N402 where the target is wrapped in ``module.``, N408 for attributes of other wrappers, N410 for those that hold a
    base model, else N409.
    """
    tokens = set(prefix.text[:-1].split("."))
    if prefix.added and tokens == {names.MODULE}:
        return "N402"
    if tokens <= names.OTHER_WRAPPERS:
        return "N408"
    return "N410" if tokens <= names.BASE_MODELS else "N409"


def _wanted_cures(state_dict: StateDict | None, reference: Reference) -> list[NameCure]:
    if state_dict is None:
        return []
    found = []
    for cure in name_cures(state_dict):
        keys = [tensor.key for tensor in state_dict.tensors if tensor is not cure.drops]
        if not carries(reference, cure.code) and names.renaming(keys, cure.change).collision is None:
            found.append(cure)
    return found


def _renamed(
    now: Alignment, reference: Reference, change: Callable[[str], str], drops: Tensor | None = None
) -> Alignment:
    here = {change(key): tensor for key, tensor in now.here.items() if tensor is not drops}
    return hold(here, reference, map(change, now.others))


def _step(title: str, code: str, after: Alignment) -> CureStep:
    return CureStep(title, code, after.covered, after.parameters)
