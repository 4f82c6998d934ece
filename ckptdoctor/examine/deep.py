"""Examines a checkpoint deeply: every byte for integrity and every value, both at the same time.

What no tensor shows is read for integrity afterwards, and so is what looked suspicious.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Source, Tensor
from ckptdoctor.checkpoint.progress import Progress, Work, WorkDone, in_thread
from ckptdoctor.checkpoint.sharing import is_readable
from ckptdoctor.errors import DamagedError, StoppedError
from ckptdoctor.examine.integrity import examine_integrity, integrity_bytes
from ckptdoctor.facts.names import TiedPair, tied_pairs
from ckptdoctor.findings import Skipped
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.same_as_base import SameAsBase, same_as_base
from ckptdoctor.noun import noun, replace
from ckptdoctor.rules.framework import Rule
from ckptdoctor.values.damage import Damage, Integrity, may_have_holes
from ckptdoctor.values.statistics import Values
from ckptdoctor.values.storage_damage import Scan, note_of, readable
from ckptdoctor.wording import plural

if TYPE_CHECKING:
    from hashlib import _Hash

    from ckptdoctor.formats.packed.front import Front
    from ckptdoctor.formats.packed.thin import Thin
    from ckptdoctor.values.storage_checks import StorageChecks


_REASONS = 5  # different reasons that a report names for values that were not looked at
_ONLY_FINITE = ("V651",)  # the rules that ask no more than whether values are finite


def integrity_of(
    checkpoint: Checkpoint, source: Source, sound: Mapping[str, int] = MappingProxyType({})
) -> Generator[Progress, None, WorkDone[Integrity]]:
    """Return checksums and holes; see ``examine_integrity``. Raises TruncatedError when the file shrinks meanwhile."""

    def read(work: Work) -> Integrity:
        return examine_integrity(checkpoint, source, work, sound)

    return (yield from in_thread(read, "checksums", integrity_bytes(checkpoint, source)))


def not_begun(checkpoint: Checkpoint, rules: Iterable[Rule]) -> Iterator[Progress]:
    """Yield the parts of an examination of which nothing was read."""
    stored = sum([each.extent.length for each in checkpoint.storages if each.extent is not None])
    yield Progress("checksums", 0, stored, complete=False)
    if _readers(rules):
        from ckptdoctor.values.distinct import bytes_to_read

        yield Progress("values", 0, bytes_to_read(checkpoint), complete=False)


def _readers(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules that values are read for."""
    return [rule for rule in rules if Values in (rule.subject, *get_args(rule.subject))]


@noun
class Asked:
    """What is asked of values: as ``examine_values`` has it."""

    only_finite: bool
    sums: bool


def asked_of(rules: Iterable[Rule], pictures: bool = False) -> Asked | None:
    """Return what these rules ask, None if none asks for values; those of other packages may ask for anything."""
    readers = _readers(rules)
    if not readers:
        return None
    strange = any(rule.address is None for rule in readers)
    few = all(rule.code in _ONLY_FINITE for rule in readers)
    return Asked(only_finite=few and not pictures, sums=pictures or strange)


def read_everything(
    checkpoint: Checkpoint, source: Source, rules: Iterable[Rule], pictures: bool
) -> Generator[Progress, None, tuple[WorkDone[Integrity], WorkDone[Values]]]:
    """Yield progress, and return integrity and values, as far as rules or ``pictures`` ask for them.

    Values come first: their bytes show damage as they pass by, and integrity reads the rest.
    Raises TruncatedError when the file shrinks meanwhile.
    """
    asked = asked_of(rules, pictures)
    if asked is None:
        return (yield from integrity_of(checkpoint, source)), WorkDone()
    from ckptdoctor.values.storage_checks import StorageChecks

    checks = StorageChecks()
    values = yield from _values_of(checkpoint, source, asked, checks)
    assert values.progress is not None
    values.progress = replace(values.progress, what="values")
    sound = checks.sound(checkpoint, source) if values.complete else {}
    if not values.complete or (values.interrupted and len(sound) < len(checkpoint.storages)):
        return _broken_off(checks.integrity(checkpoint, source), checkpoint, source), values
    return (yield from integrity_of(checkpoint, source, sound)), values


def _values_of(
    checkpoint: Checkpoint, source: Source, asked: Asked, checks: StorageChecks
) -> Generator[Progress, None, WorkDone[Values]]:
    from ckptdoctor.values.distinct import bytes_to_read

    def read(work: Work) -> Values:
        from ckptdoctor.values.examine import examine_values

        return examine_values(checkpoint, source, work, only_finite=asked.only_finite, sums=asked.sums, checks=checks)

    return (yield from in_thread(read, "checksums and values", bytes_to_read(checkpoint)))


def _broken_off(known: Integrity, checkpoint: Checkpoint, source: Source) -> WorkDone[Integrity]:
    """Return what is known of integrity where Ctrl-C came while values were read."""
    total = integrity_bytes(checkpoint, source)
    return WorkDone(Progress("checksums", min(known.read, total), total), known, interrupted=True)


@noun
class Passed:
    """What was learnt while all of a file passed by: ``end`` is where it ended, None where nobody waited for that.

    ``error`` is why it could not be unpacked any further.
    """

    heard: Overheard
    values: Values | None
    end: int | None
    error: DamagedError | None

    def integrity_of(self, checkpoint: Checkpoint, source: Source) -> WorkDone[Integrity]:
        """Do as ``integrity_of`` does, of the file that is known to its end by now."""
        found = self.heard.integrity(checkpoint, source)
        total = integrity_bytes(checkpoint, source)
        done = total if self.end is not None else min(found.read, total)
        return WorkDone(Progress("checksums", done, total, self.end is not None), found)

    def values_of(self, checkpoint: Checkpoint, source: Source) -> WorkDone[Values]:
        """Do as ``values_of`` does; what the file ends too early for is looked for again, to be told why not."""
        if self.values is None:
            return WorkDone()
        from ckptdoctor.values.distinct import bytes_to_read
        from ckptdoctor.values.examine import examine_values

        found = {each.path: each for each in self.values.skipped}
        lost = tuple([each for each in checkpoint.tensors if not _is_whole(each)])
        if lost:
            found |= {each.path: each for each in examine_values(replace(checkpoint, tensors=lost), source).skipped}
        order = [each.path for each in checkpoint.tensors]
        values = replace(
            self.values,
            checkpoint=checkpoint,
            tensors={path: self.values.tensors[path] for path in order if path in self.values.tensors},
            skipped=tuple([found[path] for path in order if path in found]),
        )
        total = bytes_to_read(checkpoint)
        return WorkDone(Progress("values", min(values.read, total), total, values.complete), values)


def _is_whole(tensor: Tensor) -> bool:
    storage = tensor.storage
    return storage is None or (storage.extent is not None and storage.extent.length == storage.nbytes)


def passed_by(
    checkpoint: Checkpoint, front: Front | Thin, rules: Iterable[Rule], pictures: bool
) -> Generator[Progress, None, WorkDone[Passed]]:
    """Read a compressed file to its end, once: its values in the order of the file, and what its headers say."""

    asked = asked_of(rules, pictures)

    def read(work: Work) -> Passed:
        heard = Overheard(checkpoint, front)

        def hear(at: int, piece: bytes) -> None:
            heard.hear(at, piece)
            with suppress(StoppedError):  # this piece is taken to its end: what goes on with the next asks ``work``
                work.reach(at + len(piece))

        passage = front.passage(hear)
        values = None
        if asked is not None:
            from ckptdoctor.values.examine import examine_values

            in_order = replace(checkpoint, tensors=tuple(sorted(checkpoint.tensors, key=_place)))
            values = examine_values(
                in_order, passage, work.again(), only_finite=asked.only_finite, sums=asked.sums, threads=1
            )
        while not work.stopped and passage.go_on():
            pass  # hear has seen it
        return Passed(heard, values, None if work.stopped else passage.at, passage.error)

    return (yield from in_thread(read, "checksums and values", front.size))


def _place(tensor: Tensor) -> int:
    extent = tensor.storage.extent if tensor.storage is not None else None
    return extent.offset if extent is not None else 0


def base_of(
    comparison: Comparison, source: Source, rules: Iterable[Rule]
) -> Generator[Progress, None, WorkDone[SameAsBase]]:
    """Yield progress, and return which tensors have the very bytes of those of the other checkpoint, if any.

    Raises what opening it raises; it was opened before.
    """
    other, state_dict = comparison.reference.beside, comparison.state_dict
    wanted = any(SameAsBase in (rule.subject, *get_args(rule.subject)) for rule in rules)
    if not wanted or other is None or state_dict is None or not _is_another(other, source):
        return WorkDone()
    checkpoint = other

    def read(work: Work) -> SameAsBase:
        with formats.opened(checkpoint.path) as (base, _):
            return same_as_base(comparison, source, checkpoint, base, work)

    return (yield from in_thread(read, "the reference", sum([each.nbytes for each in state_dict.tensors])))


def _is_another(other: Checkpoint, source: Source) -> bool:
    """Return whether it can be opened again and is not the checkpoint that is examined.

    Only a folder has no identity.
    """
    if other.identity is None:
        return os.path.isdir(other.path) and os.path.realpath(other.path) != os.path.realpath(source.path)
    return other.identity != source.identity


def unread(values: Values | None, *, interrupted: bool = False, checked: bool = True) -> Iterator[Skipped]:
    """Yield the values that were not looked at, by reason; not ``checked``: nor were their checksums."""
    if values is None and not interrupted:
        yield Skipped("whether values are NaN or infinite", "no rule needs them")
    elif values is None:
        yield Skipped("the values", "interrupted")
    if values is None:
        return
    if not values.complete:
        yield Skipped("the rest of the values" if checked else "the rest of the checksums and values", "interrupted")
    reasons = Counter([_without_storage(each.reason) for each in values.skipped])
    for reason, count in reasons.most_common(_REASONS):
        yield Skipped(f"the values of {plural(count, 'tensor')}", reason.rstrip("."))
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(_REASONS))
    if rest:
        yield Skipped(f"the values of {plural(rest, 'more tensor')}", "for other reasons")


class Overheard:
    """What is known of the storages of a checkpoint so far; no two of them share bytes, and each is its tensor's."""

    def __init__(self, checkpoint: Checkpoint, source: Source) -> None:
        from hashlib import sha256  # which brings OpenSSL

        self._coming = readable(checkpoint, source)[::-1]  # the next one comes last
        self._begun: Scan | None = None
        self._damage: list[Damage] = []
        self._digests: dict[str, _Hash] = {}
        self._over: set[str] = set()
        self._read = 0
        for pair in tied_pairs(checkpoint):
            for tensor in (pair.head, pair.embedding):
                if pair.same is None and is_readable(tensor) and tensor.storage is not None:
                    self._digests[tensor.storage.key] = sha256()

    def hear(self, at: int, piece: bytes) -> None:
        """Take the next bytes of the file, which begin at byte ``at``."""
        stop = at + len(piece)
        while self._coming:
            storage, extent = self._coming[-1]
            end = extent.offset + extent.length
            if extent.offset >= stop and extent.length:
                return
            part = piece[max(0, extent.offset - at) : max(0, end - at)]
            if self._begun is None:
                self._begun = Scan(storage, extent)
            if may_have_holes(storage) and part:
                self._begun.feed(part)
                self._read += len(part)
            if storage.key in self._digests:
                self._digests[storage.key].update(part)
            if end > stop:
                return
            self._coming.pop()
            self._damage += self._begun.damage()
            self._begun = None
            self._over.add(storage.key)

    def integrity(self, checkpoint: Checkpoint, source: Source) -> Integrity:
        """Return what was heard of the storages that came to their end.

        ``checkpoint`` is the same one as it is known now: where the file ended early, its last extents are others.
        """
        places = {storage.key: (storage, extent) for storage, extent in readable(checkpoint, source)}
        found = [replace(each, storage=places[each.storage.key][0]) for each in self._damage]
        if self._begun is not None and self._begun.storage.key in places:
            storage, extent = places[self._begun.storage.key]
            if self._begun.fed == extent.length:  # all that there is of it
                self._begun.ends_early(storage, extent)
                found += self._begun.damage()
        unchecked = sum(storage.crc32 is None for storage, _ in places.values())
        notes = tuple([note_of(each) for each in found])
        return Integrity(checkpoint, tuple(found), self._read, unchecked, notes, twins=tuple(self._twins(checkpoint)))

    def _twins(self, checkpoint: Checkpoint) -> Iterator[TiedPair]:
        for pair in tied_pairs(checkpoint):
            one, other = self._digest(pair.head), self._digest(pair.embedding)
            if one is not None and other is not None:
                yield TiedPair(pair.head, pair.embedding, one == other)

    def _digest(self, tensor: Tensor) -> bytes | None:
        """Return the digest, or None where nobody asked for it or the tensor was not heard to its end."""
        key = tensor.storage.key if tensor.storage is not None else ""
        return self._digests[key].digest() if key in self._over and key in self._digests else None


def _without_storage(reason: str) -> str:
    """Return a reason that holds for many tensors without the one storage that it names."""
    cut = reason.startswith("The bytes of storage ") and reason.endswith(" are not all in the file.")
    return "not all of their bytes are in the file" if cut else reason
