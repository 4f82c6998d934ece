"""An explanation is compared with the file that it is about: the file is examined for what the error says of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, show_path
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import Safety
from ckptdoctor.errors import CkptDoctorError, UsageError
from ckptdoctor.examine.as_found import as_found
from ckptdoctor.examine.file import check
from ckptdoctor.explaining.confirm import confirm
from ckptdoctor.explaining.explanation import Confirmation, Explanation, OneRepair
from ckptdoctor.explaining.load_error import load_errors
from ckptdoctor.explaining.text import cleaned
from ckptdoctor.findings import Coverage, FileReport
from ckptdoctor.noun import replace
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.incompatible_keys import LoadError
from ckptdoctor.rules.kit.blocked import WEIGHTS_ONLY_SAFE
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.shell import split, word
from ckptdoctor.target.error_text import as_reference, loaded
from ckptdoctor.wording import listed, plural


def verdict(explained: Explanation, raw: str, path: str) -> tuple[Confirmation, FileReport]:
    """Return what the file at ``path`` says to the first cause of an explanation, of which ``raw`` is the text.

    With it comes the report that it follows from. Only headers are read. What is wrong with the file itself is a
    verdict as well: nothing is raised for it.
    """
    error = _explained(explained, raw)
    report = check(path)
    if error is not None and report.checkpoint is not None:
        with suppress(UsageError):  # there are no weights that the error could be about: the plain report says so
            report = check(path, reference=as_reference(error, report.checkpoint).reference)
    return confirm(explained.hits[0], report, error, frozenset([rule.code for rule in all_rules()])), report


def judged(explained: Explanation, raw: str, path: str) -> Explanation:
    """Return the explanation with what the file at ``path`` says to it, and the one repair that it needs, if known."""
    confirmation, report = verdict(explained, raw, path)
    explained, confirmation = as_found(explained, confirmation, report)
    return replace(explained, verdict=confirmation, repair=way_to_the_model(explained, raw, report))


def _explained(explained: Explanation, raw: str) -> LoadError | None:
    """Return the error that the first cause is about; the first of the text where that cause is another message."""
    errors = load_errors(cleaned(raw))
    return next((each for each in errors if each.offset == explained.hits[0].offset), errors[0] if errors else None)


# what modules of the program that failed are called there, each with its keys
Models = Mapping[str, Collection[str]]


def way_to_the_model(
    explained: Explanation, raw: str, report: FileReport, models: Models | None = None
) -> OneRepair | None:
    """Return the one command after which the file has exactly the keys that the model is known to expect.

    ``report`` is that of the file, with what the error in ``raw`` wants. Where that calls keys missing, they and those
    that fit are the model's; where the load failed before that, one of the ``models`` of the program may be it. Each
    repair alone would lead to the next error. None where one is enough, or where it is not known that all of them
    together are.
    """
    error, coverage, checkpoint = _explained(explained, raw), report.coverage, report.checkpoint
    if checkpoint is None:
        return None
    if error is None:
        return _past_the_first_error(explained, report, checkpoint, models or {})
    if coverage is None or not _tells_all(error) or len(coverage.steps) < 2:
        return None
    whole, place, wanted = _expected(error, checkpoint)
    root = (f"--root {word(show_path(place))}",) if whole else ()
    for options in ((*root, "--strip-module"), _of_steps(report, coverage)):
        contents = _after(report.path, options)
        if contents is not None and _has_exactly(contents, wanted, ROOT if whole else place):
            steps = listed([step.title for step in coverage.steps])
            return OneRepair(options, f"all {plural(coverage.total_keys, 'key')} of the model fit after: {steps}")
    return None


def _past_the_first_error(
    explained: Explanation, report: FileReport, checkpoint: Checkpoint, models: Models
) -> OneRepair | None:
    """Return the repair of what ended the load, and of the names that would end the next one, in one command.

    Nothing is taken out of its place: the program may look for it there.
    """
    codes = [code for hit in explained.hits[:1] for code in (hit.code, *hit.also)]
    found = next((each.fix for each in report.findings if each.code in codes and each.fix is not None), None)
    if found is None or found.safety is not Safety.SAFE or _fits_one(checkpoint, models):
        return None
    options = (*found.options, "--strip-module")
    contents = _after(report.path, options)
    name = _fits_one(contents, models) if contents is not None else ""
    if not name:
        return None
    return OneRepair(
        options, f"without their prefixes, all {plural(len(models[name]), 'key')} fit {name} in your program"
    )


def _fits_one(contents: Checkpoint, models: Models) -> str:
    """Return the name of the model that some weights have exactly the keys of; "" for none."""
    places = [each.path for each in weights_among(contents.state_dicts)]
    return next((name for name, keys in models.items() if any(_has_exactly(contents, keys, at) for at in places)), "")


def _tells_all(error: LoadError) -> bool:
    """Return whether the error tells which keys of the file are not the model's, and which the model has instead."""
    return bool(error.complete and error.missing and not error.mismatched and not error.first_only)


def _expected(error: LoadError, checkpoint: Checkpoint) -> tuple[bool, KeyPath, set[str]]:
    """Return whether the file was loaded as a whole, where its weights are, and the keys of the model."""
    whole, meant = loaded(error, checkpoint)
    kept = set() if whole else {*meant.keys}.difference(error.unexpected)
    return whole, meant.path, {*error.missing} | kept


def _of_steps(report: FileReport, coverage: Coverage) -> tuple[str, ...]:
    """Return the options of each step, in their order; () where a step has none."""
    offered = {finding.code: finding.fix for finding in report.findings if finding.fix is not None}
    found = [offered.get(step.code) for step in coverage.steps]
    return () if None in found else tuple([option for fix in found if fix is not None for option in fix.options])


def _after(path: str, options: tuple[str, ...]) -> Checkpoint | None:
    """Return the contents after these options; None where they cannot be asked for together, or are refused."""
    from ckptdoctor.repair.plan import plan

    request = _together(path, options)
    try:
        return plan(request).expected if request is not None else None
    except CkptDoctorError:
        return None


def _together(path: str, options: tuple[str, ...]) -> FixRequest | None:
    """Return what one command with these options asks for; None where another order would be another request."""
    root, module, cpu, plain = None, False, False, False
    prefixes: list[str] = []
    codes: list[str] = []
    for name, *value in map(split, options):
        if name == "--root" and value and root is None and not module and not prefixes:
            root = value[0]
        elif name == "--strip-module" and not prefixes:
            module = True
        elif name == "--strip-prefix" and value:
            prefixes.append(value[0])
        elif name == "--to-cpu":
            cpu = True
        elif name == WEIGHTS_ONLY_SAFE:
            plain = True
        elif name == "--select":
            codes += value
        else:
            return None
    selection = Selection(tuple(codes)) if codes else Selection()
    named = FixRequest(path, root=root, strip_module=module, strip_prefixes=tuple(prefixes), to_cpu=cpu)
    return replace(named, selection=selection, weights_only_safe=plain) if options else None


def _has_exactly(contents: Checkpoint, wanted: Collection[str], place: KeyPath) -> bool:
    """Return whether the keys at a place are those wanted; of others there may be what torch does not ask for."""
    here = next((each for each in contents.state_dicts if each.path == place), None)
    if here is None or not {*wanted} <= {*here.keys}:
        return False
    more = {*here.keys, *here.others}.difference(wanted)
    return all(is_extra_state(key) or key.rpartition(".")[2] == "num_batches_tracked" for key in more)
