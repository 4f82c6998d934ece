"""Rebuilds the damaged files of a folder from the parity next to each of them: each completely or not at all.

The seal of the folder says which files there were. Parity files are enough without it, and a sealed file without parity
is compared with its SHA-256: a folder in which one has changed is never called rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from enum import Enum
from time import perf_counter

from ckptdoctor.checkpoint import FolderSource
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.errors import DamagedError, RefusedError, UnreadableError, UsageError, WriteError
from ckptdoctor.inplace.names import interrupted, told
from ckptdoctor.noun import noun, replace
from ckptdoctor.sealing.manifest import SealedFile, read_seal, seal_beside
from ckptdoctor.sealing.parity.rebuild import RebuildReport, Seen, examine, part_of, rebuild, size_and_digest
from ckptdoctor.sealing.parity.table import SUFFIX, is_parity
from ckptdoctor.sealing.seal import LEFT_OUT, unlisted
from ckptdoctor.shell import quote
from ckptdoctor.wording import first_few, listed, system_says
from ckptdoctor.writing import Copy, Part, Recipe, publish_together
from ckptdoctor.writing.folder import publish_folder
from ckptdoctor.writing.target import Target, require_folder

_NAMED = 5  # files that a refusal names


class FileState(str, Enum):
    """What becomes of a file of a folder."""

    INTACT = "intact"  # it is as it was sealed
    REBUILT = "rebuilt"  # what was lost of it is made again, all of it
    STAYS = "stays"  # it is damaged or missing, and stays so


@noun
class RebuiltFile:
    """A file of the folder by its name there. ``rebuild`` is what was lost of it; ``why`` is why one stays damaged."""

    name: str
    state: FileState
    why: str = ""
    rebuild: RebuildReport | None = None


@noun
class FolderRebuildReport:
    """What was lost of the files of a folder, and what became of them. ``output`` is None where nothing is lost.

    ``folders`` are folders in it that are not copied. ``replaces_original``: only damaged files of the folder itself
    are replaced.
    """

    path: str
    output: str | None
    files: tuple[RebuiltFile, ...]
    folders: tuple[str, ...] = ()
    replaces_original: bool = False
    written: bool = False
    seconds: float = 0.0

    @property
    def changed(self) -> tuple[RebuiltFile, ...]:
        """The files that become what they were."""
        return tuple([each for each in self.files if each.state is FileState.REBUILT])

    @property
    def left(self) -> tuple[RebuiltFile, ...]:
        """The files that stay damaged, or missing."""
        return tuple([each for each in self.files if each.state is FileState.STAYS])


def rebuild_any(
    path: str, parity: str | None = None, output: str | None = None, *, force: bool = False, dry: bool = False
) -> RebuildReport | FolderRebuildReport:
    """Rebuild a file, or all damaged files of a folder. Raises UsageError, and what either raises."""
    if not os.path.isdir(path):
        return rebuild(path, parity, output, force=force, dry=dry)
    if parity is not None:
        raise UsageError(f"{path} is a folder. --parity is about one file: name it.")
    return rebuild_folder(path, output, force=force, dry=dry)


def rebuild_folder(
    path: str, output: str | None = None, *, force: bool = False, dry: bool = False
) -> FolderRebuildReport:
    """Write the folder again with its damaged files rebuilt, each of which has its SHA-256 before it gets its name.

    The output (None: ``FOLDER.rebuilt``) is a new folder with all files of the damaged one; with ``force`` it may be
    the damaged one itself, of which only the damaged files are replaced. ``dry`` writes nothing. Raises UnreadableError
    where there is no parity or a folder below cannot be listed, RefusedError where something is lost and nothing can be
    rebuilt, MissingPackageError and WriteError.
    """
    started = perf_counter()
    owner = interrupted(path)
    if owner is not None:
        raise RefusedError(told(path, owner))
    sealed = {each.name: each for each in _sealed(path)}
    kept = [os.path.relpath(each, path).replace(os.sep, "/") for each in parity_in(path)]
    names = sorted({*sealed, *[each.removesuffix(SUFFIX) for each in kept]})
    if not any(os.path.lexists(_in(path, name) + SUFFIX) for name in names):
        raise UnreadableError(
            f"{path} has no parity files. They can be made of intact files only: ckptdoctor seal {quote(path)} "
            "--parity 1%"
        )
    seen: dict[str, Seen] = {}
    files = [_examined(path, name, sealed.get(name), seen) for name in names]
    report = _report(path, output, tuple(files), force, dry)
    if report.output is None or dry:
        return replace(report, seconds=perf_counter() - started)
    with ExitStack() as stack:
        parts = list(_parts(stack, report, seen))
        if report.replaces_original:
            publish_together(parts, force=True)
        else:
            publish_folder(parts, report.output, force=force, identity=None)
    return replace(report, written=True, seconds=perf_counter() - started)


def _in(path: str, name: str) -> str:
    return os.path.join(path, *name.split("/"))


def _sealed(path: str) -> tuple[SealedFile, ...]:
    with suppress(DamagedError, UnreadableError):  # parity is enough; verify says what is wrong with the seal
        found = read_seal(seal_beside(path))
        return found.files if found.folder else ()
    return ()


def parity_in(path: str) -> Iterator[str]:
    """Yield the parity files of a file or folder that are there. Raises UnreadableError where it cannot be listed."""
    if not os.path.isdir(path):
        if is_parity(path + SUFFIX):
            yield path + SUFFIX
        return
    for below, folders, names in os.walk(path, onerror=unlisted):
        folders[:] = [each for each in folders if each not in LEFT_OUT]
        for name in names:
            if name.endswith(SUFFIX) and is_parity(os.path.join(below, name)):
                yield os.path.join(below, name)


def _examined(path: str, name: str, sealed: SealedFile | None, seen: dict[str, Seen]) -> RebuiltFile:
    """Return what becomes of a file, and keep what was seen of one that is rebuilt."""
    file = _in(path, name)
    try:
        os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return RebuiltFile(name, FileState.STAYS, "it is missing")
    except OSError as error:
        return RebuiltFile(name, FileState.STAYS, f"it cannot be opened: {system_says(error)}")
    try:
        if os.path.lexists(file + SUFFIX):
            found = examine(file)
            if not found.report.changes:
                return RebuiltFile(name, FileState.INTACT)
            seen[name] = found
            return RebuiltFile(name, FileState.REBUILT, rebuild=found.report)
        why = "it is not as it was sealed, and has no parity"
    except (DamagedError, RefusedError, UnreadableError) as error:
        why = error.message.split("\n")[0]
    if sealed is not None and _is_as_sealed(file, sealed):
        return RebuiltFile(name, FileState.INTACT)
    return RebuiltFile(name, FileState.STAYS, why)


def _is_as_sealed(file: str, sealed: SealedFile) -> bool:
    with suppress(UnreadableError), phase("hashing", sealed.size):
        return size_and_digest(file) == (sealed.size, sealed.digest)
    return False


def _report(
    path: str, output: str | None, files: tuple[RebuiltFile, ...], force: bool, dry: bool
) -> FolderRebuildReport:
    """Return what will be done. Raises RefusedError where all that is lost stays so, and WriteError.

    Where damaged files are in folders below, ``dry`` shows what is lost, and that they are replaced where they are.
    """
    report = FolderRebuildReport(path, None, files)
    if not report.changed:
        if report.left:
            stays = [f"  {each.name}: {each.why}" for each in report.left]
            raise RefusedError("\n".join([f"{path}: nothing can be rebuilt:", *first_few(stays, _NAMED)]))
        return report
    wanted = output or f"{stem_of(path)}.rebuilt"
    own = os.path.realpath(wanted) == os.path.realpath(path)
    again = f"ckptdoctor rebuild {quote(path)} -o {quote(path)} --force"
    if own and not force:
        raise WriteError(f"{wanted} is the original itself; give another folder, or replace its files: {again}")
    deep = [each.name for each in report.changed if "/" in each.name]
    if deep and not own and dry and output is None:
        return replace(report, output=path, replaces_original=True)
    if deep and not own:
        raise RefusedError(
            f"{path}: {listed(deep, _NAMED, 'file')} can be rebuilt, and folders in it are not copied. Replace the "
            f"damaged files where they are: {again}"
        )
    with closing(FolderSource(path)) as folder:
        below = () if own else tuple([name for name in folder.names if name.endswith("/")])
    return replace(report, output=wanted, folders=below, replaces_original=own)


def _parts(stack: ExitStack, report: FolderRebuildReport, seen: Mapping[str, Seen]) -> Iterator[Part]:
    """Yield the files of the output: those that are rebuilt, and in a new folder all others as they are."""
    assert report.output is not None
    if report.replaces_original:
        names = sorted(seen)
    else:
        require_folder(report.output)
        with closing(FolderSource(report.path)) as folder:
            names = sorted(name for name in folder.names if not name.endswith("/"))
    for name in names:
        output, file = _in(report.output, name), _in(report.path, name)
        if name in seen:
            beside = os.path.realpath(file if report.replaces_original else report.output)
            yield part_of(stack, seen[name], output, Target(beside, os.path.dirname(beside), replaces=False))
        else:
            yield Part(Recipe(file, (Copy(0, os.path.getsize(file)),)), output, None)
