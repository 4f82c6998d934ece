"""Puts tensors of another copy in the place of damaged ones; every other byte of the file stays as it is.

What the other copy does not have may need none: where one flipped bit explains the checksum of a record, it is flipped
back (``examine.flipped_bits``). Without another copy that is all that is done.

The damaged file keeps the checksum of what was saved. Bytes of the other copy that fit it are the ones that were lost,
and need no other proof. Where there is no checksum, the whole file must get a hash that was published for it, or the
two files must agree in every other tensor to pass for copies of one save; what comes of two different ones is a
mixture, and needs consent. Of a copy on another machine no more is read than the tensors that are damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Union

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath, NoteKind, Source, Tensor
from ckptdoctor.checkpoint.checkpoint import told_of
from ckptdoctor.checkpoint.patterns import named_paths
from ckptdoctor.checkpoint.progress import Progress, Work, follow, in_thread
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.differences import ABSENT, Difference, Pair, Side
from ckptdoctor.diffing.diff import compare_headers
from ckptdoctor.edits.grafts import Graft, GraftReport, Ground, HealedTensor, Likeness
from ckptdoctor.errors import DamagedError, NotACheckpointError, RefusedError, UsageError
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.formats.suffixes import require_own_format, unwrapped_path
from ckptdoctor.grafting.choice import Choice, with_others
from ckptdoctor.grafting.consent import require_healing
from ckptdoctor.grafting.damage import Health, examined, storages_of
from ckptdoctor.grafting.published import WholeProof, proven
from ckptdoctor.grafting.recipe import Healed, grafted, verifying
from ckptdoctor.grafting.remote_copy import (
    FetchedSource,
    fetched,
    name_of,
    open_copy,
    same_checksums,
)
from ckptdoctor.grafting.request import GraftRequest, output_of
from ckptdoctor.noun import noun, replace
from ckptdoctor.remote.addresses import is_address, shown
from ckptdoctor.remote.downloading import command, path_of
from ckptdoctor.shell import quote
from ckptdoctor.values.diff_bytes import same_bytes
from ckptdoctor.wording import format_name, listed
from ckptdoctor.writing import Part, Recipe, publish_together
from ckptdoctor.writing.target import resolve

_WRITTEN = ("torch zip", "torch legacy", "safetensors")
Event = Union[Progress, GraftReport]


@noun
class _Opened:
    """One of the two files, open."""

    path: str
    source: Source
    container: Container
    checkpoint: Checkpoint
    root: KeyPath

    @property
    def side(self) -> Side:
        """The part of it that is compared with the other."""
        return Side(self.path, self.checkpoint, self.root)

    @property
    def distant(self) -> bool:
        """Whether it is on another machine."""
        return self.source.distant


def graft(request: GraftRequest) -> GraftReport:
    """Write the damaged file again with tensors of the other copy; says what was done.

    The output is verified before it gets its name, and the original is never touched. Raises UnreadableError,
    NotACheckpointError, DamagedError, UsageError, RefusedError for what would be a mixture or a guess, and WriteError.
    """
    return follow(grafting(request), lambda event: None)


def grafting(request: GraftRequest) -> Generator[Event, None, GraftReport]:
    """Do the same step by step: say how far it is, what will be done before it is, and in the end what was."""
    started = perf_counter()
    with ExitStack() as stack:
        seen = yield from examine(stack, request)
        plan = yield from settled(seen, seen.likeness)
        report = plan.report
        if request.dry or report.output is None:
            yield report
            return report
        resolve(report.output, os.stat(seen.mine.source.file), force=request.force)
        yield report
        publish_together((plan.part,), force=request.force, identity=seen.mine.source.identity)
        return replace(report, written=True, seconds=perf_counter() - started)


@noun
class Seen:
    """Both files, open and examined, before anything is decided."""

    request: GraftRequest
    mine: _Opened
    its: _Opened | None
    choice: Choice
    likeness: Likeness


@noun
class Plan:
    """What a graft comes to, and the file that it writes where there is something to do."""

    report: GraftReport
    recipe: Recipe
    verify: Callable[[str], None]

    @property
    def part(self) -> Part:
        """The file, under the name that the report has for it."""
        assert self.report.output is not None
        return Part(self.recipe, self.report.output, self.verify)


def examine(stack: ExitStack, request: GraftRequest) -> Generator[Progress, None, Seen]:
    """Read both files, which are open as long as the stack is."""
    mine = _damaged(stack, request)
    its = None if request.donor is None else _donor(stack, request, request.donor)
    choice, likeness = yield from _choice(request, mine, its)
    choice.choose()
    return Seen(request, mine, its, choice, likeness)


def settled(seen: Seen, likeness: Likeness) -> Generator[Progress, None, Plan]:
    """Decide what is done, where the two copies are so much alike. Raises RefusedError where nothing can be."""
    request, mine, its, choice = seen.request, seen.mine, seen.its, seen.choice
    report = _report(request, mine, its, choice, likeness)
    wanted = grafted(mine.checkpoint, mine.source, choice.made.values())
    recipe = None
    if report.grafted and not report.left and (report.mixture or report.fetched is not None):
        recipe = formats.write(wanted, mine.source)
        remote = its.source.remote if its is not None and isinstance(its.source, FetchedSource) else None
        report = _proven(report, (yield from proven(recipe, mine.source, request.donor, remote)))
    require_healing(request, report, any(each.denied for each in choice.made.values()))
    recipe = recipe or formats.write(wanted, mine.source)
    report = replace(report, new_bytes=sum(each.nbytes for each in choice.made.values()))
    donors = [
        (tensor, choice.partners[tensor.path].b)
        for tensor, storages in choice.healed()
        if not any(each.flipped for each in storages)
    ]
    both = None if its is None else (its.checkpoint, its.source)
    return Plan(report, recipe, verifying(wanted, recipe, both, choice.made, donors))


def _choice(
    request: GraftRequest, mine: _Opened, its: _Opened | None
) -> Generator[Progress, None, tuple[Choice, Likeness]]:
    """Examine both, and return what is to be healed and of what, and how far both agree."""
    here = yield from examined(mine.checkpoint, mine.source)
    if its is None:
        asked = with_others(mine.checkpoint, here.damage, dict(_wanted(request, mine, here)))
        return Choice((mine.checkpoint, mine.source, here), None, {}, asked), Likeness()
    found = compare_headers(mine.side, its.side)
    partners = {pair.a.path: pair for pair in found.pairs if pair.sure}
    here = yield from _without_doubts(here, partners, mine, its)
    asked = with_others(mine.checkpoint, here.damage, dict(_wanted(request, mine, here)))
    donors = [partners[path].b for path in asked if path in partners]
    yield from _fetched(its, donors)
    there = yield from examined(its.checkpoint, its.source, donors)
    likeness = yield from _likeness(found, mine, its, {*here.troubles, *asked}, there)
    both = (mine.checkpoint, mine.source, here), (its.checkpoint, there)
    # what is named is to become what it is in the other copy, whether or not that is what was saved
    return Choice(*both, partners, asked, flips=not request.keys), likeness


def _damaged(stack: ExitStack, request: GraftRequest) -> _Opened:
    """Return the file that is to be healed, which must be one whose bytes can be changed in their places."""
    path = request.path
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder: name the damaged file in it. --from may be a folder.")
    source, container = stack.enter_context(formats.opened(path, here=True))
    try:
        checkpoint = formats.read(source, container)
    except DamagedError as error:
        raise RefusedError("\n".join([error.message, *_two_commands(request)])) from error
    except NotACheckpointError as error:
        known = listed(list(map(format_name, _WRITTEN)))
        raise NotACheckpointError(f"{error.message} Only {known} files can be repaired by graft.") from error
    require_own_values(checkpoint)
    if checkpoint.format not in _WRITTEN:
        known = listed(list(map(format_name, _WRITTEN)))
        raise RefusedError(
            f"{path} is a {format_name(checkpoint.format)}: only {known} files can be repaired in place."
        )
    require_own_format("graft", path, request.output, checkpoint.format)
    return _Opened(path, source, container, checkpoint, _root(checkpoint, request.root))


def _two_commands(request: GraftRequest) -> Iterator[str]:
    """Yield the two commands that do it for a file whose headers are not whole, or the one without another copy."""
    path, donor, output = request.path, request.donor, output_of(request, None)
    stem, suffix = os.path.splitext(path)
    part = f"{stem}.part{suffix}"
    if donor is None:
        yield "A graft replaces bytes in place, so the file's headers must be intact. To recover what is intact:"
        yield f"  ckptdoctor salvage {quote(path)}"
        return
    yield (
        "A graft replaces bytes in place, so the file's headers must be intact. For a state dict use two "
        "commands: recover what is intact, and add what only the other copy has, if everything else is equal:"
    )
    if is_address(donor):
        yield f"  {command(shown(donor))}"
        donor = name_of(donor)
    yield f"  ckptdoctor salvage {quote(path)} -o {quote(part)}"
    yield f"  ckptdoctor merge {quote(part)} {quote(donor)} -o {quote(output)}"


def _donor(stack: ExitStack, request: GraftRequest, donor: str) -> _Opened:
    source: Source
    if is_address(donor) and path_of(donor) is None:
        source, container = open_copy(stack, donor)
    else:
        source, container = stack.enter_context(formats.opened(donor, here=True))
    try:
        checkpoint = formats.read(source, container)
    except NotACheckpointError as error:
        advice = f"No tensor can be taken from it: name another copy of {request.path} with --from."
        raise NotACheckpointError(f"{error.message} {advice}") from error
    require_own_values(checkpoint)
    return _Opened(shown(donor), source, container, checkpoint, _root(checkpoint, request.from_root))


def _root(checkpoint: Checkpoint, root: str | None) -> KeyPath:
    return () if root is None else find_root(checkpoint.tree, root)


def _wanted(request: GraftRequest, mine: _Opened, here: Health) -> Iterator[tuple[KeyPath, str]]:
    """Yield the tensors that are to be healed, each with what is wrong with it.

    They are those named, or all that are damaged.
    """
    if request.keys:
        named = {path for pattern in request.keys for path in named_paths(mine.checkpoint, "--key", pattern, mine.root)}
    for tensor in mine.checkpoint.tensors:
        path = tensor.path
        if not request.keys:
            chosen = path in here.troubles and path[: len(mine.root)] == mine.root
        else:
            chosen = any(path[:end] in named for end in range(len(path) + 1))
        if chosen:
            yield path, here.troubles.get(path, "was named")


def _without_doubts(
    here: Health, partners: Mapping[KeyPath, Pair], mine: _Opened, its: _Opened
) -> Generator[Progress, None, Health]:
    """Return the same without runs of zeros that the other copy has, too: they are meant."""
    doubted = {key for key, damage in here.damage.items() if damage.computed is None}
    asked = [
        partners[tensor.path]
        for tensor in mine.checkpoint.tensors
        if tensor.path in partners and any(storage.key in doubted for storage in storages_of(tensor))
    ]
    if not asked:
        return here
    yield from _fetched(its, [pair.b for pair in asked])
    same = yield from _compared(asked, mine, its)
    differ = {
        storage.key for pair, each in zip(asked, same, strict=True) if not each for storage in storages_of(pair.a)
    }
    meant = {storage.key for pair in asked for storage in storages_of(pair.a)} & doubted - differ
    damage = {key: each for key, each in here.damage.items() if key not in meant}
    sound = {pair.a.path for pair in asked if all(storage.key not in damage for storage in storages_of(pair.a))}
    troubles = {path: each for path, each in here.troubles.items() if path not in sound - here.not_finite}
    return replace(here, damage=damage, troubles=troubles)


def _fetched(its: _Opened, tensors: Sequence[Tensor]) -> Generator[Progress, None, None]:
    """Bring these tensors of the other copy here, where they are on another machine."""
    if isinstance(its.source, FetchedSource):
        yield from fetched(its.source, tensors)


def _compared(pairs: Sequence[Pair], mine: _Opened, its: _Opened) -> Generator[Progress, None, list[bool | None]]:
    def compared(work: Work) -> list[bool | None]:
        opened = (mine.checkpoint, mine.source), (its.checkpoint, its.source)
        return same_bytes([(pair.a, pair.b) for pair in pairs], *opened, work)

    total = sum([pair.a.nbytes + pair.b.nbytes for pair in pairs])
    return (yield from in_thread(compared, "both copies", total)).require()


def _likeness(
    found: Difference, mine: _Opened, its: _Opened, sick: set[KeyPath], there: Health
) -> Generator[Progress, None, Likeness]:
    """Return how far the two agree in what is healthy in both.

    Of a copy on another machine, checksums in its headers tell, as far as both have them.
    """
    pairs = [
        pair for pair in found.pairs if pair.sure and pair.a.path not in sick and pair.b.path not in there.troubles
    ]
    same: list[bool | None]
    if its.distant:
        alike = mine.checkpoint.big_endian == its.checkpoint.big_endian
        same = [same_checksums(pair.a, pair.b) if alike else None for pair in pairs]
    else:
        same = yield from _compared(pairs, mine, its)
    told = list(zip(pairs, same, strict=True))
    unlike = tuple([pair.a.path for pair, each in told if each is False])
    others = sum(each.a is not ABSENT and each.b is not ABSENT for each in found.others)
    return Likeness(sum(each is True for each in same), unlike, others, len(found.removed), its.distant)


def _report(
    request: GraftRequest, mine: _Opened, its: _Opened | None, choice: Choice, likeness: Likeness
) -> GraftReport:
    here = choice.mine[2]
    grafted, healed = tuple(_grafts(choice, likeness)), tuple(_flips(choice))
    output = output_of(request, unwrapped_path(mine.container)) if grafted or healed else None
    return GraftReport(
        path=request.path,
        donor=None if its is None else its.path,
        output=output,
        format=mine.checkpoint.format,
        tensors=len(mine.checkpoint.tensors),
        grafted=grafted,
        healed=healed,
        left=choice.left,
        beside=len(here.troubles.keys() - choice.wanted.keys()),
        around=tuple([note.message for note in mine.checkpoint.notes if note.kind is NoteKind.ZIP_DAMAGED]),
        likeness=likeness,
        unexamined="" if its is None else _unread(its),
        unsummed=here.unsummed > 0,
        replaces_original=output is not None and os.path.realpath(output) == os.path.realpath(request.path),
        fetched=its.source.bytes_read if its is not None and its.distant else None,
        donor_size=its.source.size if its is not None and its.distant else 0,
    )


def _proven(report: GraftReport, whole: WholeProof) -> GraftReport:
    """Return the report with what is known of the whole output: where it has a published hash, every byte is proven."""
    report = replace(report, published=whole.by, unlike_published=whole.asked)
    if not whole.by:
        return report
    proved = [
        each if each.ground is Ground.CHECKSUM else replace(each, ground=Ground.PUBLISHED) for each in report.grafted
    ]
    return replace(report, grafted=tuple(proved))


def _unread(its: _Opened) -> str:
    """Return which files of the other copy are missing or damaged, or "" where it is whole."""
    unread = its.side.unread
    return f"{its.path}: {told_of(its.checkpoint, unread)}" if unread else ""


def _flips(choice: Choice) -> Iterator[HealedTensor]:
    for tensor, storages in choice.healed():
        yield from (each.flipped.in_tensor(tensor.path) for each in storages if each.flipped is not None)


def _grafts(choice: Choice, likeness: Likeness) -> Iterator[Graft]:
    """Yield the tensors that have bytes of the other copy."""
    for tensor, storages in choice.healed():
        flipped = any(each.flipped for each in storages)
        if flipped and not any(each.patches for each in storages if each.flipped is None):
            continue
        pair = choice.partners[tensor.path]
        yield Graft(
            tensor.path,
            tensor.dtype.name,
            tensor.shape,
            tensor.nbytes,
            choice.wanted[tensor.path],
            _ground(storages, likeness),
            pair.b.path if pair.b.path != tensor.path else None,
        )


def _ground(storages: tuple[Healed, ...], likeness: Likeness) -> Ground:
    if all(each.fits for each in storages):
        return Ground.CHECKSUM
    if likeness.alike and not any(each.denied for each in storages):
        return Ground.COPIES
    return Ground.CONSENT
