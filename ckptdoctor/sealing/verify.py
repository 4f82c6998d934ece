"""``verify`` reads a sealed file or folder again, and names what is not as it was sealed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from time import perf_counter

from ckptdoctor.checkpoint import FileSource, Source
from ckptdoctor.checkpoint.missing import missing
from ckptdoctor.checkpoint.progress import Work, current, phase
from ckptdoctor.errors import DamagedError, UnreadableError, UsageError
from ckptdoctor.noun import noun, replace
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.sealing.hashing import Digests, hashed
from ckptdoctor.sealing.manifest import (
    SUFFIX,
    Region,
    Seal,
    SealedFile,
    SealedParity,
    again,
    decoded,
    entries_of,
    read_seal,
    seal_above,
    seal_beside,
    seals_above,
)
from ckptdoctor.sealing.parity.losses import ParityVerdict, verdict
from ckptdoctor.sealing.parity.table import SUFFIX as PARITY
from ckptdoctor.sealing.seal import files_in, linked_folders
from ckptdoctor.shell import quote
from ckptdoctor.wording import did_you_mean

Span = tuple[int, int]

_REQUEST = 8 << 20  # bytes of a seal that are read at once over a network


@noun
class ChangedTensor:
    """A tensor whose bytes are not those that were sealed, and where in the file: blocks of them, as far as known."""

    name: str
    ranges: tuple[Span, ...]


@noun
class FileVerdict:
    """One sealed file as it is now. ``size`` is None where there is no such file.

    ``ranges`` are changed bytes of a file in which no tensors are told apart; ``outside`` says that bytes of none of
    the regions changed: headers, names, or what is between tensors. ``parity`` is what became of its parity, None where
    none was made, or it was not asked for.
    """

    name: str
    sealed_size: int
    size: int | None
    tensors: int
    changed: tuple[ChangedTensor, ...] = ()
    ranges: tuple[Span, ...] = ()
    outside: bool = False
    parity: ParityVerdict | None = None

    @property
    def as_sealed(self) -> bool:
        """Whether nothing changed, as far as it was read."""
        return self.size == self.sealed_size and not (self.changed or self.ranges or self.outside)


@noun
class VerifyReport:
    """What became of a sealed path. ``asked`` are the tensors that were named; () where everything was read.

    ``added`` are files in a folder that was sealed without them. ``bytes_read`` counts the bytes of sealed files.
    ``linked`` are links to folders elsewhere, of which the seal has no file: nothing is known of what is in them.
    """

    path: str
    seal: str
    files: tuple[FileVerdict, ...]
    added: tuple[str, ...]
    asked: tuple[str, ...]
    bytes_read: int
    seconds: float
    linked: tuple[str, ...] = ()

    @property
    def as_sealed(self) -> bool:
        """Whether everything that was read is as it was sealed, and nothing is missing or new."""
        kept = [each.parity for each in self.files if each.parity is not None]
        return not self.added and all(each.as_sealed for each in self.files) and not any(each.damaged for each in kept)


def verify(path: str, seal: str | None = None, *, tensors: Sequence[str] = ()) -> VerifyReport:
    """Compare the file or folder at ``path`` with its seal.

    None is the one that ``seal`` writes by itself, or else what the seal of a folder above has of it.

    With ``tensors`` only their blocks are read, of a file on another machine too. Raises UnreadableError where there
    is no seal or a file cannot be read, DamagedError where the seal is not intact, and UsageError for a tensor that it
    does not know.
    """
    started = perf_counter()
    where = seal or (path + SUFFIX if is_address(path) else seal_beside(path))
    try:
        if seal is None and not is_address(path) and os.path.exists(path) and not os.path.lexists(where):
            where, found = _above(path)
        else:
            found = _seal(where, path)
    except DamagedError as error:
        if not is_address(path) and os.path.isfile(path + PARITY):
            raise DamagedError(
                f"{error.message} {path}{PARITY} has all that is needed to compare blocks of the file, and to rebuild "
                f"them: ckptdoctor rebuild {quote(path)}"
            ) from error
        raise
    if found.folder and is_address(path):
        raise UsageError(f"{where} is the seal of a folder. Name the folder on this machine, or one file and its seal.")
    if found.folder != os.path.isdir(path) and not is_address(path):
        kind = "a folder" if found.folder else "a file"
        raise UsageError(f"{where} is the seal of {kind}, and {path} is {'a file' if found.folder else 'a folder'}.")
    _require_known(tensors, found, where)
    added: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    if tensors:
        verdicts, read = _named(path, found, frozenset(tensors))
    else:
        verdicts, read = _everything(path, where, found)
        known = {each.name for each in found.files}
        known |= {each.name + PARITY for each in found.files if each.parity is not None}
        if found.folder:
            added = tuple([each for each in files_in(path, where) if each not in known])
            links = linked_folders(path)
            linked = tuple([each for each in links if not any(name.startswith(f"{each}/") for name in known)])
    return VerifyReport(path, where, verdicts, added, tuple(tensors), read, perf_counter() - started, linked)


def require_consistent(source: FileSource, where: str) -> None:
    """Raise DamagedError where the digests in a seal of a local file contradict each other."""
    for place, seal, file in entries_of(os.path.normpath(source.path)):
        if place == where:
            _verdict(file, source, where, seal.block, Work())


def changed_tensors(path: str) -> frozenset[str]:
    """Return the tensors of a local file that are not as they were sealed, by the first seal of it that there is.

    Raises what ``verify`` raises.
    """
    found = compared_with_seal(path)
    return frozenset() if found is None else frozenset([each.name for each in found[1].changed])


def compared_with_seal(path: str) -> tuple[SealedFile, FileVerdict] | None:
    """Return what the first seal of a local file says of it, and what became of that; None where it has no seal.

    Raises what ``verify`` raises.
    """
    for where, seal, file in entries_of(path):
        with closing(FileSource(path)) as source:
            return file, _verdict(file, source, where, seal.block, current())
    return None


def _above(path: str) -> tuple[str, Seal]:
    """Return what the seal of a folder above has of a path without its own. Raises UnreadableError where none has."""
    found = seal_above(path)
    if found is not None:
        return found
    for where in seals_above(path):  # to seal it by itself would make the seal of the folder wrong
        folder = os.path.dirname(where) or os.curdir
        raise UnreadableError(
            f"{path} has no seal, and {where} was made without it. Once you know that everything in {folder} is "
            f"intact, seal that again: ckptdoctor seal {quote(folder)} --force"
        )
    return "", _seal(seal_beside(path), path)


def _seal(where: str, path: str) -> Seal:
    if is_address(where):
        with closing(open_remote(where)) as source:
            pieces = [source.read(at, min(_REQUEST, source.size - at)) for at in range(0, source.size, _REQUEST)]
            return decoded(b"".join(pieces), where)
    if not os.path.lexists(where):
        if not is_address(path) and not os.path.lexists(path):
            raise missing(path)
        if is_address(path):
            raise UnreadableError(f"There is no {where}. Download the seal that was published with {path}.")
        elsewhere = "" if where == seal_beside(path) else f" -o {quote(where)}"
        raise UnreadableError(
            f"{path} has no seal: there is no {where}. Make one: ckptdoctor seal {quote(path)}{elsewhere}"
        )
    return read_seal(where)


def _require_known(tensors: Sequence[str], seal: Seal, where: str) -> None:
    known = {tensor.name: None for file in seal.files for region in file.regions for tensor in region.tensors}
    for each in tensors:
        if each not in known:
            raise UsageError(f'{where} has no tensor "{each}".{did_you_mean(each, known)}')


def _opened(path: str, name: str, folder: bool) -> Source | None:
    """Return the file, or None where there is none."""
    if is_address(path):
        return open_remote(path)
    file = os.path.join(path, *name.split("/")) if folder else path
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # opening it says why
        pass
    return FileSource(file)


def _fill(source: Source, offset: int, view: memoryview) -> None:
    if isinstance(source, FileSource):
        source.fill(offset, view)
    else:
        view[:] = source.read(offset, len(view))


# ---- everything


def _everything(path: str, where: str, seal: Seal) -> tuple[tuple[FileVerdict, ...], int]:
    verdicts, read = [], 0
    with phase("hashing", sum(each.size for each in seal.files)) as work:
        for file in seal.files:
            source = _opened(path, file.name, seal.folder)
            if source is None:
                verdicts.append(FileVerdict(file.name, file.size, None, file.tensors))
                continue
            with closing(source):
                found = _verdict(file, source, where, seal.block, work)
                if isinstance(source, FileSource) and file.parity is not None:
                    found = replace(found, parity=_parity(file, file.parity, source, found.as_sealed))
                verdicts.append(found)
                read += source.bytes_read
    return tuple(verdicts), read


def _verdict(file: SealedFile, source: Source, where: str, block: int, work: Work) -> FileVerdict:
    spans = [(each.offset, each.length) for each in file.regions]
    now = hashed(lambda at, view: _fill(source, at, view), source.size, spans, block, work)
    found = _compared(file, source.size, now, block)
    if (now.whole == file.digest) != found.as_sealed:
        raise DamagedError(
            f"{where} contradicts itself: its digests of {file.name} as a whole and of its parts cannot both be true."
            f" The seal is damaged. {again(where)}"
        )
    return found


def _parity(file: SealedFile, kept: SealedParity, source: FileSource, as_sealed: bool) -> ParityVerdict:
    with phase("comparing blocks", 0 if as_sealed else file.size) as work:
        return verdict(source.path, None if as_sealed else source, kept.percent, kept.table, work)


def _compared(file: SealedFile, size: int, now: Digests, block: int) -> FileVerdict:
    changed: dict[str, list[Span]] = {}
    ranges: list[Span] = []
    for region, blocks in zip(file.regions, now.spans, strict=True):
        unlike = _unlike(region, blocks, block)
        if not region.tensors:
            ranges += unlike
        for name, span in _shown(region, unlike):
            changed.setdefault(name, []).append(span)
    tensors = tuple([ChangedTensor(name, tuple(_merged(spans))) for name, spans in changed.items()])
    outside = now.rest != file.rest
    return FileVerdict(file.name, file.size, size, file.tensors, tensors, tuple(_merged(ranges)), outside)


def _unlike(region: Region, blocks: Sequence[str], block: int) -> list[Span]:
    """Return the blocks of a region that are not as they were sealed, by their bytes in the file."""
    end = region.offset + region.length
    return [
        (region.offset + at * block, min(region.offset + (at + 1) * block, end))
        for at, was in enumerate(region.blocks)
        if at >= len(blocks) or blocks[at] != was
    ]


def _shown(region: Region, unlike: Sequence[Span]) -> Iterator[tuple[str, Span]]:
    """Yield what each tensor shows of blocks that changed."""
    for start, stop in unlike:
        for tensor in region.tensors:
            first, last = max(start, region.offset + tensor.start), min(stop, region.offset + tensor.stop)
            if first < last:
                yield tensor.name, (first, last)


def _merged(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the same bytes as few ranges."""
    begun: Span | None = None
    for start, stop in sorted(spans):
        if begun is not None and start <= begun[1]:
            begun = begun[0], max(begun[1], stop)
            continue
        if begun is not None:
            yield begun
        begun = start, stop
    if begun is not None:
        yield begun


# ---- some tensors


def _named(path: str, seal: Seal, names: frozenset[str]) -> tuple[tuple[FileVerdict, ...], int]:
    """Only the blocks of these tensors are read, and only files that have some of them are judged."""
    verdicts, read = [], 0
    for file in seal.files:
        regions = [each for each in file.regions if any(tensor.name in names for tensor in each.tensors)]
        if not regions:
            continue
        count = len({tensor.name for each in regions for tensor in each.tensors if tensor.name in names})
        source = _opened(path, file.name, seal.folder)
        if source is None:
            verdicts.append(FileVerdict(file.name, file.size, None, count))
            continue
        with closing(source):
            before = source.bytes_read
            changed: dict[str, list[Span]] = {}
            with phase("hashing", sum(each.length for each in regions)) as work:
                for region in regions:
                    for name, span in _shown(region, list(_unlike_of(region, source, names, seal.block, work))):
                        if name in names:
                            changed.setdefault(name, []).append(span)
            tensors = tuple([ChangedTensor(name, tuple(_merged(spans))) for name, spans in changed.items()])
            verdicts.append(FileVerdict(file.name, file.size, source.size, count, tensors))
            read += source.bytes_read - before
    return tuple(verdicts), read


def _unlike_of(region: Region, source: Source, names: frozenset[str], block: int, work: Work) -> Iterator[Span]:
    shown = [tensor for tensor in region.tensors if tensor.name in names]
    for at, was in enumerate(region.blocks):
        start, stop = at * block, min((at + 1) * block, region.length)
        if not any(tensor.start < stop and start < tensor.stop for tensor in shown):
            continue
        first, last = region.offset + start, region.offset + stop
        if last > source.size:
            yield first, last
            continue
        view = memoryview(bytearray(last - first))
        _fill(source, first, view)
        if sha256(view).hexdigest() != was:
            yield first, last
        work.advance(last - first)
