"""Proves an output: it is opened again, and the bytes of every tensor are followed back to where they are from.

Copied ranges have been compared byte for byte when they were written, so that it is enough to know that they are the
right ones; everything else is compared here, by other code than made it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from zlib import crc32

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Extent, FileSource, Storage, Tensor, progress, show_path
from ckptdoctor.checkpoint.source import Overlay
from ckptdoctor.edits.applied.wanted import Stored, Wanted, new_storages
from ckptdoctor.edits.casts import alike, cast_in
from ckptdoctor.edits.elements import Converted, Elements, NewStorage, is_computed, views
from ckptdoctor.errors import DamagedError, WriteError
from ckptdoctor.findings import Proof
from ckptdoctor.formats.fresh.reading import inflated, of_storage, produced
from ckptdoctor.formats.fresh.strided import elements, tensor_of, turn_of
from ckptdoctor.noun import noun
from ckptdoctor.prove.elements import require_casts, require_elements
from ckptdoctor.prove.same_contents import read_back, require_right, require_same, storage_pairs
from ckptdoctor.writing import CopiedRanges, Copy, Generated, Literal, Recipe, Segment
from ckptdoctor.writing.checksums import Bytes, Data, batches

_WORKERS = 2
_EVERY = 0.1  # seconds


@noun
class Direct:
    """Elements that are views of files, and where the storages are that they name."""

    elements: Elements
    places: Mapping[str, Extent]


@noun
class CopyTally:
    """The number of tensors that are ranges of the sources, that have the same elements in another layout, and rest.

    The rest are ``computed``.
    """

    identical: int = 0
    remade: int = 0
    computed: int = 0

    def __add__(self, other: CopyTally) -> CopyTally:
        mine, its = (self.identical, self.remade, self.computed), (other.identical, other.remade, other.computed)
        return CopyTally(*[one + two for one, two in zip(mine, its, strict=True)])


_IDENTICAL = CopyTally(identical=1)


def prove(files: Mapping[str, str], output: str, wanted: Wanted, recipe: Recipe) -> CopyTally:
    """Return the number of tensors that are ranges of the sources, and of others.

    Raises WriteError for anything unexpected.

    ``files`` are the current paths of the container's files, by name; ``output`` is its final path.
    """
    with read_back():
        written = _reopened(files, output)
    require_same(wanted.contents, written)
    kinds = require_bytes(written, wanted, recipe)
    keys = [each.storage.key for each in wanted.contents.tensors if each.storage is not None]
    return sum([kinds[key] for key in keys if key in wanted.stored], CopyTally())  # what has no bytes is no copy


def require_bytes(written: Checkpoint, wanted: Wanted, recipe: Recipe) -> dict[str, CopyTally]:
    """Raise WriteError, with the tensor, unless storages hold what they are to hold; what tensors on each count as.

    ``written`` has the contents that are wanted. The storages are named by their keys there.
    """
    return _require_bytes(written, wanted, storage_pairs(wanted.contents, written), CopiedRanges(recipe))


def _require_bytes(
    written: Checkpoint, wanted: Wanted, ours: Mapping[str, str], copied: CopiedRanges
) -> dict[str, CopyTally]:
    """Return the same, with the keys here of the storages there, and where everything is copied from."""
    places = {each.key: each.extent for each in written.storages}
    pairs = {key: its for its, key in ours.items()}
    found = _untouched(wanted, pairs, places, copied)
    rest = [(key, each) for key, each in _stored(wanted, found) if key in pairs]
    tensors = reversed(wanted.contents.tensors) if rest else ()
    names = {each.storage.key: each.key for each in tensors if each.storage is not None}
    swapped = wanted.original.big_endian

    def required(pair: tuple[str, Stored]) -> tuple[str, CopyTally]:
        key, each = pair
        return key, _require_stored(each, swapped, places[pairs[key]], copied, names.get(key, "a storage"))

    large = [pair for pair in rest if pair[1].nbytes >= progress.WORTH_A_THREAD and _cast_in(pair[1]) is not None]
    found.update(progress.in_order(required, large))
    left = [pair for pair in rest if pair[0] not in found]
    for group in alike(left, lambda pair: _cast_in(pair[1])):
        if len(group) > 1:
            found.update(_require_casts([(key, each, places[pairs[key]]) for key, each in group], swapped))
        found.update(map(required, [pair for pair in group if pair[0] not in found]))
    return found


def _cast_in(stored: Stored) -> Converted | None:
    """Return what the storage holds, where that is numbers of another dtype."""
    storage = None if stored.shown is None else stored.shown.storage
    return cast_in(storage.holds) if isinstance(storage, NewStorage) else None


def _require_casts(
    group: Iterable[tuple[str, Stored, Extent | None]], swapped: bool
) -> Iterator[tuple[str, CopyTally]]:
    """Yield what tensors on small storages of cast numbers count as, as far as they can be compared at once."""
    with ExitStack() as stack:
        casts: dict[str, tuple[Converted, Mapping[str, Extent], Extent]] = {}
        for key, stored, place in group:
            direct = None if stored.shown is None else _as_it_lies(stored.shown, swapped, stack)
            numbers = None if direct is None else cast_in(direct.elements)
            made = len(stored.data) == 1 and isinstance(stored.data[0], Generated)
            if direct and numbers and made and place is not None and place.length == stored.nbytes:
                casts[key] = numbers, direct.places, place
        require_casts(casts.values())
        yield from [(key, CopyTally(computed=1)) for key in casts]


def _untouched(
    wanted: Wanted, pairs: Mapping[str, str], places: Mapping[str, Extent | None], copied: CopiedRanges
) -> dict[str, CopyTally]:
    """Return the storages of which every byte is copied as it was in the original.

    Nearly all of a repaired file are.
    """
    found: dict[str, CopyTally] = {}
    done = 0
    changed = wanted.stored.keys() | wanted.remade.keys() | wanted.pieces.keys()
    for key, storage in {each.key: each for each in wanted.original.storages}.items():
        old = storage.extent
        if old is None or storage.compressed or key in changed or key not in pairs:
            continue
        place = places[pairs[key]]
        if place is not None and place.length == old.length and copied.holds(place.offset, old.offset, old.length):
            done += old.length
            found[key] = _IDENTICAL
    progress.advance(done)
    return found


def _stored(wanted: Wanted, known: Container[str]) -> Iterator[tuple[str, Stored]]:
    """Yield what the storages hold, by their keys, as far as that is told; those that are ``known`` are not."""
    left = [each for each in wanted.contents.storages if each.key not in known]
    if not left:  # as of nearly every repair
        return
    originals, new = {each.key: each for each in wanted.original.storages}, new_storages(wanted)
    for storage in left:
        key, old = storage.key, originals.get(storage.key)
        if key in wanted.stored:
            yield key, wanted.stored[key]
        elif key in new and old is None:
            yield key, Stored(new[key].nbytes, _made(new[key]), shown=tensor_of(new[key]))
        elif old is not None and old.compressed:
            kept = wanted.pieces.get(key, ((0, old.nbytes),))
            parts = [Generated(length, of_storage(old, start, length)) for start, length in kept if length]
            yield key, Stored(sum([each.length for each in parts]), tuple(parts))
        elif old is not None and old.extent is not None:
            kept = wanted.pieces.get(key, ((0, old.extent.length),))
            copies = tuple([Copy(old.extent.offset + start, length) for start, length in kept if length])
            yield key, Stored(sum([each.length for each in copies]), copies)


def _made(storage: Storage) -> tuple[Generated, ...]:
    return (Generated(storage.nbytes, lambda: produced(storage)),) if storage.nbytes else ()


def _reopened(files: Mapping[str, str], output: str) -> Checkpoint:
    if list(files) == [""]:
        return formats.open_checkpoint(files[""])
    with closing(Overlay(output, files)) as folder:
        written = formats.read(folder, formats.examine(folder))
    require_right(next((note.message for note in written.notes), None))
    return written


def _require_stored(stored: Stored, swapped: bool, place: Extent | None, copied: CopiedRanges, name: str) -> CopyTally:
    """Raise WriteError unless the bytes at ``place`` are those of the storage; what each of its tensors counts as.

    What was made is compared with what it is made of, and made again where that is not in files as it is.
    """
    size = 0 if place is None else place.length
    if place is not None and len(stored.data) == 1 and isinstance(only := stored.data[0], Copy):  # nearly every one
        if not stored.nbytes == only.length == size or not copied.copied_from(place.offset, only):
            raise _wrong(name)
        progress.advance(size)
        return _IDENTICAL
    if stored.nbytes != size or sum([each.length for each in stored.data]) != size:
        raise _wrong(name)
    if place is None or not any(isinstance(each, Generated) for each in stored.data):
        _require_all(stored.data, None, place, copied, name)
        return _IDENTICAL
    with ExitStack() as stack:
        found = None if stored.shown is None else _as_it_lies(stored.shown, swapped, stack)
        _require_all(stored.data, found, place, copied, name)
    source = None if stored.shown is None else stored.shown.storage
    computed = isinstance(source, NewStorage) and is_computed(source.holds)
    return CopyTally(computed=1) if computed else CopyTally(remade=1)


def _as_it_lies(tensor: Tensor, swapped: bool, stack: ExitStack) -> Direct | None:
    """Return the elements as views of files, or None where they are turned there, or only packed."""
    found, places = elements(tensor)
    extents: dict[str, Extent] = {}
    for name, each in places.items():
        turned = swapped and turn_of(each.storage) > 1
        extent = None if turned else _extent(each.storage, stack, isinstance(tensor.storage, NewStorage))
        if extent is None:
            return None
        extents[name] = extent
    return Direct(found, extents)


def _extent(storage: Storage, stack: ExitStack, unpacked: bool) -> Extent | None:
    """Return where the storage is, as it is.

    One that is nowhere in that form is written to a temporary file, and proven there.

    That is a new one, from which tensors are cut out, and a compressed one if it is to be ``unpacked``.
    """
    if not isinstance(storage, NewStorage) and not (storage.compressed and unpacked):
        return None if storage.compressed else storage.extent
    from tempfile import TemporaryDirectory  # importing it takes longer than proving most files

    path = os.path.join(stack.enter_context(TemporaryDirectory()), "storage")
    with open(path, "wb") as file:
        file.writelines(produced(storage))
    extent = Extent(path, 0, storage.nbytes)
    if isinstance(storage, NewStorage):
        named = {each.source for each in views(storage.holds) if each.held is None}
        places = {name: _extent(storage.of[name], stack, unpacked) for name in named}
        require_elements(storage.holds, {name: each for name, each in places.items() if each is not None}, extent)
    return extent


def _require_all(
    data: Sequence[Segment], found: Direct | None, place: Extent | None, copied: CopiedRanges, name: str
) -> None:
    at = place.offset if place is not None else 0
    for each in data:
        if place is not None:
            _require(each, found, Extent(place.file, at, each.length), copied, name)
        at += each.length


def _require(wanted: Segment, found: Direct | None, place: Extent, copied: CopiedRanges, name: str) -> None:
    if isinstance(wanted, Copy):
        if not copied.copied_from(place.offset, wanted):
            raise _wrong(name)
        progress.advance(wanted.length)
    elif isinstance(wanted, Generated) and found is not None:
        require_elements(found.elements, found.places, place)
    else:
        at = place.offset
        for chunk in (wanted.data,) if isinstance(wanted, Literal) else wanted.chunks():
            if _read(place.file, at, len(chunk)) != chunk:
                raise _wrong(name)
            at += len(chunk)
            progress.advance(len(chunk))


def _wrong(name: str) -> WriteError:
    return WriteError(f"The values of {name} differ in the output; it was discarded.")


def _read(path: str, offset: int, length: int) -> bytes:
    with FileSource(path) as source:
        return source.read(offset, length)


class Checksums:
    """Holds storages against the checksums that their container has, in threads of their own, while others write."""

    def __init__(self, tensors: Iterable[Tensor], told: Callable[[str, Sequence[Storage]], str]) -> None:
        """Begin. ``told`` is the refusal for a tensor and the storages whose values do not match."""
        from concurrent.futures import ThreadPoolExecutor  # a repair reads no value, and needs no threads

        storages: dict[Extent, Storage] = {}
        self._told = told
        self._names: dict[str, str] = {}
        for tensor in tensors:
            for storage in _in_files(tensor):
                if storage.extent is not None and storage.crc32 is not None:
                    storages.setdefault(storage.extent, storage)
                    self._names.setdefault(storage.key, show_path(tensor.path))
        self._stopped = False
        self._done = 0
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="ckptdoctor-checksums")
        self._storages = {(Copy(each.offset, each.length, each.file),): storage for each, storage in storages.items()}
        self._found = [self._pool.submit(self._unlike, group) for group in batches(list(self._storages))]

    def require(self) -> None:
        """Raise DamagedError for the first storage that does not match, with what to do about all of them."""
        from concurrent.futures import wait

        total = sum([each.length for (each,) in self._storages])
        with progress.phase("checksums", total) as reading:
            for future in self._found:
                while not wait([future], _EVERY).done:
                    reading.reach(self._done)
        broken = [storage for future in self._found for storage in future.result()]
        if broken:
            raise DamagedError(self._told(self._names[broken[0].key], broken))

    def close(self) -> None:
        """Stop, whatever is left to do."""
        self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _unlike(self, group: Sequence[Data]) -> list[Storage]:
        """Return the storages of the group with another checksum."""
        found: list[Storage] = []
        with Bytes() as files:
            for data in group:
                storage = self._storages[data]  # type: ignore[index]  # a tuple of one range
                crc = 0
                for chunk in inflated(storage) if storage.compressed else files.of(data):
                    if self._stopped:
                        return found
                    crc = crc32(chunk, crc)
                    self._done += len(chunk)  # by two threads: where one is overlooked, the line is a little behind
                if crc != storage.crc32:
                    found.append(storage)
        return found


def _in_files(tensor: Tensor) -> Iterator[Storage]:
    """Yield the storages that files have of a tensor: its own, its chunks' and parts', those it is made of."""
    waiting: list[Storage | None] = [tensor.storage]
    while waiting:
        storage = waiting.pop()
        if isinstance(storage, NewStorage):  # which may be made of one that is new itself
            waiting += [storage.of[each.source] for each in views(storage.holds) if each.held is None]
        elif storage is not None:
            yield storage
    for each in (*[chunk for _, chunk in tensor.chunks], *tensor.parts):
        yield from _in_files(each)


# ---- where the bytes of every storage of a repaired copy come from: the original, or what edits made of it


def trace(wanted: Wanted, written: Checkpoint, recipe: Recipe) -> Proof:
    """Follow every storage of ``written`` back to the original, from which ``recipe`` copies.

    The copied ranges themselves have been compared byte for byte when they were written. Storages that no tensor views
    and that got another key are counted, but not as proven. Raises WriteError, with the tensor, when the bytes of its
    storage come from anywhere else than they must.
    """
    pairs, copied = storage_pairs(wanted.contents, written), CopiedRanges(recipe)
    _require_bytes(written, wanted, pairs, copied)
    unviewed = [each for each in written.storages if each.key not in pairs]  # hardly ever any
    by_place: dict[int, Storage] = {}
    if unviewed:
        by_place = {each.extent.offset: each for each in wanted.original.storages if each.extent is not None}
    keys = [*pairs.values()]
    for storage in unviewed:
        extent = storage.extent
        if extent is None or not extent.length:
            keys.append(storage.key)
            continue
        source = copied.source(extent.offset)
        old = by_place.get(source) if source is not None else None
        if source is None or old is None or old.extent is None:
            keys.append(storage.key)
            continue
        if extent.length != old.extent.length or not copied.copied_from(extent.offset, Copy(source, extent.length)):
            raise WriteError(
                f"Storage {storage.key} of the output is not storage {old.key} of the original; it was discarded."
            )
        keys += [old.key] if old.key == storage.key else []
    return _counted(keys, len(written.storages), wanted)


def counted(wanted: Wanted) -> Proof:
    """Return the same count where the contents go into another container, which is proven tensor by tensor."""
    return _counted([each.key for each in wanted.contents.storages], len(wanted.contents.storages), wanted)


def _counted(keys: Iterable[str], storages: int, wanted: Wanted) -> Proof:
    originals = {each.key: each for each in wanted.original.storages}
    kinds = Counter([_kind(key, originals.get(key), wanted) for key in keys])
    return Proof(
        storages=storages,
        identical=kinds["identical"],
        shrunk=kinds["shrunk"],
        remade=kinds["remade"],
        inflated=kinds["inflated"],
        computed=kinds["computed"],
    )


def _kind(key: str, old: Storage | None, wanted: Wanted) -> str:
    """Return what of the original's a storage of the contents is, or "" where that is not known."""
    if old is None:
        holds = wanted.remade.get(key)
        return "" if holds is None else "computed" if is_computed(holds) else "remade"
    if old.compressed:
        return "inflated"
    if old.extent is None:
        return ""
    pieces = wanted.pieces.get(key)
    return "identical" if pieces is None or pieces == ((0, old.extent.length),) else "shrunk"
