"""Rebuilds lost blocks of a file from its parity into a new file, which is proven by its SHA-256."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from time import perf_counter

from ckptdoctor.checkpoint import FileIdentity, FileSource
from ckptdoctor.checkpoint.missing import missing
from ckptdoctor.checkpoint.progress import current, phase
from ckptdoctor.errors import RefusedError, UnreadableError, UsageError, WriteError
from ckptdoctor.inplace.names import interrupted, told
from ckptdoctor.noun import noun, replace
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.sealing.manifest import entries_of, seal_beside
from ckptdoctor.sealing.parity import table
from ckptdoctor.sealing.parity.code import SLICE, rebuilt, require_installed
from ckptdoctor.sealing.parity.losses import Losses, losses
from ckptdoctor.sealing.parity.table import ParityFile, read_parity
from ckptdoctor.shell import quote
from ckptdoctor.wording import plural
from ckptdoctor.writing import Copy, Part, Recipe, Segment, publish
from ckptdoctor.writing.system import put
from ckptdoctor.writing.target import Target, resolve
from ckptdoctor.writing.unfinished import temporary_file

_CHUNK = 4 << 20  # bytes that are hashed at once


@noun
class RebuildReport:
    """What was lost of a file, and what became of it.

    ``output`` is None where nothing is lost; ``written`` once it is there. ``digest`` is the SHA-256 that it has, and
    ``by`` who says so: a seal, or the parity file alone, where there is no intact seal. ``size`` is that of the file as
    it is, ``sealed_size`` as it was.
    """

    path: str
    parity: str
    output: str | None
    losses: Losses
    size: int
    sealed_size: int
    digest: str
    by: str
    written: bool = False
    seconds: float = 0.0

    @property
    def changes(self) -> bool:
        """Whether there is anything to rebuild, or to cut off."""
        return bool(self.losses.lost) or self.size != self.sealed_size


def rebuild(
    path: str, parity: str | None = None, output: str | None = None, *, force: bool = False, dry: bool = False
) -> RebuildReport:
    """Write the file at ``path`` again with its lost blocks rebuilt from ``parity`` (None: ``path.parity``).

    The output (None: ``name.rebuilt.ext`` next to it) has the SHA-256 that was sealed before it gets its name, and the
    original is never touched. ``dry`` writes nothing. Raises UsageError, UnreadableError, DamagedError for parity that
    is not intact, RefusedError where more is lost than can be rebuilt or nothing shows what the file was,
    MissingPackageError and WriteError.
    """
    started = perf_counter()
    _require_file(path)
    with ExitStack() as stack:
        seen = examine(path, parity)
        report = seen.report
        if not report.changes:
            return replace(report, seconds=perf_counter() - started)
        stem, suffix = os.path.splitext(path)
        wanted = output or f"{stem}.rebuilt{suffix}"
        wanted = os.path.join(wanted, os.path.basename(path)) if os.path.isdir(wanted) else wanted
        report = replace(report, output=wanted)
        _require_other(path, kept=seen.kept.path, output=wanted)
        if dry:
            return replace(report, seconds=perf_counter() - started)
        part = part_of(stack, seen, wanted, resolve(wanted, os.stat(path), force=force))
        publish(part.recipe, wanted, force=force, verify=part.verify, identity=seen.identity)
    return replace(report, written=True, seconds=perf_counter() - started)


def _require_other(path: str, kept: str, output: str) -> None:
    """Raise WriteError for an output that is what the file is rebuilt from, or proven by."""
    for own in (kept, seal_beside(path)):
        if os.path.realpath(output) == os.path.realpath(own):
            what = "the parity" if own == kept else "the seal"
            raise WriteError(f"{output} is {what} of {path}, which is never replaced by it. Give another output path.")


@noun
class Seen:
    """A file that was compared with its parity, before anything is written; and what it was then."""

    report: RebuildReport
    kept: ParityFile
    identity: FileIdentity | None


def examine(path: str, parity: str | None = None) -> Seen:
    """Compare a file with its parity, and prove by its SHA-256 what needs no rebuilding.

    Raises UnreadableError, DamagedError for parity that is not intact, and RefusedError as ``rebuild`` does.
    """
    kept = _parity(path, parity)
    by = _proof(path, kept)
    with closing(FileSource(path)) as source:
        with phase("comparing blocks", kept.table.layout.size) as work:
            found = losses(source, kept, work)
        report = RebuildReport(path, kept.path, None, found, source.size, found.layout.size, kept.table.digest, by)
        if report.changes:
            _require_enough(path, kept, found)
        else:
            _require_digest(path, kept)
        return Seen(report, kept, source.identity)


def part_of(stack: ExitStack, seen: Seen, output: str, beside: Target) -> Part:
    """Rebuild what is lost, in a file next to a target that lasts as long as the stack; return what is to be written.

    Raises MissingPackageError, and WriteError where there is no room.
    """
    require_installed()
    path, kept, found = seen.report.path, seen.kept, seen.report.losses
    with closing(FileSource(path)) as source:
        try:
            scratch, fd = stack.enter_context(temporary_file(beside))
            stack.callback(os.close, fd)
            _decode(source, kept, found, fd)
        except OSError as error:
            raise WriteError(
                f"{output} could not be written: {error.strerror or error}. Nothing has changed."
            ) from error
        recipe = Recipe(source.file, tuple(_segments(found, scratch)))
    return Part(recipe, output, lambda made: _require_digest(made, kept))


def _require_file(path: str) -> None:
    if is_address(path):
        raise UsageError(f"{path} is an address: only local files are rebuilt. Download it first.")
    if not os.path.lexists(path):
        raise missing(path)
    owner = interrupted(path)
    if owner is not None:
        raise RefusedError(told(path, owner))


def _parity(path: str, parity: str | None) -> ParityFile:
    where = parity or path + table.SUFFIX
    if not os.path.lexists(where):
        raise UnreadableError(
            f"{path} has no parity: there is no {where}. It can be made of an intact file only: ckptdoctor seal "
            f"{quote(path)} --parity 1%"
        )
    return read_parity(where)


def _proof(path: str, kept: ParityFile) -> str:
    """Return who says what the file was. Raises RefusedError where a seal says something else than its parity."""
    for where, _, file in entries_of(path):
        if file.digest == kept.table.digest:
            return where
        raise RefusedError(
            f"{kept.path} and {where} disagree about what {path} was: one of them was made of another file. "
            f"Move the wrong one away first."
        )
    return kept.path


def _require_enough(path: str, kept: ParityFile, found: Losses) -> None:
    lost, can = len(found.lost), found.can_be_rebuilt
    if lost == can:
        return
    layout = found.layout
    also = f", of which {plural(len(found.parity), 'block is', 'blocks are')} lost as well," if found.parity else ""
    none = "none" if not can else f"{can:,}"
    graft = f"Take the damaged tensors from another copy: ckptdoctor graft {quote(path)} --from OTHER"
    all_of_it = (
        f"Nothing of it is intact, so it takes another copy of the whole file. Whether that is what was sealed, this "
        f"shows: ckptdoctor rebuild {quote(path)} --diff"
    )
    blocks = f"{lost:,} of {plural(layout.blocks, 'block')} {'is' if lost == 1 else 'are'}"
    raise RefusedError(
        f"{path}: {blocks} lost, and {kept.path}{also} can rebuild {none} of them: "
        f"at most {layout.parity} in each of {plural(layout.groups, 'group')}, {layout.parities:,} altogether. "
        f"{graft if lost < layout.blocks else all_of_it}"
    )


def size_and_digest(path: str) -> tuple[int, str]:
    """Return how many bytes a file has, and their SHA-256; the phase of work that goes on counts them."""
    digest = sha256()
    with closing(FileSource(path)) as source:
        for at in range(0, source.size, _CHUNK):
            chunk = source.read(at, min(_CHUNK, source.size - at))
            digest.update(chunk)
            current().advance(len(chunk))
        return source.size, digest.hexdigest()


def _require_digest(path: str, kept: ParityFile) -> None:
    if size_and_digest(path) != (kept.table.layout.size, kept.table.digest):
        raise RefusedError(
            f"Each block matches its checksum in {kept.path}, and all of them together do not have the SHA-256 that is "
            "stated there. The parity file is damaged, so nothing is proven, and nothing was written."
        )


def _decode(source: FileSource, kept: ParityFile, found: Losses, fd: int) -> None:
    """Write the lost blocks one behind another into a file."""
    layout = found.layout
    place = {block: number for number, block in enumerate(found.lost)}
    damaged = frozenset(found.parity)
    with closing(FileSource(kept.path)) as parity, phase("rebuilding", len(found.lost) * layout.block) as work:
        for group, lost in found.by_group.items():
            shares = list(_shares(kept, lost, damaged, group))
            step = min(SLICE, layout.block)  # both are powers of two
            for at in range(0, layout.block, step):
                view = {share: _slice(each, source, parity, at, step) for share, each in shares}
                made = rebuilt(layout, view)
                for block in lost:
                    piece = memoryview(made[block // layout.groups])
                    put(fd, piece, place[block] * layout.block + at)
                    work.advance(step)


# where a share is: None for zeros behind the last block, else whether it is parity, its first byte, and how many it has
_Place = tuple[bool, int, int]


def _shares(
    kept: ParityFile, lost: Collection[int], damaged: Collection[int], group: int
) -> Iterator[tuple[int, _Place]]:
    """Yield as many intact blocks of a group as it takes: those of the file first."""
    layout = kept.table.layout
    left = layout.data
    for share in range(layout.data):
        block = share * layout.groups + group
        if block in lost:
            continue
        left -= 1
        yield share, (False, block * layout.block, layout.length(block) if block < layout.blocks else 0)
    for number in range(layout.parity):
        block = number * layout.groups + group
        if left and block not in damaged:
            left -= 1
            yield layout.data + number, (True, kept.place(block), layout.block)


def _slice(place: _Place, source: FileSource, parity: FileSource, at: int, length: int) -> memoryview:
    is_parity, offset, whole = place
    buffer = memoryview(bytearray(length))
    (parity if is_parity else source).fill(offset + at, buffer[: max(0, min(length, whole - at))])
    return buffer


def _segments(found: Losses, scratch: str) -> Iterator[Segment]:
    layout, at, number = found.layout, 0, 0
    for start, stop in found.spans:
        if at < start:
            yield Copy(at, start - at)
        yield Copy(number * layout.block, stop - start, scratch)
        number += -(-(stop - start) // layout.block)
        at = stop
    if at < layout.size:
        yield Copy(at, layout.size - at)
