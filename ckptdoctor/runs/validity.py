"""Says which levels of validity a checkpoint reaches, and why it does not reach the next one.

What makes a checkpoint invalid is listed here as data: findings of rules by their codes, and files that each library
writes. The rules are those of ``check``; nothing is judged twice.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, Role
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.diagnose.settings import Reader, Settings
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.file import check
from ckptdoctor.facts.optimizers import LIGHTNING, MOMENTS, as_number
from ckptdoctor.findings import FileReport, Finding, Severity
from ckptdoctor.noun import noun, replace
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.runs import kinds
from ckptdoctor.runs.grouping import Candidate
from ckptdoctor.runs.kinds import Kind, Parts
from ckptdoctor.runs.listing import below, read_json
from ckptdoctor.runs.step import Position, of_contents, of_name, of_state
from ckptdoctor.sealing.manifest import seal_above, seal_beside, seals_above
from ckptdoctor.shell import quote
from ckptdoctor.wording import listed


class Level(str, Enum):
    """What was proven of a checkpoint. V3 is read from headers, as V0 is, and needs neither V1 nor V2."""

    HEADERS = "V0"
    """Headers are intact, and every member is there with all its bytes."""

    BYTES = "V1"
    """Every byte fits a checksum: the CRCs of a zip, a seal, a published hash."""

    VALUES = "V2"
    """Values are sane: no NaN, no infinity, no weights that are all zero."""

    RESUMABLE = "V3"
    """Training can resume: optimizer, scheduler, random state, every rank."""

    @property
    def meaning(self) -> str:
        """A word for it."""
        return {"V0": "headers", "V1": "bytes", "V2": "values", "V3": "resumable"}[self.value]


@noun
class Fault:
    """A rule whose findings, from a severity on, mean that a checkpoint does not reach a level, and why they do."""

    code: str
    level: Level
    why: str
    least: Severity = Severity.ERROR


_V0, _V1, _V2 = Level.HEADERS, Level.BYTES, Level.VALUES
# Findings that are not here leave a checkpoint valid: names, devices, dtypes and pickled classes are as the training
# that resumes wrote them, and expects them
FAULTS = (
    Fault("F001", _V0, "a pointer of Git LFS has none of the bytes"),
    Fault("F002", _V0, "it is a web page"),
    Fault("F003", _V0, "it is the text of an error"),
    Fault("F004", _V0, "it is empty"),
    Fault("F005", _V0, "the end of the zip is missing"),
    Fault("F006", _V0, "the end of the file is missing"),
    Fault("F007", _V0, "the end of the file is missing"),
    Fault("F008", _V0, "loaders refuse bytes behind the end"),
    Fault("F010", _V0, "zeros are where values or headers were"),
    Fault("F011", _V0, "bytes of a storage are missing"),
    Fault("F013", _V0, "a downloader is still filling it", Severity.WARNING),
    Fault("F014", _V0, "its contents cannot be read"),
    Fault("F015", _V0, "a tensor is outside of its storage"),
    Fault("F017", _V0, "values are replaced while it is loaded"),
    Fault("F018", _V0, "a change in place was not completed"),
    Fault("C110", _V0, "safetensors refuses the header"),
    Fault("C111", _V0, "safetensors refuses the offsets"),
    Fault("C112", _V0, "safetensors refuses the header"),
    Fault("D606", _V0, "tensors on the meta device were saved without values"),
    Fault("W310", _V0, "there are no weights"),
    Fault("X801", _V0, "a file is missing or damaged"),
    Fault("X803", _V0, "the index is of another save"),
    Fault("X804", _V0, "the index names a tensor that is not there"),
    Fault("X805", _V0, "loaders leave out tensors that the index does not name", Severity.WARNING),
    Fault("X808", _V0, "the files of a rank are missing"),
    Fault("X812", _V0, "it is the part of one rank", Severity.WARNING),
    Fault("X815", _V0, "it is a piece of each tensor", Severity.WARNING),
    Fault("X816", _V0, "it is one shard of several", Severity.WARNING),
    Fault("F009", _V1, "bytes do not fit their checksum"),
    Fault("F012", _V1, "the file does not have its published or sealed hash"),
    Fault("V651", _V2, "weights are NaN or infinite"),
    Fault("V652", _V2, "a variance is not positive"),
    Fault("V653", _V2, "weights are all zero", Severity.WARNING),
    Fault("V655", _V2, "values are what is left of other bytes"),
    Fault("V659", _V2, "indices are outside of a sparse tensor"),
    Fault("O756", _V2, "the optimizer's state is NaN or infinite"),
)
# F010 is seen in headers where a whole file is zero, and in bytes where a part of it is
_LATER = {"F010": _V1}
_BY_CAUSE = ("X808",)  # whose message says what the folder is, and the cause what is wrong with it


# every rule that a file concerns runs, as in a check: to choose some would import them all
_HEADERS = Settings(unpack=False)
_DEEP = Settings(deep=True)


@noun(eq=False)
class Examined:
    """A candidate as its headers show it: its parts with a report on each, and ``trouble``, "" where it reaches V0."""

    candidate: Candidate
    parts: Parts
    reports: tuple[FileReport, ...]
    position: Position
    trouble: str = ""

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The contents of the parts that could be read."""
        return tuple([each.checkpoint for each in self.reports if each.checkpoint is not None])

    @property
    def reached(self) -> Position:
        """How far its training was: by its contents, and what these do not say by its name."""
        name = of_name(self.candidate.numbers)
        said = self.position
        if not said.known:
            return name
        step = said.step if said.step is not None else self.candidate.numbers.step
        epoch = said.epoch if said.epoch is not None else name.epoch
        return Position(step, epoch, said.total, said.source)


def examined(candidate: Candidate) -> Examined:
    """Return what the headers of a candidate show, and how far it says that its training was."""
    if candidate.unfinished:
        return Examined(candidate, Parts(Kind.FILE), (), Position(), candidate.unfinished)
    try:
        parts = kinds.parts_of(candidate)
    except CkptDoctorError as error:
        return Examined(candidate, Parts(Kind.FILE), (), Position(), error.message)
    if parts.unfinished:
        return Examined(candidate, parts, (), _position(candidate, parts, ()), parts.unfinished)
    reports = tuple([_checked(path, _HEADERS) for path in parts.paths])
    found = Examined(candidate, parts, reports, _position(candidate, parts, reports))
    return replace(found, trouble=_trouble(reports, _V0) or kinds.missing_ranks(parts, found.checkpoints))


def _checked(path: str, settings: Settings) -> FileReport:
    """Return the report of ``check``. A bug that one file brings out is its error, and the next has its turn."""
    try:
        report = check(path, settings)
    except CkptDoctorError:
        raise
    except Exception as error:  # it must not keep a training from the checkpoint before
        if wants_trace():
            raise
        return FileReport(path, None, None, error=one_line(error))
    if report.interrupted:  # what was not looked at is not intact
        raise KeyboardInterrupt
    return report


def _position(candidate: Candidate, parts: Parts, reports: Sequence[FileReport]) -> Position:
    if parts.kind is Kind.TRAINER:
        said = of_state(read_json(below(candidate.path, "trainer_state.json")), "trainer_state.json")
        if said.known:
            return said
    if parts.kind is Kind.ACCELERATE:  # the counter in random_states_0.pkl is that of gradient accumulation
        return Position()
    contents = (of_contents(each.checkpoint) for each in reports if each.checkpoint is not None)
    return next((each for each in contents if each.known), Position())


def _trouble(reports: Iterable[FileReport], *levels: Level) -> str:
    """Return the first reason for which files do not reach the levels, "" where there is none."""
    for report in reports:
        if report.error is not None:
            return report.error.rstrip(".")
        for finding in _faults([report], *levels):
            said = finding.cause if finding.code in _BY_CAUSE else finding.message
            return f"{said.rstrip('.')} ({finding.code} {finding.name})"
        if report.checkpoint is None:
            return "its contents cannot be read"
    return ""


def _faults(reports: Iterable[FileReport], *levels: Level) -> Iterator[Finding]:
    """Yield the findings that keep files from the levels, of each file in the order of FAULTS: weights come first."""
    for report in reports:
        for finding in sorted(report.findings, key=lambda each: _ORDER.get(each.code, len(_ORDER))):
            if finding.code in _ORDER and _keeps(finding, levels):
                yield finding


_ORDER = {fault.code: number for number, fault in enumerate(FAULTS)}


def _keeps(finding: Finding, levels: Sequence[Level]) -> bool:
    """Return whether a finding of one of these rules keeps a file from one of the levels."""
    fault = FAULTS[_ORDER[finding.code]]
    return (fault.level in levels and finding.severity.rank >= fault.least.rank) or _LATER.get(fault.code) in levels


# ---- V1 and V2: every byte


@noun
class Deep:
    """What reading every byte showed: ``trouble`` or "", and ``unproven``: why V1 is not reached all the same.

    ``reports`` are those of a deep check of each part, as far as it came to that.
    ``levels`` are those of V1 and V2 that it reaches, ``findings`` are what keeps it from the others.
    """

    trouble: str = ""
    unproven: str = ""
    reports: tuple[FileReport, ...] = ()
    levels: tuple[Level, ...] = ()
    findings: tuple[Finding, ...] = ()


def read_deeply(found: Examined, reader_of: Callable[[str], Reader | None] | None = None) -> Deep:
    """Read every byte of an examined candidate, for checksums and for values.

    ``reader_of`` gives who reads the part at a path, where that is not the examination itself.
    """
    path = found.candidate.path
    sealed = not is_address(path) and (os.path.lexists(seal_beside(path)) or any(seals_above(path)))
    if sealed:
        from ckptdoctor.sealing.verify import verify

        try:
            sealed = os.path.lexists(seal_beside(path)) or seal_above(path) is not None
            if sealed and not verify(path).as_sealed:
                return Deep(f"it is not as it was sealed: ckptdoctor verify {quote(path)}")
        except CkptDoctorError as error:
            return Deep(error.message.rstrip("."))
    wrong = kinds.unlike_their_hashes(found.candidate, found.parts)
    if wrong:
        return Deep(wrong)
    settings = [_DEEP if reader_of is None else replace(_DEEP, reader=reader_of(each)) for each in found.parts.paths]
    reports = tuple([_checked(each, those) for each, those in zip(found.parts.paths, settings, strict=True)])
    trouble = _trouble(reports, _V1, _V2)
    bare = {storage for each in found.checkpoints for storage in _without_checksum(each)}
    unproven = ""
    if bare and not sealed and found.parts.kind is not Kind.OURS:
        unproven = f"{listed(sorted(bare), 2)} {'has' if len(bare) == 1 else 'have'} no checksums"
    proven = [] if unproven or _trouble(reports, _V1) else [_V1]
    proven += [] if trouble else [_V2]
    faults = tuple(_faults(reports, _V1, _V2))
    return Deep(trouble, "" if trouble else unproven, reports, tuple(proven), faults)


def _without_checksum(checkpoint: Checkpoint) -> Iterator[str]:
    for each in checkpoint.storages:
        if each.crc32 is None and each.extent is not None:
            yield os.path.basename(each.extent.file)


# ---- V3: everything that training needs to go on


@noun
class Resumable:
    """``trouble`` says why training cannot resume, "" where it can; ``without`` is what it starts again with.

    ``optimizers`` are the reports on files next to it with the state of its optimizer, as many as were asked.
    """

    trouble: str = ""
    without: tuple[str, ...] = ()
    optimizers: tuple[FileReport, ...] = ()


def resumable(found: Examined, *, deep: bool = False) -> Resumable:
    """Return whether training can resume from it, by the files and values that its library reads.

    With ``deep`` every byte of the files next to it with the state of its optimizer is read, too.
    """
    lacks = kinds.missing_files(found.parts)
    if lacks:
        return Resumable(f"{listed(lacks)} {'is' if len(lacks) == 1 else 'are'} missing, so it cannot resume")
    if found.parts.kind is Kind.TRAINER and read_json(below(found.candidate.path, "trainer_state.json")) is None:
        return Resumable("trainer_state.json is damaged, so it cannot resume")
    beside: list[FileReport] = []
    for path in found.candidate.optimizers:
        beside.append(_checked(path, _DEEP if deep else _HEADERS))
        trouble = _trouble(beside[-1:], *((_V0, _V1, _V2) if deep else (_V0,)))
        if trouble:
            return Resumable(f"{os.path.basename(path)}: {trouble}", optimizers=tuple(beside))
    checkpoints = [*found.checkpoints, *[each.checkpoint for each in beside if each.checkpoint is not None]]
    trouble = _optimizer(checkpoints, found.parts, found.position)
    if trouble:
        return Resumable(trouble, optimizers=tuple(beside))
    without = () if found.parts.kind in kinds.COMPLETE else tuple(_without(checkpoints))
    return Resumable(without=without, optimizers=tuple(beside))


def _optimizer(checkpoints: Sequence[Checkpoint], parts: Parts, position: Position) -> str:
    """Return what is wrong with the state of the optimizers."""
    states = [each for checkpoint in checkpoints for each in _saved(checkpoint.tree)]
    roles = [each for checkpoint in checkpoints for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER]
    if not states and not roles and not parts.optimizer:
        return "it has no optimizer state"
    lightning = [each for each in checkpoints if _has(each, LIGHTNING)]
    if any(not _has(each, "lr_schedulers") or not _has(each, "loops") for each in lightning):
        return "it lacks the state of the loops and schedulers, as save_weights_only=True leaves them out"
    begun = position.step is None or position.step > 0
    if begun and states and not any(each.tensors for each in roles) and all(map(_forgotten, states)):
        return "the optimizer's state is empty"
    if begun and any(map(_all_zero, checkpoints)):
        return "the optimizer's moments are all zero"
    return ""


def _saved(node: Node, depth: int = 4) -> Iterator[dict[object, Node]]:
    """Yield what ``Optimizer.state_dict()`` gave, near the top of the contents."""
    if isinstance(node, Mapping):
        entries: dict[object, Node] = dict(node.entries) if len(node.entries) <= _NEAR else {}
        if "param_groups" in entries and "state" in entries:
            yield entries
            return
        below_it: Iterable[Node] = entries.values()
    elif isinstance(node, Items):
        below_it = node.items[:_NEAR]
    else:
        return
    for each in below_it if depth else ():
        yield from _saved(each, depth - 1)


_NEAR = 256


def _has(checkpoint: Checkpoint, key: str) -> bool:
    tree = checkpoint.tree
    return isinstance(tree, Mapping) and any(part == key for part, _ in tree.entries)


def _forgotten(optimizer: dict[object, Node]) -> bool:
    """Return whether there is no state although an optimizer with these options keeps some: SGD may have none."""
    state, groups = optimizer["state"], optimizer["param_groups"]
    if not isinstance(state, Mapping) or state.entries or not isinstance(groups, Items):
        return False
    for group in groups.items:
        options = dict(group.entries) if isinstance(group, Mapping) else {}
        if "betas" in options or "alpha" in options or "rho" in options or (as_number(options.get("momentum")) or 0):
            return True
    return False


_SMALL = 4 << 20  # bytes of a moment whose checksum is compared with that of zeros


def _all_zero(checkpoint: Checkpoint) -> bool:
    """Return whether the checksums of all smaller moments are those of zeros; where there are none, it is not known."""
    seen = False
    for each in checkpoint.state_dicts:
        if each.role is not Role.OPTIMIZER:
            continue
        for tensor in each.tensors:
            storage = tensor.storage
            if tensor.path[-1] not in MOMENTS or storage is None or storage.crc32 is None:
                continue
            if 0 < storage.nbytes <= _SMALL:
                if storage.crc32 != _crc_of_zeros(storage.nbytes):
                    return False
                seen = True
    return seen


@cache
def _crc_of_zeros(length: int) -> int:
    return zlib.crc32(bytes(length))


def _without(checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """Yield what a script may or may not have saved: nothing says whether its training has it."""
    roles = {each.role for checkpoint in checkpoints for each in checkpoint.state_dicts}
    names = {
        str(part).lower() for each in checkpoints if isinstance(each.tree, Mapping) for part, _ in each.tree.entries
    }
    if Role.SCHEDULER not in roles and not any("sched" in name for name in names):
        yield "a scheduler"
    if not any("rng" in name or "random" in name for name in names):
        yield "a random state"
