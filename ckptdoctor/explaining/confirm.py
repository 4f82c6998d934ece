"""Holds an explanation against the file that it is about."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Mapping, StateDict, show_path
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.explaining.explanation import Confirmation
from ckptdoctor.explaining.recognise import Hit
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.rules.incompatible_keys import LoadError
from ckptdoctor.wording import plural

# families and rules whose messages come from what is in the file; the others' may come from the program that loads it
_OF_THE_FILE = ("F", "C", "D", "P", "W", "N", "M", "Q", "L")
_OF_THE_PROGRAM = frozenset(("C106", "C108", "D606", "D607", "N402", "P204", "P205", "W305"))


def confirm(hit: Hit, report: FileReport, error: LoadError | None, implemented: frozenset[str]) -> Confirmation:
    """Return whether the examination of the file bears the explanation out.

    ``implemented`` are the codes that have a rule.
    """
    if report.error is not None and not report.findings:
        return Confirmation(None, f"{report.path} could not be examined: {report.error}")
    codes = (hit.code, *hit.also)
    found = [finding for finding in report.findings if finding.code in codes]
    exact = [finding for finding in found if finding.code == hit.code]
    keys = _about_keys(report, error if error is not None and hit.offset == error.offset else None)
    if exact or found:
        return Confirmation(True, _finds((exact or found)[0], report.path))
    if keys is not None:
        return keys
    if not hit.code.startswith(_OF_THE_FILE) or hit.code in _OF_THE_PROGRAM:
        return Confirmation(None, f"nothing in {report.path} shows it; the cause may be the program{_instead(report)}")
    if hit.code not in implemented:
        return Confirmation(None, f"{report.path} does not show it: no check looks for it yet{_instead(report)}")
    return Confirmation(False, f"not in {report.path}: check finds no {hit.code}{_instead(report)}")


def names_at_top(checkpoint: Checkpoint) -> set[str]:
    """Return the keys of the outermost dict of a file."""
    tree = checkpoint.tree
    return {part for part, _ in tree.entries if isinstance(part, str)} if isinstance(tree, Mapping) else set()


def _about_keys(report: FileReport, error: LoadError | None) -> Confirmation | None:
    """Return whether the keys that an error of load_state_dict calls unexpected are the file's."""
    if error is None or report.checkpoint is None:
        return None
    named = set(error.unexpected or [each.key for each in error.mismatched])
    sets = weights_among(report.checkpoint.state_dicts)
    if not named:
        absent = set(error.missing)
        there = max([len(absent.intersection(each.keys)) for each in sets], default=0)
        if there:
            return Confirmation(
                False, f"not in {report.path}: it has {there:,} of the {plural(len(absent), 'key')} called missing"
            )
        return Confirmation(True, f"{report.path} has none of the {plural(len(absent), 'key')} called missing")
    best = max(sets, key=lambda each: len(named.intersection(each.keys)), default=None)
    there = len(named.intersection((*best.keys, *best.others))) if best is not None else 0
    if named <= names_at_top(report.checkpoint):
        return Confirmation(
            True, f"{report.path} has all of the {plural(len(named), 'key')} that the error names, at its top"
        )
    kind = "calls unexpected" if error.unexpected else "names"
    if best is None or 2 * there < len(named):
        has = f"{'none' if not there else f'only {there:,}'} of the {plural(len(named), 'key')} that the error {kind}"
        return Confirmation(
            False,
            f"not in {report.path}: it has {has}{_prefix(error, best)}",
        )
    place = f" in {show_path(best.path)}" if best.path else ""
    shapes = {tensor.key: tensor.shape for tensor in best.tensors}
    wrong = [each for each in error.mismatched if each.key in shapes and shapes[each.key] != each.here]
    if wrong:
        key = wrong[0].key
        return Confirmation(False, f"not in {report.path}: its {key} is {list(shapes[key])}, not {list(wrong[0].here)}")
    return Confirmation(
        True, f"{report.path} has {there:,} of the {plural(len(named), 'key')} that the error {kind}{place}"
    )


def _finds(finding: Finding, path: str) -> str:
    return f"check finds {finding.code} in {path}: {finding.message}"


def _instead(report: FileReport) -> str:
    codes = list(dict.fromkeys(finding.code for finding in report.findings))
    return f"; it finds {', '.join(codes)}" if codes else ""


def _prefix(error: LoadError, best: StateDict | None) -> str:
    """Return the sentence that no key of the file begins as all of the unexpected keys do."""
    firsts = {key.split(".")[0] for key in error.unexpected if "." in key}
    if len(firsts) != 1:
        return ""
    prefix = f"{firsts.pop()}."
    begun = best is not None and any(key.startswith(prefix) for key in best.keys)
    return "" if begun else f', and no key that begins with "{prefix}"'
