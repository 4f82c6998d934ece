"""Compares two checkpoints: by their headers, which tensors and other contents are in both, and by their values."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from time import perf_counter
from typing import Protocol

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath, NoteKind, Source, Tensor, show_path
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.checkpoint.progress import Listener, Work, follow, in_thread
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.checkpoint.sharing import view_in_file
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.differences import Difference, Pair, Section, Side, Single, SoFar, Tie
from ckptdoctor.diffing.others import other_differences
from ckptdoctor.diffing.pairing import Counterparts, Renaming, pair_up, renaming
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.diffing.summary import summary
from ckptdoctor.errors import StoppedError, UnreadableError
from ckptdoctor.noun import noun, replace
from ckptdoctor.remote import addresses


class Measure(Protocol):
    """Compares the values as well."""

    def __call__(
        self, found: Difference, a: Source, b: Source, work: Work, sofar: SoFar | None = None, /
    ) -> Difference:
        """Return the difference of headers and values; ``a`` and ``b`` are where the bytes of both are."""


def diff(request: DiffRequest, measure: Measure | None = None, listener: Listener | None = None) -> Difference:
    """Compare two checkpoints by their headers, and by their values where ``measure`` compares those.

    ``listener`` is told how far that is, and Ctrl-C ends it at once, with what is known by then. Raises UsageError when
    there is no such root, and what ``formats.open_checkpoint`` does.
    """
    start = perf_counter()
    with formats.opened(request.a) as (one, first), formats.opened(request.b) as (other, second):
        root_b = request.root if request.root_b is None else request.root_b
        a = _side(request.a, formats.read(one, first), request.root)
        b = _side(request.b, formats.read(other, second), root_b)
        found = replace(compare_headers(a, b), rtol=request.rtol, atol=request.atol)
        if measure is not None:
            found = _measured(found, one, other, measure, listener)
        found = replace(found, ties=ties(found.pairs, found.removed, found.added))
    return replace(found, summary=summary(found), seconds=perf_counter() - start)


def _measured(found: Difference, a: Source, b: Source, measure: Measure, listener: Listener | None) -> Difference:
    if listener is None:
        return replace(measure(found, a, b, Work()), compared=True)
    from ckptdoctor.values.differences import bytes_to_compare

    known = [found]

    def compared(work: Work) -> Difference:
        return measure(found, a, b, work, lambda now, new: known.append(now))

    done = follow(in_thread(compared, "values", bytes_to_compare(found)), listener)
    if done.result is not None and done.complete:
        return replace(done.result, compared=True)
    return replace(known[-1], interrupted=done.progress)


def compare_values_of(found: Difference, request: DiffRequest, sofar: SoFar, listener: Listener) -> Difference | None:
    """Return the same with what the values say; None where ``listener`` wanted no more.

    ``sofar`` hears what is known so far, and which pairs are new in it.
    Pairs whose values are known are not read again: what was broken off can be gone on with. Raises UnreadableError
    when a file is not the one whose headers were read.
    """
    from ckptdoctor.values.differences import bytes_to_compare, compare_values

    start = perf_counter()
    left = replace(found, pairs=tuple([pair for pair in found.pairs if pair.values is None]))
    work = Work("values", bytes_to_compare(left), listener)
    with formats.opened(request.a) as (one, first), formats.opened(request.b) as (other, second):
        for side, container in ((found.a, first), (found.b, second)):
            _require_the_same(side, container)
        try:
            found = compare_values(found, one, other, work, sofar)
        except StoppedError:
            return None
    found = replace(found, compared=True, seconds=found.seconds + perf_counter() - start)
    found = replace(found, ties=ties(found.pairs, found.removed, found.added))
    return replace(found, summary=summary(found))


def _require_the_same(side: Side, container: Container) -> None:
    if container.identity != side.checkpoint.identity:
        raise UnreadableError(f"{side.path} has changed since its headers were read: open it again.")


def _side(path: str, checkpoint: Checkpoint, root: str | None) -> Side:
    return Side(addresses.shown(path), checkpoint, find_root(checkpoint.tree, root) if root is not None else ())


@collector_paused()
def compare_headers(a: Side, b: Side) -> Difference:
    """Compare two checkpoints by their headers."""
    matched = pair_up(a, b)
    here, there = _Names(a, matched, 0), _Names(b, matched, 1)
    mine, its = here.tensors(), there.tensors()
    renamings = list(_renamings(a, b, matched, mine, its))
    names = {old: new for each in renamings for old, new in each.pairs.items()}
    unsure = {old for each in renamings for old in each.unsure}
    pairs, removed, found = [], [], set()
    lost_here, lost_there = here.lost(), there.lost()
    for address, tensor in mine.items():
        goal = address if address in its else names.get(address)
        if goal is None:
            lost = address in lost_there
            removed.append(Single(here.name(address), tensor, here.holds_weights(address), lost))
            continue
        found.add(goal)
        name = here.name(address)
        name_b = name if goal == address else here.name(goal)
        weights = here.holds_weights(address)
        pairs.append(Pair(name, name_b, tensor, its[goal], weights, address not in unsure))
    added = [
        Single(there.name(address), tensor, there.holds_weights(address), address in lost_here)
        for address, tensor in its.items()
        if address not in found
    ]
    return Difference(
        a=a,
        b=b,
        pairs=tuple(pairs),
        removed=tuple(removed),
        added=tuple(added),
        others=tuple(other_differences(a, b, matched, renamed=bool(names))),
        sections=tuple([Section(one.role, one.path, other.path) for one, other in matched.pairs]),
        steps=tuple(dict.fromkeys([step for each in renamings for step in each.steps])),
        notes=tuple(_notes(a, b)),
    )


def _renamings(
    a: Side, b: Side, matched: Counterparts, mine: dict[Address, Tensor], its: dict[Address, Tensor]
) -> Iterator[Renaming[Address]]:
    """Yield, for each pair of state dicts that are weights, which names that only one has belong together."""
    for index, (one, other) in enumerate(matched.pairs):
        if one.role not in WEIGHTS or other.role not in WEIGHTS:
            continue
        left = [tensor for key, tensor in _direct(mine, index) if (index, (key,)) not in its]
        wanted = [tensor for key, tensor in _direct(its, index) if (index, (key,)) not in mine]
        if left and wanted:
            found = renaming(a.checkpoint, replace(one, tensors=tuple(left)), b.checkpoint, other, wanted)
            yield Renaming(
                {(index, (old,)): (index, (new,)) for old, new in found.pairs.items()},
                frozenset([(index, (old,)) for old in found.unsure]),
                found.steps,
            )


def _direct(tensors: dict[Address, Tensor], section: int) -> list[tuple[str, Tensor]]:
    """Return the direct entries of a section under text keys."""
    return [
        (path[0], tensor)
        for (index, path), tensor in tensors.items()
        if index == section and len(path) == 1 and isinstance(path[0], str)
    ]


# the number of a pair of state dicts (-1: outside of all) and the path in it, which is the same for counterparts
Address = tuple[int, KeyPath]


@noun
class _Names:
    """The addresses of the tensors of one side, and what people call them."""

    side: Side
    matched: Counterparts
    index: int

    def tensors(self) -> dict[Address, Tensor]:
        """Return every tensor in the part that is compared, in file order."""
        tensors = self.side.checkpoint.tensors
        return {address: tensors[index] for index, address in self._addresses([each.path for each in tensors])}

    def lost(self) -> set[Address]:
        """Return the addresses of tensors that an index puts in files that were not read."""
        unread = self.side.unread
        return {address for _, address in self._addresses([path for note in unread for path in note.keys])}

    def _addresses(self, paths: Sequence[KeyPath]) -> Iterator[tuple[int, Address]]:
        """Yield the address of each path in the part that is compared, with the number of the path."""
        roots = {pair[self.index].path: number for number, pair in enumerate(self.matched.pairs)}
        depths = sorted({len(path) for path in roots}, reverse=True)
        skip = len(self.side.root)
        for index, path in enumerate(paths):
            if path[:skip] != self.side.root:
                continue
            for depth in depths:
                number = roots.get(path[:depth])
                if number is not None and depth < len(path):
                    yield index, (number, path[depth:])
                    break
            else:
                yield index, (-1, path[skip:])

    def name(self, address: Address) -> str:
        """Return the key in the first set of weights; elsewhere the path, which begins as it does in A."""
        number, path = address
        if number == -1:
            return show_path(path)
        if number == self.matched.main:
            return show_path(path)
        where = self.matched.pairs[number][0].path[len(self.side.root) if self.index == 0 else 0 :]
        return show_path((*where, *path))

    def holds_weights(self, address: Address) -> bool:
        """Return whether what is there belongs to a model's weights."""
        return address[0] != -1 and self.matched.pairs[address[0]][0].role in WEIGHTS


def _notes(a: Side, b: Side) -> Iterator[str]:
    """Yield the parts of either file that were not looked at."""
    for name, side in (("A", a), ("B", b)):
        for note in side.checkpoint.notes:
            if note.kind is NoteKind.NOT_EXAMINED:
                yield f"{name}: {note.message}"


# ---- tensors that share their memory on one side and not on the other


# what makes tensors out of files that hold each under its own name alone
_WITHOUT_TIES = ("safetensors", "torch.distributed.checkpoint", "numpy.")

StoragePlace = tuple[str, int, int]


@collector_paused()
def ties(pairs: Sequence[Pair], removed: Sequence[Single], added: Sequence[Single]) -> tuple[Tie, ...]:
    """Return the ties of A, then those of B, in file order."""
    here = _shared([*[pair.a for pair in pairs], *[each.tensor for each in removed]])
    there = _shared([*[pair.b for pair in pairs], *[each.tensor for each in added]])
    return (
        *_ties("a", [(pair.name, pair.a, pair.b) for pair in pairs if _place(pair.a) in here], removed, here),
        *_ties("b", [(pair.name_b, pair.b, pair.a) for pair in pairs if _place(pair.b) in there], added, there),
    )


def _shared(tensors: Sequence[Tensor]) -> set[StoragePlace]:
    """Return the places where several tensors begin: in nearly every file there are few."""
    seen: set[StoragePlace] = set()
    twice: set[StoragePlace] = set()
    for tensor in tensors:
        place = _place(tensor)
        if place is not None:
            (twice if place in seen else seen).add(place)
    return twice


def _place(tensor: Tensor) -> StoragePlace | None:
    """Return the place of a tensor's first element; None where it cannot be tied to another."""
    storage = tensor.storage
    if storage is None or storage.extent is None or not tensor.numel:
        return None
    return storage.extent.file, storage.extent.offset, tensor.offset


def _ties(
    side: str, both: Sequence[tuple[str, Tensor, Tensor]], alone: Sequence[Single], shared: set[StoragePlace]
) -> Iterator[Tie]:
    """Yield the tensors that are one on this side, of which the other makes several, or lacks some."""
    groups: dict[Hashable, list[tuple[str, Tensor]]] = {}
    for name, mine, its in both:
        groups.setdefault(view_in_file(mine), []).append((name, its))
    missing: dict[Hashable, list[str]] = {}
    for each in alone:
        if _place(each.tensor) in shared and (view := view_in_file(each.tensor)) in groups:
            missing.setdefault(view, []).append(each.name)
    for view, group in groups.items():
        gone = missing.get(view, [])
        several = len({view_in_file(its) for _, its in group}) > 1
        if several or gone:
            counts = several and not any(its.rebuild.startswith(_WITHOUT_TIES) for _, its in group)
            yield Tie(side, tuple([name for name, _ in group]), tuple(gone), several, counts)
