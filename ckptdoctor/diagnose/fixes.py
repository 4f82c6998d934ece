"""Gives the fixes that rules propose for some contents, and tells which of them may be applied side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Fix,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Rename,
    RenameModules,
    Reorder,
    Retag,
    Safety,
    SetMetadata,
    SetSuffix,
    TextMetadata,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.tensors import TENSOR_EDITS
from ckptdoctor.findings import Finding
from ckptdoctor.rules.framework import Rule

FindingFix = tuple[Finding, Fix]

# edits that only name and leave out: what they drop goes into nothing else
_NAMING = (Drop, Rename, RenameModules, Reorder)


def container_findings(container: Container, rules: Iterable[Rule]) -> list[Finding]:
    """Return what the rules find in the file around the contents."""
    return [found for rule in rules if isinstance(container, rule.subject) for found in rule.run(container)]


def fixes(findings: Iterable[Finding], unsafe: bool, confirmed: bool = False) -> list[FindingFix]:
    """Return the findings that may be fixed.

    These are safe fixes, ``confirmed`` ones towards a target, and all where ``unsafe``.
    """
    admitted = {Safety.SAFE, *([Safety.CONFIRMED] if confirmed else []), *(Safety if unsafe else [])}
    return [
        (finding, finding.fix)
        for finding in findings
        if finding.fix is not None and finding.fix.edits and finding.fix.safety in admitted
    ]


def independent(wanted: Iterable[FindingFix]) -> Iterator[FindingFix]:
    """Yield the first fix, and those after it that touch nothing an earlier one touches.

    The others must be asked again.
    """
    touched: set[str] = set()
    for finding, fix in wanted:
        mine = {each for edit in fix.edits for each in _touched(edit)}
        if touched.isdisjoint(mine) and not (touched and "everything" in touched | mine):
            touched |= mine
            yield finding, fix


def outside(edits: Iterable[Edit]) -> bool:
    """Return whether an edit changes the file around the contents, which the nouns do not show."""
    return any(isinstance(edit, (SetSuffix, Truncate)) for edit in edits)


def of_index(edits: Iterable[Edit]) -> bool:
    """Return whether the edits write the index of a folder, whose shards stay as they are."""
    return any(isinstance(edit, WriteIndex) for edit in edits)


def _touched(edit: Edit) -> Iterator[str]:
    """Yield what an edit changes, coarsely."""
    if isinstance(edit, (MoveToCpu, Retag)):
        yield "device tags"
    elif isinstance(edit, (SetSuffix, Truncate, WriteIndex)):
        yield "the file"
    elif isinstance(edit, (SetMetadata, TextMetadata)):
        yield "metadata"
    elif isinstance(edit, Convert):
        yield "everything"
    else:
        yield "paths"
        if isinstance(edit, (Cast, Clone, Compact, Densify, MakeContiguous, MakeTensors, Unwrap, *TENSOR_EDITS)):
            yield "storages"


def lost_by(edits: Sequence[Edit], checkpoint: Checkpoint) -> list[str]:
    """Return the weights that edits leave out and that are nowhere else; what goes into another tensor is not lost."""
    going = [path for each in edits if isinstance(each, Drop) for path in each.paths]
    if not going or not all(isinstance(each, _NAMING) for each in edits):
        return []
    from ckptdoctor.diagnose.only_copies import only_copies

    return [tensor.key for tensor in only_copies(checkpoint, going)]
