"""Examines one file: recognise, read the headers, run the rules. Yields events as it goes; nothing is ever run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath, Note, NoteKind, Source, show_path
from ckptdoctor.checkpoint.expectation import CoverageStep
from ckptdoctor.checkpoint.progress import follow
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.diagnose.events import Event, Finished, Found, LeftOut, Measured, Opened, Recognised
from ckptdoctor.diagnose.findings import apply_rules, attainable, compared, concerned_by, possible, worst_first
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import SOURCES, Settings
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, UsageError
from ckptdoctor.examine.printable import keeping, printable, restoring, towards
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import Coverage, FileReport, Finding, Severity, Skipped
from ckptdoctor.noun import replace
from ckptdoctor.remote import addresses
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.rules.registry import deep as deep_rules
from ckptdoctor.target import Reference
from ckptdoctor.wording import plural

if TYPE_CHECKING:
    from ckptdoctor.checkpoint.progress import Progress, WorkDone
    from ckptdoctor.examine.deep import Passed
    from ckptdoctor.match.comparison import Comparison
    from ckptdoctor.values.damage import Integrity

_OF_KEYS = "NRSW"  # the families of rules whose repairs change keys
_DAMAGE = "F"  # the family of rules that explain why contents cannot be read


def check(path: str, settings: Settings | None = None, reference: Reference | None = None) -> FileReport:
    """Return the report on one file; see ``diagnose``."""
    return follow(diagnose(path, settings, reference), lambda event: None)


def diagnose(
    path: str, settings: Settings | None = None, reference: Reference | None = None, shown: str | None = None
) -> Generator[Event, None, FileReport]:
    """Examine the file at ``path``; the last event is ``Finished``, with the report, in which it is called ``shown``.

    ``target`` is what ``read_reference`` gives, where the caller has already read it. Damage is a finding; a
    file that cannot be examined at all gives a report with ``error`` set. Raises UsageError for a bad rule code,
    and whatever is wrong with the reference that ``settings`` names.
    """
    settings = settings or Settings()
    rules = chosen_rules(settings, reference)
    if reference is None:
        reference = read_reference(settings, path)
    return (yield from _Examination(path, settings, rules, reference).events(shown or addresses.shown(path)))


def chosen_rules(settings: Settings, reference: Reference | None = None) -> tuple[Rule, ...] | None:
    """Return the rules that were asked for. Raises UsageError for a bad code.

    None where none is named and there is no reference: those that the file concerns.
    """
    sources = any(getattr(settings, name) is not None for name in SOURCES)
    more = reference is not None or sources or settings.selection != Selection()
    return settings.selection.chosen(all_rules()) if more else None


class _Examination:
    """One file on its way through the rules, and what has been learnt so far."""

    def __init__(
        self, path: str, settings: Settings, rules: tuple[Rule, ...] | None, reference: Reference | None
    ) -> None:
        self.path = self.shown = path
        self.settings = settings
        self.rules = rules
        self.reference = reference
        self.container: Container | None = None
        self.checkpoint: Checkpoint | None = None
        self.coverage: Coverage | None = None
        self.rebuilt = False  # whether what is compared is only there once the repair of P204 or P202 has made it
        self.findings: list[Finding] = []
        self.skipped: list[Skipped] = []
        self._told: set[Skipped] = set()
        self.error: str | None = None
        self.interrupted = False
        self.readings: list[Progress] = []
        self.comparison: Comparison | None = None
        self.passed: Passed | None = None  # what was learnt on the way, of what is read before it is examined

    def events(self, shown: str) -> Generator[Event, None, FileReport]:
        """Yield everything that happens, ``Finished`` last."""
        self.shown = shown
        started = perf_counter()
        bytes_read = 0
        try:
            deep = self.settings.deep
            beside = self.reference is not None and self.reference.beside is not None  # whose bytes are compared
            headers = not self.settings.unpack and not (deep and beside)
            with formats.opened(self.path, headers=headers, passed=deep) as opened:
                source, container = opened
                if deep and headers:
                    source, container = yield from self._pass_by(source, container)
                try:
                    yield from self._examine(source, container)
                finally:
                    # values are read past the source; and some bytes are looked at twice
                    values = sum([each.done for each in self.readings if each.what == "values"])
                    bytes_read = min(source.bytes_read + values, container.size)
        except KeyboardInterrupt:
            self.interrupted = True
        except UsageError as error:  # the root that was asked for is not in this file
            self.error = f"{addresses.shown(self.path)}: {error.message}"
        except CkptDoctorError as error:
            self.error = error.message
        self._say_what_works()
        yield from self._skip(self._left_out())
        if self.interrupted and self.settings.deep and self.checkpoint is not None:
            from ckptdoctor.examine.deep import not_begun

            begun = {each.what for each in self.readings}
            rules = deep_rules() if self.rules is None else self.rules
            self.readings += [each for each in not_begun(self.checkpoint, rules) if each.what not in begun]
        report = FileReport(
            path=self.shown,
            container=self.container,
            checkpoint=self.checkpoint,
            findings=tuple(worst_first(self.findings)),
            skipped=tuple(self.skipped),
            coverage=self.coverage,
            seconds=perf_counter() - started,
            error=self.error,
            bytes_read=bytes_read,
            interrupted=self.interrupted,
            readings=tuple(self.readings),
        )
        yield Finished(report)
        return report

    def _say_what_works(self) -> None:
        """Leave out of the findings what would be refused because of the others."""
        self.findings = printable(self.findings, self.checkpoint)
        if self.error is None and not self.interrupted:
            self.findings = restoring(self.findings, self.path, deep=self.settings.deep)
        self._keep_weights()
        if self.reference is not None and self.coverage is not None and not self.interrupted and self.error is None:
            checkpoint = self.checkpoint
            root = self.settings.root
            place = find_root(checkpoint.tree, root) if checkpoint is not None and root is not None else None
            compared = self.comparison.state_dict if self.comparison is not None else None
            self.findings, self.coverage = towards(
                self.findings,
                self.coverage,
                self.path,
                self.reference,
                place,
                plain=compared is not None and not compared.others,
            )

    def _keep_weights(self) -> None:
        """Leave out of the findings what drops the only copy of a weight."""
        checkpoint, comparison = self.checkpoint, self.comparison
        if checkpoint is None:
            return
        whole = self.error is None and not self.interrupted
        wanted = self.settings.root if whole else None
        root = find_root(checkpoint.tree, wanted) if wanted is not None else None
        self.findings = keeping(self.findings, checkpoint, comparison if whole else None, self.path, root, self.shown)

    def _pass_by(self, source: Source, container: Container) -> Generator[Event, None, tuple[Source, Container]]:
        """Read what is unpacked as it is read, before anything is said of it: how it ends shows last."""
        if source.file:  # its bytes lie in a file, so that nothing is unpacked
            return source, container
        from ckptdoctor.examine.deep import passed_by
        from ckptdoctor.formats.packed.front import Front
        from ckptdoctor.formats.packed.thin import Thin

        if not isinstance(source, (Front, Thin)):
            return source, container
        rules = deep_rules() if self.rules is None else self.rules
        passed = yield from passed_by(formats.read(source, container), source, rules, self.settings.pictures)
        self.passed = passed.result
        self.interrupted |= passed.interrupted and not passed.complete
        if self.passed is None or self.passed.end is None:
            return source, container
        return formats.passed_by(source, self.passed.end, self.passed.error)

    def _examine(self, source: Source, container: Container) -> Iterator[Event]:
        self.container = container
        yield Recognised(container)
        yield from self._run(container)
        try:
            checkpoint = formats.read(source, container)
        except (DamagedError, NotACheckpointError) as error:
            asides = formats.named_in(source)
            container = self.container = replace(container, asides=asides) if asides else container
            yield from self._account_for(error, container)
            return
        self.checkpoint = checkpoint
        yield Opened(checkpoint)
        root = find_root(checkpoint.tree, self.settings.root) if self.settings.root is not None else None
        yield from self._judge(_narrowed(checkpoint, root), root)
        if self.settings.deep:
            yield from self._read_everything(source, checkpoint)

    def _judge(self, checkpoint: Checkpoint, root: KeyPath | None) -> Iterator[Event]:
        if self.settings.error is not None:
            yield from self._take_at_its_word(self.settings.error, checkpoint)
        comparison = compared(checkpoint, self.reference, root)
        if comparison is not None:
            self.coverage = comparison.coverage
            comparison = self.comparison = self._of_arrays(self._unpickled(comparison, root), root)
        if self.coverage is not None and self.container is not None:
            self.coverage = attainable(self.coverage, self.path, self.container)
        yield from self._run(comparison, checkpoint)

    def _unpickled(self, comparison: Comparison, root: KeyPath | None) -> Comparison:
        """Return the comparison with the state dict of a pickled module, where that is what can be compared."""
        from ckptdoctor.facts.whole_modules import with_modules

        checkpoint = with_modules(comparison.checkpoint)
        rebuilt = compared(checkpoint, self.reference, root) if checkpoint is not comparison.checkpoint else None
        if rebuilt is None or rebuilt.state_dict in comparison.checkpoint.state_dicts:
            return comparison
        fit = rebuilt.coverage
        step = CoverageStep("extract the state dict from the module", "P204", fit.keys, fit.parameters)
        self.coverage = replace(fit, keys=0, parameters=0, steps=(step, *fit.steps))
        self.rebuilt = True
        return rebuilt

    def _of_arrays(self, comparison: Comparison, root: KeyPath | None) -> Comparison:
        """Return the comparison with tensors in the place of NumPy arrays, where more of it fits then."""
        from ckptdoctor.edits.applied.array_tensors import make_tensors
        from ckptdoctor.rules.pickle.numpy_module_drift import arrays_of_repair

        if comparison.renamed.covered == len(comparison.reference.tensors):
            return comparison
        edit = arrays_of_repair(comparison.checkpoint)
        made = compared(make_tensors(comparison.checkpoint, edit), self.reference, root) if edit is not None else None
        if made is None or made.renamed.covered <= comparison.renamed.covered:
            return comparison
        before, fit = comparison.coverage, made.coverage
        step = CoverageStep("make tensors of the NumPy arrays", "P202", fit.keys, fit.parameters)
        self.coverage = replace(fit, keys=before.keys, parameters=before.parameters, steps=(step, *fit.steps))
        self.rebuilt = True
        return made

    def _take_at_its_word(self, path: str, checkpoint: Checkpoint) -> Iterator[Event]:
        """Let the text of an error say what the model expects of this checkpoint."""
        from ckptdoctor.target.error_text import as_reference, read_error

        told = as_reference(read_error(path), checkpoint, "the model of the error")
        self.reference = told.reference
        if not told.complete:
            yield from self._skip([Skipped("all keys of the model", "the error text is cut short")])
        if told.left_out:
            yield from self._skip(
                [Skipped(plural(len(told.left_out), "missing key"), "the error does not give their shapes")]
            )

    def _run(self, *subjects: object) -> Iterator[Event]:
        rules = concerned_by(subjects) if self.rules is None else self.rules
        for finding in map(self._possible, apply_rules(rules, subjects)):
            if finding not in self.findings:
                self.findings.append(finding)
                yield Found(finding)

    def _possible(self, finding: Finding) -> Finding:
        """Return the finding without its repair, where there can be none.

        That is so on other machines, and of what is only read.
        """
        if finding.fix is None or self.container is None:
            return finding
        early = self.rebuilt and finding.code[0] in _OF_KEYS and not finding.fix.option.startswith("--auto")
        if early or addresses.is_address(self.path):
            return replace(finding, fix=None)
        return possible(finding, self.container)

    def _account_for(self, error: CkptDoctorError, container: Container) -> Iterator[Event]:
        """Contents that cannot be read must not pass for healthy: a finding explains it, or the file is an error."""
        if isinstance(error, DamagedError) and not self._explained():
            note = Note(NoteKind.PICKLE_DAMAGED, error.message, error.member, error.offset)
            self.container = replace(container, notes=(*container.notes, note))
            yield from self._run(self.container)
        elif container.asides:
            yield from self._run(container)
        if not self._explained():
            self.error = error.message
        yield from self._skip([Skipped("the contents", "they cannot be read")])  # why: the finding or the error says

    def _explained(self) -> bool:
        errors = [finding for finding in self.findings if finding.severity is Severity.ERROR]
        readable = self.container is not None and self.container.readable
        return any(finding.code.startswith(_DAMAGE) for finding in errors) if readable else bool(errors)

    def _with_ties(self, found: Integrity, source: Source) -> Integrity:
        """Return what was found with the tensors that the target has as one, compared where no checksums tell."""
        if self.comparison is None or self.interrupted or self.passed is not None:
            return found
        from ckptdoctor.checkpoint.sharing import compared as same_bytes
        from ckptdoctor.match.ties import pairs_of_target

        unknown = [pair for pair in pairs_of_target(self.comparison) if pair.same is None]
        try:
            pairs = [replace(pair, same=same_bytes(pair.head, pair.embedding, source)) for pair in unknown]
        except DamagedError as error:  # the file has changed since its headers were read
            self.error = error.message
            return found
        return replace(found, twins=(*found.twins, *pairs)) if pairs else found

    def _read_everything(self, source: Source, checkpoint: Checkpoint) -> Iterator[Event]:
        from ckptdoctor.examine.deep import base_of, read_everything, unread

        if self.interrupted and self.passed is None:
            yield from self._skip([Skipped("checksums and values", "interrupted")])
            return
        rules = deep_rules() if self.rules is None else self.rules
        try:
            if self.passed is not None:
                integrity = self.passed.integrity_of(checkpoint, source)
                values = self.passed.values_of(checkpoint, source)
            else:
                read = self.settings.reader or read_everything
                integrity, values = yield from read(checkpoint, source, rules, self.settings.pictures)
        except DamagedError as error:  # the file has changed since its headers were read
            self.error = error.message
            return
        self._take_down(integrity)
        self._take_down(values)
        if integrity.result is not None:
            yield from self._run(self._with_ties(integrity.result, source))
            unchecked = integrity.result.without_checksum
            if unchecked:
                yield from self._skip([Skipped(f"checksums of {plural(unchecked, 'storage')}", "there are none")])
        if self.passed is None and self.interrupted:
            if values.result is None:
                yield from self._skip([Skipped("checksums and values", "interrupted")])
                return
            if values.complete:
                yield from self._skip([Skipped("the rest of the checksums", "interrupted")])
        if values.result is not None and self.settings.pictures:
            yield Measured(values.result)
        yield from self._run(values.result)
        checked = integrity.complete or self.passed is not None
        yield from self._skip(unread(values.result, interrupted=values.interrupted, checked=checked))
        self.interrupted |= self.comparison is not None and (integrity.interrupted or values.interrupted)
        if self.comparison is not None and not self.interrupted:
            base = yield from base_of(self.comparison, source, rules)
            self._take_down(base)
            yield from self._run(base.result)

    def _take_down(self, work: WorkDone[Any]) -> None:
        """Note how far it came. Ctrl-C that came when all was done did not interrupt it."""
        if work.progress is not None:
            self.readings.append(work.progress)
        self.interrupted |= work.interrupted and not work.complete

    def _left_out(self) -> Iterator[Skipped]:
        """Yield what a reader of the report could take for examined, but was not."""
        holders = [holder for holder in (self.container, self.checkpoint) if holder is not None]
        for note in [note for holder in holders for note in holder.notes if note.kind is NoteKind.NOT_EXAMINED]:
            yield Skipped(note.message, "not read")
        if self.checkpoint is None:
            if self.interrupted:
                yield Skipped("the contents", "interrupted")
            return
        if self.interrupted and not self.readings:
            yield Skipped("the headers", "interrupted")
        if not self.settings.deep:
            yield Skipped("checksums and values", "--deep")
        if self.reference is None:
            yield Skipped("fit to a model", "--model, --like")

    def _skip(self, skipped: Iterable[Skipped]) -> Iterator[Event]:
        for each in skipped:
            if each not in self._told:
                self._told.add(each)
                self.skipped.append(each)
                yield LeftOut(each)


def _narrowed(checkpoint: Checkpoint, root: KeyPath | None) -> Checkpoint:
    """Return the checkpoint with only the state dicts at or below ``root``; with all of them when it is None."""
    if root is None:
        return checkpoint
    chosen = tuple([each for each in checkpoint.state_dicts if each.path[: len(root)] == root])
    if not chosen:
        raise UsageError(f'There is no state dict in "{show_path(root)}": it holds no tensors under text keys.')
    return replace(checkpoint, state_dicts=chosen)
