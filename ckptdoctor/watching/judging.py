"""Says what is found of one complete checkpoint: its levels, its step, and how far its weights moved since another."""

from __future__ import annotations

from math import isfinite

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.progress import Work, phase
from ckptdoctor.differences import Difference, Numbers, SoFar
from ckptdoctor.diffing.diff import diff
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.errors import CkptDoctorError, UsageError
from ckptdoctor.findings import Finding
from ckptdoctor.noun import noun
from ckptdoctor.runs.validity import Deep, Examined, Level, read_deeply, resumable
from ckptdoctor.watching.files import Files, files_of
from ckptdoctor.wording import listed


@noun
class Base:
    """A checkpoint that the next one is compared with: its name, parts, and the files that it had."""

    found: Examined
    files: Files

    @property
    def name(self) -> str:
        """How it is called below its run."""
        return self.found.candidate.name


@noun
class Watched:
    """A checkpoint of a run that is complete, or never will be. It can be used as its path (``os.fspath``).

    ``step`` and ``epoch`` are as its contents say, or else its name (``step_from``). ``nbytes`` is the size of all its
    files, ``saved`` the time of the last of them. ``trouble`` says why it is not valid, "" where it is; ``levels`` are
    those that it reaches, and ``findings`` what keeps it from V1 and V2, with the keys of every tensor that is NaN.
    ``unproven`` says why V1 could not be proven, ``unresumable`` why V3 is not reached.

    ``since`` is the name of the checkpoint before it, ``seconds_since`` the time between both, and ``moved`` the
    distance of all weights from that one, relative to its norm: ``|new - old| / |old|``. Where that is not known,
    ``unmeasured`` says why.
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
    moved, unmeasured = None, ""
    if not found.trouble:
        deep = deep if headers_only else read_deeply(found)
        unresumable = resumable(found).trouble
        levels = (Level.HEADERS, *deep.levels, *(() if unresumable else (Level.RESUMABLE,)))
        if before is not None and not headers_only:
            moved, unmeasured = _moved(before, found)
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
    )


def _moved(before: Base, found: Examined) -> tuple[float | None, str]:
    """Return the relative distance of all weights, or why it is not known."""
    now = files_of(before.found.candidate)
    if now != before.files:
        return None, "it is gone" if now is None else "it was overwritten"
    one, other = before.found.parts.paths, found.parts.paths
    if len(one) != len(other):
        return None, "it has other parts"
    try:
        total = sum([_apart(*both) for both in zip(one, other, strict=True)], Numbers())
    except CkptDoctorError as error:
        return None, error.message.rstrip(".")
    if files_of(before.found.candidate) != before.files:
        return None, "it was removed meanwhile"
    if not total.elements:
        return None, "they have no weights in common"
    if total.nan_a or total.nan_b or not isfinite(total.largest):
        return None, "it has NaN or infinity" if total.nan_a else "NaN or infinity is new here"
    return (total.relative, "") if isfinite(total.relative) else (None, "its weights are all zero")


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
