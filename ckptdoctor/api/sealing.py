"""What proves bytes later, from Python: ``seal``, ``verify`` and ``rebuild``, as the commands do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, overload

from ckptdoctor.against.request import Request
from ckptdoctor.api.arguments import Listener, Path, Words, from_python, in_a_screen, optional, several, told, told_as
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun
from ckptdoctor.sealing.parity.folders import FolderRebuildReport
from ckptdoctor.sealing.parity.rebuild import RebuildReport
from ckptdoctor.sealing.seal import SealReport
from ckptdoctor.sealing.verify import VerifyReport

if TYPE_CHECKING:  # it brings NumPy
    from ckptdoctor.against.report import AgainstReport


@noun
class Sealed(SealReport):
    """What ``seal`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import seal

        return seal.sealed(self)

    __repr__ = in_a_screen


@from_python
def seal(
    path: Path,
    output: Path | None = None,
    *,
    format: Literal["ckptdoctor", "openssf"] = "ckptdoctor",
    parity: str | None = None,
    force: bool = False,
    progress: Listener | None = None,
) -> SealReport:
    """Write the hashes of a file or folder next to it (None: ``PATH.seal.json``, or in a folder).

    ``format`` "openssf" writes the manifest that OpenSSF model signing signs instead. ``parity`` ("1%") also writes
    ``PATH.parity`` next to each file, from which ``rebuild`` makes lost blocks again.
    Raises UsageError, UnreadableError, MissingPackageError or WriteError.

    >>> import ckptdoctor, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = ckptdoctor.seal("sample_ckpts/healthy/state_dict.pt", f"{folder}/it.seal.json")
    ...     ckptdoctor.verify("sample_ckpts/healthy/state_dict.pt", seal=made.output).as_sealed
    True
    """
    from ckptdoctor.sealing.parity.layout import percent_of
    from ckptdoctor.sealing.seal import seal

    share = None if parity is None else percent_of(parity)
    with told(progress):
        return told_as(Sealed, seal(os.fsdecode(path), optional(output), form=format, force=force, parity=share))


@noun
class Rebuilt(RebuildReport):
    """What ``rebuild`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import parity

        return parity.rebuilt(self)

    __repr__ = in_a_screen


@noun
class RebuiltFolder(FolderRebuildReport):
    """What ``rebuild`` gives of a folder: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import parity_folder

        return parity_folder.rebuilt(self)

    __repr__ = in_a_screen


@from_python
def rebuild(
    path: Path,
    output: Path | None = None,
    *,
    parity: Path | None = None,
    diff: bool = False,
    force: bool = False,
    progress: Listener | None = None,
) -> RebuildReport | FolderRebuildReport:
    """Make lost blocks of a file again from its parity (None: ``PATH.parity``), into a new file.

    ``output`` None is next to it (``name.rebuilt.ext``); it has the SHA-256 that was sealed before it gets its name.
    ``RebuildReport.losses`` says what is lost; ``changes`` is False where that is nothing. ``diff`` writes nothing.
    Of a folder all damaged files are rebuilt, into a new one (None: ``FOLDER.rebuilt``), or with ``force`` in the
    folder itself: ``FolderRebuildReport.files`` says what became of each, ``left`` which stay damaged.
    Raises UsageError, UnreadableError, DamagedError for a parity file that is not intact, RefusedError where more is
    lost than it can rebuild, MissingPackageError or WriteError; then nothing has changed.

    >>> import ckptdoctor, shutil, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = shutil.copy("sample_ckpts/healthy/state_dict.pt", folder)
    ...     sealed = ckptdoctor.seal(path, parity="20%")
    ...     with open(path, "r+b") as file:
    ...         wiped = file.write(bytes(1000))
    ...     rebuilt = ckptdoctor.rebuild(path)
    ...     len(rebuilt.losses.lost), rebuilt.digest == sealed.seal.files[0].digest
    (1, True)
    """
    from ckptdoctor.sealing.parity.folders import rebuild_any

    with told(progress):
        made = rebuild_any(os.fsdecode(path), optional(parity), optional(output), force=force, dry=diff)
    if isinstance(made, FolderRebuildReport):
        return told_as(RebuiltFolder, made)
    return told_as(Rebuilt, made)


@noun
class Verified(VerifyReport):
    """What ``verify`` gives: its ``repr`` is what the command prints, cut to a screen."""

    def __str__(self) -> str:
        from ckptdoctor.rendering import seal

        return seal.verified(self)

    __repr__ = in_a_screen


@overload
def verify(
    path: Path, seal: Path | None = None, *, tensor: Words = (), progress: Listener | None = None
) -> VerifyReport: ...
@overload
def verify(
    path: Path,
    seal: None = None,
    *,
    against: Path,
    dropped: Words = (),
    added: Words = (),
    root: str | None = None,
    source_root: str | None = None,
    progress: Listener | None = None,
) -> AgainstReport: ...
@from_python
def verify(
    path: Path,
    seal: Path | None = None,
    *,
    tensor: Words = (),
    against: Path | None = None,
    dropped: Words = (),
    added: Words = (),
    root: str | None = None,
    source_root: str | None = None,
    progress: Listener | None = None,
) -> VerifyReport | AgainstReport:
    """Compare a file or folder with its seal (None: the one next to it): ``as_sealed``, and what changed per file.

    With ``tensor``, one key or several, only their bytes are read; ``path`` may be an address then.
    With ``against``, ``path`` is an export of that checkpoint, and every tensor of both is accounted for:
    ``accounted``, and the fate of each. ``dropped`` and ``added`` are patterns of what is on one side on purpose.
    Raises UsageError, UnreadableError, RefusedError, or DamagedError for a seal or file that is not intact.

    >>> import ckptdoctor, shutil, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = shutil.copy("sample_ckpts/healthy/state_dict.pt", folder)
    ...     sealed = ckptdoctor.seal(path)
    ...     ckptdoctor.verify(path, tensor="fc.bias").files[0].as_sealed
    True
    """
    if against is not None:
        from ckptdoctor.against.against import against as compare
        from ckptdoctor.api.accounting import Accounted

        if seal is not None or tensor:
            raise UsageError("--against compares with a source, --seal and --tensor with a seal: choose one.")
        request = Request(os.fsdecode(path), os.fsdecode(against), several(dropped), several(added), root, source_root)
        with told(progress):
            return told_as(Accounted, compare(request))
    from ckptdoctor.sealing.verify import verify

    with told(progress):
        return told_as(Verified, verify(os.fsdecode(path), optional(seal), tensors=several(tensor)))
