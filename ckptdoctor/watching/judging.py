"""Says what is found of one complete checkpoint: its levels, its step, and how far its weights moved since another."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from ckptdoctor import formats
from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.progress import Work, phase
from ckptdoctor.differences import Difference, Numbers, Side, SoFar
from ckptdoctor.diffing.diff import compare_headers, diff
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.errors import CkptDoctorError, UsageError
from ckptdoctor.findings import Finding
from ckptdoctor.noun import noun
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.runs.step import Position
from ckptdoctor.runs.validity import Deep, Examined, Level, read_deeply, resumable
from ckptdoctor.watching.files import Files, files_of
from ckptdoctor.wording import listed

if TYPE_CHECKING:
    from ckptdoctor.values.sampling import Sample


@noun
class Base:
    """A checkpoint that the next one is compared with, and the files that it had.

    ``samples`` of its parts take its place where it is gone, or was overwritten: in many runs only the last one stays.
    """

    found: Examined
    files: Files
    samples: tuple[Sample, ...] = ()

    @property
    def name(self) -> str:
        """How it is called below its run."""
        return self.found.candidate.name


@noun
class Watched:
    """A checkpoint of a run that is complete, or never will be. It can be used as its path (``os.fspath``).

    ``step`` and ``epoch`` are as its contents say, or else its name (``step_from``); with ``steps_of_epoch`` the step
    counts from the beginning of its epoch, as far as is known. ``nbytes`` is the size of all its
    files, ``saved`` the time of the last of them. ``trouble`` says why it is not valid, "" where it is; ``levels`` are
    those that it reaches, and ``findings`` what keeps it from V1 and V2, with the keys of every tensor that is NaN.
    ``unproven`` says why V1 could not be proven, ``unresumable`` why V3 is not reached.

    ``since`` is the name of the checkpoint before it, ``seconds_since`` the time between both, and ``moved`` the
    distance of all weights from that one, relative to its norm: ``|new - old| / |old|``. It is ``estimated`` by a part
    of them where that one is gone. Where it is not known, ``unmeasured`` says why.
    """

    run: str
    path: str
    name: str
    step: int | None
    epoch: float | None
    step_from: str
    nbytes: int
    saved: float
    levels: tuple[Level, ...] = ()
    trouble: str = ""
    findings: tuple[Finding, ...] = ()
    unproven: str = ""
    unresumable: str = ""
    since: str | None = None
    seconds_since: float | None = None
    moved: float | None = None
    unmeasured: str = ""
    estimated: bool = False
    steps_of_epoch: bool = False

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    @property
    def valid(self) -> bool:
        """Whether headers, bytes and values are good, as far as they were read and checksums can prove it."""
        return not self.trouble

    def fails(self, fail_on: str) -> str:
        """Return why it is not what is asked for, as the end of a sentence; "" where it is."""
        if self.trouble and fail_on != "never":
            return "is invalid"
        return "is not resumable" if self.unresumable and fail_on == "unresumable" else ""


FAIL_ON = ("invalid", "unresumable", "never")


def require_fail_on(word: str) -> None:
    """Raise UsageError for a word that is not one of FAIL_ON."""
    if word not in FAIL_ON:
        raise UsageError(f'--fail-on is one of {listed(FAIL_ON)}, not "{word}".')


def judged(run: str, found: Examined, files: Files, before: Base | None, *, headers_only: bool = False) -> Watched:
    """Read every byte of a checkpoint whose headers were examined, or none, and return what is found."""
    deep, unresumable = Deep(), ""
    levels: tuple[Level, ...] = ()
    moved, unmeasured, estimated = None, "", False
    if not found.trouble:
        deep = deep if headers_only else read_deeply(found)
        unresumable = resumable(found, deep=not headers_only).trouble
        levels = (Level.HEADERS, *deep.levels, *(() if unresumable else (Level.RESUMABLE,)))
        if before is not None and not headers_only:
            moved, unmeasured, estimated = _moved(before, found)
    said = found.reached
    timed = before is not None and bool(before.files.saved and files.saved)
    return Watched(
        *(run, found.candidate.path, found.candidate.name, said.step, said.epoch),
        step_from=said.source or "its name",
        nbytes=files.nbytes,
        saved=files.saved,
        levels=levels,
        trouble=found.trouble or deep.trouble,
        findings=deep.findings,
        unproven=deep.unproven,
        unresumable=unresumable,
        since=None if before is None else before.name,
        seconds_since=files.saved - before.files.saved if before is not None and timed else None,
        moved=moved,
        unmeasured=unmeasured,
        estimated=estimated,
        steps_of_epoch=in_epochs(said),
    )


def in_epochs(position: Position) -> bool:
    """Return whether epochs say how far training is, and a step at most how far it is in the next one."""
    return position.epoch is not None and not (position.total and position.step is not None)


def base_of(found: Examined, files: Files, *, headers_only: bool = False) -> Base:
    """Return a checkpoint for the next one to be compared with.

    Its samples are read, except with ``headers_only``, and from a store, where each block would be a request.
    """
    if headers_only or is_address(found.candidate.path):
        return Base(found, files)
    from ckptdoctor.values.sampling import sample

    samples = []
    try:
        for path in found.parts.paths:
            with formats.opened(path) as (source, container):
                samples.append(sample(formats.read(source, container), source))
        samples = samples if files_of(found.candidate) == files else []
    except CkptDoctorError:  # it is gone already
        samples = []
    return Base(found, files, tuple(samples))


def _moved(before: Base, found: Examined) -> tuple[float | None, str, bool]:
    """Return the relative distance of all weights, or why it is not known; and whether it is estimated."""
    one, other = before.found.parts.paths, found.parts.paths
    if len(one) != len(other):
        return None, "it has other parts", False
    total, estimated = None, False
    try:
        if files_of(before.found.candidate) == before.files:
            total = sum([_apart(*both) for both in zip(one, other, strict=True)], Numbers())
        if files_of(before.found.candidate) != before.files:  # removed meanwhile, or before
            total = None
            if len(before.samples) == len(other):
                total = sum([_apart_from(*both) for both in zip(before.samples, other, strict=True)], Numbers())
                estimated = not all(each.complete for each in before.samples)
    except CkptDoctorError as error:
        return None, error.message.rstrip("."), False
    moved, why = _relative(total)
    return moved, why, estimated and bool(moved)


def _relative(total: Numbers | None) -> tuple[float | None, str]:
    if total is None:
        return None, "it is gone"
    if not total.elements:
        return None, "they have no weights in common"
    if total.nan_a or total.nan_b or not isfinite(total.largest):
        return None, "it has NaN or infinity" if total.nan_a else "NaN or infinity is new here"
    return (total.relative, "") if isfinite(total.relative) else (None, "its weights are all zero")


def _apart_from(before: Sample, after: str) -> Numbers:
    from ckptdoctor.values.sampling import sampled_distance

    with formats.opened(after) as (source, container):
        sides = Side(before.checkpoint.path, before.checkpoint), Side(after, formats.read(source, container))
        return sampled_distance(before, compare_headers(*sides), source)


def _apart(before: str, after: str) -> Numbers:
    found: list[Numbers] = []

    def measure(headers: Difference, a: Source, b: Source, work: Work, sofar: SoFar | None = None) -> Difference:
        from ckptdoctor.values.distance import distance, measurable

        nbytes = sum([pair.a.nbytes + pair.b.nbytes for pair in measurable(headers.pairs)])
        with phase("distance", nbytes) as counted:
            found.append(distance(headers, a, b, counted))
        return headers

    diff(DiffRequest(before, after), measure)
    return found[0]
