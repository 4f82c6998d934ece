"""``seal`` hashes a file or a folder, and keeps what it was in a small file next to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from time import perf_counter

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Extent, FileSource, Tensor, show_path
from ckptdoctor.checkpoint.progress import Work, phase
from ckptdoctor.checkpoint.tensor import byte_span
from ckptdoctor.errors import CkptDoctorError, NotACheckpointError, RefusedError, UnreadableError, UsageError
from ckptdoctor.inplace.names import interrupted, is_journal, told
from ckptdoctor.noun import noun
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.sealing import manifest, openssf
from ckptdoctor.sealing.hashing import hashed
from ckptdoctor.sealing.manifest import BLOCK, Region, Seal, SealedFile, SealedParity, SealedTensor, encoded
from ckptdoctor.sealing.parity.code import require_installed
from ckptdoctor.sealing.parity.layout import Layout, laid_out
from ckptdoctor.sealing.parity.make import write_parity
from ckptdoctor.sealing.parity.table import KIND, is_parity
from ckptdoctor.sealing.parity.table import SUFFIX as PARITY
from ckptdoctor.wording import system_says
from ckptdoctor.writing.fresh import require, write_fresh
from ckptdoctor.writing.interrupts import cleaned_up

# the offset of a region, its length, and the tensors that it shows
Place = tuple[int, int, tuple[SealedTensor, ...]]
# a parity file, its bytes, and how it is laid out
KeptParity = tuple[str, int, Layout]

# what is no part of a model: the state of tools that brought it here, and what prune took out (``pruning.trash``)
LEFT_OUT = frozenset({".git", ".cache", ".ckptdoctor-trash"})
_KINDS = {"ckptdoctor": b'{"format":"ckptdoctor seal"', "openssf": b'{"_type":"https://in-toto.io/Statement/v1"'}


@noun
class SealReport:
    """What was sealed, and where the seal is: ``path`` as it was named, ``output`` the file that was written.

    ``parity`` has, for each file of which parity was made, the parity file, its bytes, and how it is laid out.
    ``unnamed`` are files in which no tensor could be told apart, by their names, with the reason: their blocks are
    sealed, and a change in them is told by its bytes. ``linked`` are folders that are left out, because the folder has
    only links to them.
    """

    path: str
    output: str
    seal: Seal
    nbytes: int
    seconds: float
    unnamed: tuple[tuple[str, str], ...] = ()
    parity: tuple[KeptParity, ...] = ()
    linked: tuple[str, ...] = ()


def seal(
    path: str,
    output: str | None = None,
    *,
    form: str = "ckptdoctor",
    force: bool = False,
    parity: float | None = None,
) -> SealReport:
    """Seal the file or folder at ``path``, each byte of which is read once.

    The seal is written to ``output`` (None: ``NAME.seal.json`` next to a file, ``ckptdoctor.seal.json`` in a folder).
    ``form`` "openssf" writes the manifest that OpenSSF model signing signs instead (None: ``NAME.openssf.json`` next to
    it). ``parity`` is how many percent of each file are written next to it, as ``NAME.parity``, from which ``rebuild``
    makes lost blocks again: that takes a second read. Raises UnreadableError where a file cannot be read or changes
    meanwhile, UsageError for an address, MissingPackageError where parity needs a package that is not installed, and
    WriteError where the seal cannot be written, or is there and ``force`` is not given.
    """
    started = perf_counter()
    if is_address(path):
        raise UsageError(f"{path} is an address: only local files and folders are sealed. Download it first.")
    if form not in _KINDS:
        raise UsageError(f'"{form}" is not a format of seals. Use {" or ".join(_KINDS)}.')
    if parity is not None and form != "ckptdoctor":
        raise UsageError("--parity goes with a seal of ckptdoctor, which keeps its hash: leave --format openssf out.")
    written = output or (manifest.seal_beside(path) if form == "ckptdoctor" else openssf.beside(path))
    what = "seal" if form == "ckptdoctor" else "manifest"
    folder = os.path.isdir(path)
    names = files_in(path, written) if folder else [""]
    owner = interrupted(path)
    if owner is not None:
        raise RefusedError(told(path, owner))
    if folder and not names:
        raise UnreadableError(f"{path} has no files to seal.")
    require(written, _KINDS[form], force=force, what=what)
    if parity is not None:
        require_installed()
        for name in names:
            output = _in(path, name) + PARITY
            require(output, KIND if not is_parity(output) else b"", force=force, what="parity file")
    found, unnamed = _by_file(path, names)
    sizes = [_size(_in(path, name)) for name in names]
    with cleaned_up(), ExitStack() as undo:
        with phase("hashing", sum(sizes)) as work:
            sealing = [_sealed(path, name, found.get(name, []), work, parity, force, undo) for name in names]
        files, kept = tuple([each for each, _ in sealing]), [each for _, each in sealing if each is not None]
        made = Seal(folder, files)
        data = encoded(made) if form == "ckptdoctor" else openssf.statement(path, made)
        write_fresh(data, written, _KINDS[form], force=force, what=what)
        undo.pop_all()
    nbytes, linked = sum(each.size for each in files), linked_folders(path) if folder else ()
    return SealReport(path, written, made, nbytes, perf_counter() - started, unnamed, tuple(kept), linked)


def files_in(folder: str, but: str = "") -> list[str]:
    """Return the files below a folder by their names in it, with slashes, sorted.

    All but seals and their parity files, journals of changes in place, ``but``, .git, .cache and the trash of prune.

    Links to files are files; links to folders are not followed (``linked_folders``). Raises UnreadableError where it
    cannot be listed.
    """
    found = []
    for below, folders, names in os.walk(folder, onerror=unlisted):
        folders[:] = sorted(each for each in folders if each not in LEFT_OUT)
        for name in names:
            path = os.path.join(below, name)
            own = name == manifest.IN_FOLDER or is_journal(name) or (name.endswith(PARITY) and is_parity(path))
            own = own or (name.endswith(manifest.SUFFIX) and _is_seal(path))
            if not own and not _is_same(path, but):
                found.append(os.path.relpath(path, folder).replace(os.sep, "/"))
    return sorted(found)


def _is_seal(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_KINDS["ckptdoctor"])) == _KINDS["ckptdoctor"]
    except OSError:  # sealing it says why
        return False


def linked_folders(folder: str) -> tuple[str, ...]:
    """Return the links to folders elsewhere, by their names in the folder: what is in those is not in ``files_in``."""
    root, found = os.path.join(os.path.realpath(folder), ""), []
    for below, folders, _ in os.walk(folder, onerror=unlisted):
        folders[:] = sorted(each for each in folders if each not in LEFT_OUT)
        for path in [os.path.join(below, each) for each in folders]:
            if os.path.islink(path) and not os.path.join(os.path.realpath(path), "").startswith(root):
                found.append(os.path.relpath(path, folder).replace(os.sep, "/"))
    return tuple(sorted(found))


def _is_same(path: str, other: str) -> bool:
    return bool(other) and os.path.realpath(path) == os.path.realpath(other)


def unlisted(error: OSError) -> None:
    """Raise UnreadableError for a folder that a walk could not list."""
    raise UnreadableError(f"{error.filename} cannot be listed: {system_says(error)}") from error


def _in(path: str, name: str) -> str:
    return os.path.join(path, *name.split("/")) if name else path


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise UnreadableError(f"{path} cannot be opened: {system_says(error)}") from error


def _by_file(path: str, names: list[str]) -> tuple[dict[str, list[Place]], tuple[tuple[str, str], ...]]:
    """Return where the tensors of each file are, by its name; and the files without any, each with the reason."""
    by_path: dict[str, list[Place]] = {}
    reasons: dict[str, str] = {}
    if names != [""]:
        by_path |= _read(path, reasons, "")
    found: dict[str, list[Place]] = {}
    for name in names:
        real = os.path.realpath(_in(path, name))
        if real not in by_path:
            by_path |= _read(_in(path, name), reasons, name)
        if by_path.get(real):
            found[name] = by_path[real]
            reasons.pop(name, None)
    return found, tuple((name, reasons[name]) for name in names if name in reasons)


def _read(path: str, reasons: dict[str, str], name: str) -> dict[str, list[Place]]:
    """Return the regions by real path. What is not a checkpoint has none, and one that is damaged gives its reason."""
    try:
        return _regions_of(formats.open_checkpoint(path, headers=True))
    except UnreadableError:
        raise
    except NotACheckpointError:
        return {}
    except CkptDoctorError as error:
        reasons[name] = error.message
        return {}


def _sealed(
    path: str, name: str, found: list[Place], work: Work, percent: float | None, force: bool, undo: ExitStack
) -> tuple[SealedFile, KeptParity | None]:
    parity, made = None, None
    with closing(FileSource(_in(path, name))) as source:
        spans = [(offset, length) for offset, length, _ in found] if found else [(0, source.size)]
        digests = hashed(source.fill, source.size, spans, BLOCK, work)
        if percent is not None and source.size:  # one without bytes needs none
            layout, output = laid_out(source.size, percent), _in(path, name) + PARITY
            with phase("computing parity", source.size) as computing:
                table = write_parity(source, layout, digests.whole, percent, output, computing, force=force, undo=undo)
            parity, made = SealedParity(percent, sha256(table).hexdigest()), (output, _size(output), layout)
        now = os.stat(source.file)
        assert source.identity is not None
        if (now.st_size, now.st_mtime_ns) != (source.identity.size, source.identity.mtime_ns):
            raise UnreadableError(f"{source.path} changed while it was read. Seal it when nothing writes it any more.")
    tensors = [shown for _, _, shown in found] if found else [()]
    regions = [
        Region(offset, length, blocks, shown)
        for (offset, length), blocks, shown in zip(spans, digests.spans, tensors, strict=True)
    ]
    kept = name or os.path.basename(os.path.abspath(path))
    return SealedFile(kept, source.size, digests.whole, digests.rest, tuple(regions), parity), made


# ---- where the tensors of a checkpoint are in its files: the regions that are hashed by themselves


def _regions_of(checkpoint: Checkpoint) -> dict[str, list[Place]]:
    """Return the regions of each file by its real path, sorted and apart: extents that overlap are one."""
    found: dict[str, dict[tuple[int, int], list[SealedTensor]]] = {}
    for tensor in checkpoint.tensors:
        name = show_path(tensor.path)
        for piece, extent in _pieces(tensor):
            inside = found.setdefault(os.path.realpath(extent.file), {})
            shown = inside.setdefault((extent.offset, extent.length), [])
            shown.append(_seen(name, piece, extent.length))
    return {file: _apart(inside) for file, inside in found.items()}


def _pieces(tensor: Tensor) -> Iterator[tuple[Tensor, Extent]]:
    """Yield the tensors that hold the elements of one, each with the place of its storage."""
    if tensor.storage is not None and tensor.storage.extent is not None:
        yield tensor, tensor.storage.extent
    for part in tensor.parts:
        yield from _pieces(part)
    for _, chunk in tensor.chunks:
        yield from _pieces(chunk)


def _seen(name: str, tensor: Tensor, length: int) -> SealedTensor:
    if tensor.storage is None or tensor.storage.compressed:  # bytes of a deflated record are nobody's alone
        return SealedTensor(name, 0, length)
    start, stop = byte_span(tensor)
    return SealedTensor(name, min(start, length), min(stop, length))


def _apart(inside: dict[tuple[int, int], list[SealedTensor]]) -> list[Place]:
    regions: list[Place] = []
    for (offset, length), tensors in sorted(inside.items(), key=lambda item: (item[0][0], -item[0][1])):
        if regions and offset < regions[-1][0] + regions[-1][1]:
            start, had, shown = regions.pop()
            by = offset - start
            moved = [SealedTensor(each.name, each.start + by, each.stop + by) for each in tensors]
            regions.append((start, max(had, offset + length - start), (*shown, *moved)))
        else:
            regions.append((offset, length, tuple(tensors)))
    return [(offset, length, tuple(dict.fromkeys(tensors))) for offset, length, tensors in regions]
