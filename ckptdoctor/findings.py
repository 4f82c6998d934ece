"""Describes what an examination says, and what is reported of what was written: repairs, conversions, salvages."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath
from ckptdoctor.checkpoint.expectation import Coverage as Coverage
from ckptdoctor.checkpoint.expectation import CoverageStep as CoverageStep
from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.noun import field, noun

if TYPE_CHECKING:  # most files need no repair
    from ckptdoctor.edits import Fix
    from ckptdoctor.edits.fix import Step
    from ckptdoctor.edits.grafts import HealedTensor


class Severity(str, Enum):
    """How bad a finding is. Compare with ``rank``: higher is worse."""

    INFO = "info"  # worth knowing; nothing is wrong
    WARNING = "warning"  # loads in some set-ups only, or is silently wrong in some
    ERROR = "error"  # cannot load, or gives a wrong result

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return ("info", "warning", "error").index(self.value)


@noun
class Location:
    """Where a finding shows: a key path, a record of an archive, a byte range; whichever are known."""

    path: KeyPath | None = None
    member: str | None = None
    offset: int | None = None
    length: int | None = None


@noun
class Finding:
    """One cause, however many keys it touches.

    ``message`` is one sentence without a full stop ("all 320 keys of state_dict begin with \"module.\""). ``cause``
    says in a sentence or two why that is so, and why it matters. ``torch_says`` are the lines of the error that the
    user meets, exactly as torch or safetensors words it (empty: it loads silently). ``advice`` says what to do where
    there is no ``fix``, or in addition to it, and ``commands`` are complete lines from which to choose one; FILE stands
    for the file in both.
    """

    code: str
    name: str
    severity: Severity
    message: str
    cause: str = ""
    torch_says: tuple[str, ...] = ()
    advice: str = ""
    keys: tuple[KeyPath, ...] = ()
    location: Location = field(default_factory=Location)
    fix: Fix | None = None
    commands: tuple[str, ...] = ()


@noun
class Skipped:
    """What was not examined, and why. Nothing that was skipped is ever called healthy."""

    what: str
    why: str


@noun
class FileReport:
    """All that is said of one file. ``error`` is set when it could not be examined at all (exit status 2).

    ``bytes_read`` counts the bytes of the file that the examination looked at; ``readings`` are the parts of a deep
    one. ``interrupted``: Ctrl-C came before the end, so that what was not found may still be there.
    """

    path: str
    container: Container | None
    checkpoint: Checkpoint | None
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    coverage: Coverage | None = None
    seconds: float = 0.0
    error: str | None = None
    bytes_read: int = 0
    interrupted: bool = False
    readings: tuple[Progress, ...] = ()


@noun
class Leftover:
    """An unfinished file or folder of a write that was killed: no process works on it any more."""

    path: str
    nbytes: int


@noun
class Report:
    """The reports over all files that were asked for, in the order they were asked for.

    ``not_begun`` are the files that an interrupt came before; ``broken_off``: it is not known which these are.
    ``leftovers`` are what killed writes left in the folders.
    """

    files: tuple[FileReport, ...]
    not_begun: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    broken_off: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether something was left undone."""
        return self.broken_off or bool(self.not_begun) or any(file.interrupted for file in self.files)


class Loader(str, Enum):
    """What opens a file."""

    TORCH = "torch"  # torch.load as it stands
    TORCH_ON_CPU = "torch-on-cpu"  # the same, told to leave out the devices that the file names
    SAFETENSORS = "safetensors"
    FIX = "fix"  # nothing yet: a repair that is known to work makes it load
    TRUSTED = "trusted"  # torch.load with weights_only=False, which runs what the file names
    OURS = "ckptdoctor"  # ckptdoctor.load, which runs nothing
    CONVERT = "convert"  # not torch.load, nor safetensors: a conversion makes a file that they load
    OTHER = "other"  # it is not one of the files that are repaired
    NONE = "none"


_WAITING = frozenset({Loader.FIX, Loader.CONVERT, Loader.TRUSTED, Loader.OURS, Loader.NONE})


@noun
class NextStep:
    """What to do with a file as it is.

    ``refusal`` says why ``torch.load(weights_only=True)`` refuses it, ``options`` are those of the repair, or what
    the conversion writes.
    """

    loader: Loader
    refusal: str = ""
    options: tuple[str, ...] = ()


@noun
class Proof:
    """What was proven of a written file. ``findings`` is what every rule that reads headers still finds in it.

    Of its ``storages`` so many are byte-identical to the original's, hold exactly what was viewed of one (``shrunk``),
    hold exactly the elements of one view (``remade``), were compressed before (``inflated``), or hold what a second
    computation gives as well (``computed``). ``elided`` counts places beyond the reader's limits, which were not
    compared.
    """

    storages: int
    identical: int
    shrunk: int = 0
    remade: int = 0
    inflated: int = 0
    elided: int = 0
    findings: tuple[Finding, ...] = ()
    computed: int = 0
    next: NextStep | None = None


@noun
class InPlace:
    """How a file, or all files of a folder together, were changed where they are.

    ``means`` is "clone" where the file system shares blocks and the file got its new contents in one step, or else
    "journal". ``written`` bytes went into the file, ``journal`` bytes into what undoes it. Of the storages ``left``
    were neither written nor read, ``moved`` were written elsewhere and compared there. ``inserted`` bytes came in
    front of the file.
    """

    means: str
    written: int
    journal: int
    inserted: int
    left: int
    moved: int


@noun
class Twins:
    """Tensors of the file ``one`` that are in ``other`` under other names: ``number`` of the ``of`` that only it has.

    ``names`` are some of them, as pairs.
    """

    one: str
    other: str
    number: int
    of: int
    names: tuple[tuple[str, str], ...] = ()


@noun
class ConvertReport:
    """All that is said of one conversion.

    Each of the ``tensors`` is ``identical``, ``remade`` or ``computed``.
    """

    sources: tuple[str, ...]  # as they were named
    output: str
    source_format: str
    format: str
    files: tuple[tuple[str, int], ...]  # name, in a folder below ``output``, and bytes of each that was written
    tensors: int
    nbytes: int
    identical: int  # tensors that are ranges of the sources
    remade: int  # tensors with the same elements in a new layout: in C order, put together out of pieces, unpacked
    tied: tuple[tuple[str, str], ...] = ()  # (alias, owner): the bytes are kept under the owner's name alone
    restored: tuple[tuple[str, str], ...] = ()  # (alias, owner): tied again, as the metadata of the source says
    doubled: int = 0  # tensors that shared memory and have bytes of their own now
    sidecar: str | None = None  # the file of what are not tensors
    kept: tuple[str, ...] = ()  # what is in the sidecar
    described: tuple[str, ...] = ()  # objects in it that are not plain data
    left_out: tuple[str, ...] = ()  # what was not asked for
    absent: tuple[str, ...] = ()  # what belongs to the sources and was in none of them
    root: KeyPath = ()  # the part of the sources that was asked for
    weights: KeyPath | None = None  # where the state dict is in the output
    replaces_original: bool = False
    seconds: float = 0.0
    called: str | None = None  # the name that a tensor got that had none
    twins: tuple[Twins, ...] = ()  # weights that several sources have under different names, and the output twice
    computed: int = 0  # tensors that a repair computes, and a second computation as well
    next: NextStep | None = None  # what to do with a file that torch wrote and that kept all it holds


@noun
class RepairReport:
    """All that is said of one repair: planned, or carried out when there is a ``proof``.

    ``size`` and ``new_bytes`` are the output's bytes, and how many of them are not the original's. ``left`` are the
    findings for which nothing was done. ``weights`` is where the model's state dict is in the output. ``next`` says
    what to do with the output, or where there is nothing to repair with the original. ``converts`` is the container
    that the output is to be, where it is not the original's, and ``conversion`` what became of that.
    ``in_place`` says how the original itself was changed.
    """

    path: str
    output: str
    format: str
    steps: tuple[Step, ...]
    size: int = 0
    new_bytes: int = 0
    left: tuple[Finding, ...] = ()
    weights: KeyPath | None = None
    replaces_original: bool = False
    proof: Proof | None = None
    seconds: float = 0.0
    next: NextStep | None = None
    converts: str | None = None
    conversion: ConvertReport | None = None
    in_place: InPlace | None = None

    @property
    def blocked(self) -> bool:
        """Whether something is left that keeps the file from being loaded, or makes it load wrong."""
        found = self.proof.findings if self.proof is not None else self.left
        waits = self.next is not None and self.next.loader in _WAITING
        return waits or any(each.severity is Severity.ERROR for each in found)


@noun
class LostTensor:
    """A tensor that was not saved: ``share`` of its bytes (0 to 1) is there and may be right.

    ``damage`` says what is wrong with bytes that are there ("" where they are missing).

    With all of them it was whole, but is of no use without what it belongs to: one moment of an optimizer's state.
    """

    path: KeyPath
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    share: float
    damage: str = ""


@noun
class SalvageReport:
    """What was saved of a broken checkpoint.

    ``recovered`` counts the tensors in the output, ``verified`` those of them that a checksum vouches for. ``left_out``
    are the places in lists where None stands for what was lost. ``lost_files`` says of each file of a folder of which
    nothing is saved why that is so; which tensors it held is known only where an index says it. ``healed`` are tensors
    in the output of which one bit is another than in the original. ``notes`` say what else is not as it was. ``next``
    says what to do with a file that was written.
    """

    path: str
    output: str
    format: str
    recovered: int
    recovered_bytes: int
    verified: int
    lost: tuple[LostTensor, ...]
    left_out: tuple[KeyPath, ...] = ()
    lost_files: tuple[str, ...] = ()
    healed: tuple[HealedTensor, ...] = ()
    notes: tuple[str, ...] = ()
    next: NextStep | None = None

    @property
    def partial(self) -> tuple[LostTensor, ...]:
        """Those of which something is there, but not all."""
        return tuple([each for each in self.lost if 0 < each.share < 1])
