"""Gives the weights of a checkpoint under the names of a model, or refuses: ``ckptdoctor.load_state_dict``."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Table
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import ROOT, KeyPath, Mapping, Tensor, show_path
from ckptdoctor.checkpoint.checkpoint import told_of, unread_files
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.crash import asking_for_torch
from ckptdoctor.diagnose.findings import findings_of
from ckptdoctor.edits import Drop, Safety
from ckptdoctor.edits.renaming import renamed_modules
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.facts.whole_modules import with_modules
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.formats import opened, read
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.soundness import require_sound
from ckptdoctor.loading.storages import StorageReader
from ckptdoctor.loading.torch_tensors import TorchTensors
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Alignment, Comparison, sort_keys
from ckptdoctor.noun import noun, replace
from ckptdoctor.target.mapping import as_reference
from ckptdoctor.wording import and_more, plural

if TYPE_CHECKING:
    import torch

_COUNTER = "num_batches_tracked"
_COUNTED = 2  # the version of BatchNorm that has the counter
_PLAIN = (bool, int, float, str)


@asking_for_torch()
def load_state_dict(
    path: str | os.PathLike[str], reference: object, root: str | None = None, *, strict: bool = True
) -> OrderedDict[str, torch.Tensor]:
    """Return the weights of the checkpoint at ``path``, on the CPU, ready for ``net.load_state_dict``.

    ``target`` is the net, or a mapping of its keys to tensors or shapes. Repairs happen in memory and only where
    they lose nothing and the reference confirms them: the state dict is found (``root`` chooses it), wrappers'
    prefixes go, keys get the names they have there. No code of the file runs, and device tags do not matter.

    Raises RefusedError, which says how much fits and what is in the way, where it does not fit completely; with
    ``strict=False`` what fits is returned instead, with a UserWarning where files of the folder are missing or damaged.
    Raises UsageError for a reference that is none and a root that is not there, UnreadableError, NotACheckpointError
    or DamagedError for the file (``strict=False`` takes a safetensors file that safetensors refuses, too), and
    MissingPackageError where torch is not installed.
    """
    wanted = as_reference(reference)
    with opened(path) as (source, container), collector_paused():
        checkpoint = with_modules(read(source, container))
        require_own_values(checkpoint)
        place = find_root(checkpoint.tree, root) if root is not None else None
        if strict:
            require_sound(checkpoint, source, ROOT if place is None else place)
        comparison = compare(checkpoint, wanted, place)
        settled = _settle(comparison)
        if comparison.rivals or not settled.complete:
            findings = findings_of(checkpoint, reference=wanted, root=place)
            settled = _settle(comparison, _droppable(findings))
            if comparison.rivals or (strict and not settled.complete):
                raise refusal(comparison, settled.alignment, settled.doubled, findings)
            unread = unread_files(checkpoint)
            if unread:
                said = f"{checkpoint.path}: {told_of(checkpoint, unread)}. Its contents are not loaded."
                warnings.warn(said, stacklevel=5)  # the line that calls ckptdoctor.load_state_dict
        return _made(settled, TorchTensors(StorageReader(checkpoint, source)))


# ---- names


@noun(eq=False, slots=False)
class _Settled:
    """The state dict under its new names (``names``: old → new), with what is proven only: no guesses, nothing lost.

    ``doubled`` are old names whose new name another key has.
    """

    comparison: Comparison
    alignment: Alignment
    names: Table[str, str]
    doubled: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether ``load_state_dict(strict=True)`` would take it."""
        now = self.alignment
        return not (now.unexpected or now.mismatched or self.doubled or any(map(self._asked_for, now.missing)))

    def _asked_for(self, key: str) -> bool:
        """Return whether torch asks for a missing key.

        BatchNorm does not ask for its counter in files of before torch 0.4.1.

        Source: ``torch.nn.modules.batchnorm._NormBase._load_from_state_dict``.
        """
        module, _, leaf = key.rpartition(".")
        version = self.metadata.get(module, {}).get("version")
        return leaf != _COUNTER or (isinstance(version, int) and version >= _COUNTED)

    @cached_property
    def metadata(self) -> OrderedDict[str, dict[str, Any]]:
        """The ``_metadata`` of the state dict, with its prefixes renamed as the keys are."""
        state_dict = self.comparison.state_dict
        node = state_dict.metadata if state_dict is not None else None
        entries = {part: each for part, each in node.entries if isinstance(part, str)} if node is not None else {}
        moved = renamed_modules(entries, self.names)
        found: OrderedDict[str, dict[str, Any]] = OrderedDict()
        for module, each in entries.items():
            name = moved[module]
            if name is not None and isinstance(each, Mapping):
                found[name] = {str(key): value for key, value in each.entries if isinstance(value, _PLAIN)}
        return found


def _settle(comparison: Comparison, dropped: frozenset[KeyPath] = frozenset()) -> _Settled:
    here: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    doubled = []
    gone = {id(fix.drops) for fix in comparison.name_fixes if fix.drops is not None}
    for tensor in comparison.state_dict.tensors if comparison.state_dict is not None else ():
        if id(tensor) in gone or tensor.path in dropped:
            continue
        name = _proven_name(comparison, tensor.key)
        if name in here:
            doubled.append(tensor.key)
        else:
            here[name] = tensor
            names[tensor.key] = name
    reference = comparison.reference
    for key, partner in sort_keys(here, reference).tied.items():  # one parameter of the net, under all of its names
        here[key] = here[partner]
    return _Settled(comparison, sort_keys(here, reference), names, tuple(doubled))


def _proven_name(comparison: Comparison, key: str) -> str:
    """Return the name after all renames up to the first that is only a guess."""
    key = comparison.name_after_prefix(key)
    for move in comparison.moves:
        if not move.sure:
            break
        key = move.change(key)
    return key


def _droppable(findings: list[Finding]) -> frozenset[KeyPath]:
    """Return what safe fixes drop, such as a profiler's counters."""
    fixes = [finding.fix for finding in findings if finding.fix is not None and finding.fix.safety is Safety.SAFE]
    return frozenset(
        [
            path
            for fix in fixes
            if all(isinstance(edit, Drop) for edit in fix.edits)
            for edit in fix.edits
            if isinstance(edit, Drop)
            for path in edit.paths
        ]
    )


# ---- tensors


def _made(settled: _Settled, tensors: TorchTensors) -> OrderedDict[str, torch.Tensor]:
    """Return what fits, in the order of the reference, with its ``_metadata``, where torch reads versions."""
    made: OrderedDict[str, Any] = OrderedDict()
    for key in settled.alignment.fits:
        tensor = settled.alignment.here[key]
        value = tensors.make(replace(tensor, is_parameter=False, requires_grad=False))
        if isinstance(value, Inert) or value.is_meta:
            kind = "was saved without values" if not isinstance(value, Inert) else f"is a {value.class_name}"
            raise RefusedError(f"{show_path(tensor.path)} {kind}: it cannot be loaded as a plain tensor.")
        made[key] = value
    if settled.metadata:
        made._metadata = settled.metadata  # type: ignore[attr-defined]
    return made


# ---- the refusal to load what does not fit: how much does, what is in the way and why, and how to decide it


_SHOWN = 5  # keys, and findings, that are named one by one
_FAMILIES = ("R", "S", "W", "N", "P204")  # rules on names, shapes and structure, and on modules pickled whole


def refusal(
    comparison: Comparison, now: Alignment, doubled: Sequence[str], findings: Iterable[Finding]
) -> RefusedError:
    """Return the error to raise: a sentence, and a line for each thing that is in the way."""
    checkpoint, reference = comparison.checkpoint, comparison.reference
    if comparison.rivals and comparison.state_dict is not None:
        places = [show_path(each.path) or "the top level" for each in (comparison.state_dict, *comparison.rivals)]
        return RefusedError(
            f"{checkpoint.path} has more than one set of weights that fits {reference.source} equally well "
            f"({', '.join(places[:_SHOWN])}): choose one with root={places[0]!r} or another."
        )
    lines = [
        f"{checkpoint.path} does not fit {reference.source}: {len(now.fits):,} of "
        f"{plural(len(reference.tensors), 'key')} do "
        f"({now.parameters:,} of {plural(comparison.total_parameters, 'parameter')})."
    ]
    unread = unread_files(checkpoint)
    lines += [f"  {told_of(checkpoint, unread)}."] if unread else []
    lines += _named("missing", now.missing)
    lines += _named("left over", now.unexpected)
    lines += _named("shape mismatch", [_shapes(comparison, now, key) for key in now.mismatched])
    lines += _named("would get the name of another key", doubled)
    lines += [f"  {each.code} {each.name}: {each.message}." for each in _telling(comparison, findings)]
    if not all(move.sure for move in comparison.moves):
        lines.append("  More names can be guessed from their order, but not proven; ckptdoctor does not guess here.")
    lines.append(
        f"  strict=False loads what fits. ckptdoctor.check({checkpoint.path!r}, model=…) shows what to do about "
        "the rest."
    )
    return RefusedError("\n".join(lines))


def _shapes(comparison: Comparison, now: Alignment, key: str) -> str:
    return f"{key} {list(now.here[key].shape)} for {list(comparison.reference.tensors[key].shape)}"


def _named(what: str, keys: Sequence[str]) -> list[str]:
    if not keys:
        return []
    return [f"  {what}: {and_more(keys, _SHOWN)}"]


def _telling(comparison: Comparison, findings: Iterable[Finding]) -> list[Finding]:
    """Return what explains the misfit: not what has been repaired on the way."""
    done = {step.code for step in comparison.steps}
    wanted = [each for each in findings if each.code.startswith(_FAMILIES) and each.severity is not Severity.INFO]
    return [each for each in wanted if each.code not in done][:_SHOWN]
