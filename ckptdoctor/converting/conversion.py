"""Converts checkpoints: any container that can be read to torch, to safetensors, or to a distributed one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from time import perf_counter

from ckptdoctor.checkpoint import ROOT, FileIdentity, KeyPath, NoteKind, Tensor, show_path
from ckptdoctor.checkpoint.roots import beside, find_root
from ckptdoctor.checkpoint.sharing import digest, is_readable, is_telling, probe
from ckptdoctor.converting.inputs import Inputs, inputs
from ckptdoctor.converting.request import DCP, ConvertRequest
from ckptdoctor.converting.targets import to_dcp, to_safetensors, to_torch
from ckptdoctor.converting.writing import Output, examined, report_of, weights_of, write
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import SetSuffix
from ckptdoctor.edits.applied.wanted import Wanted, kept
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.devices import whole_dtensors
from ckptdoctor.findings import ConvertReport, Twins
from ckptdoctor.formats.suffixes import SHARDED, TORCH_ZIP
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.shell import quote
from ckptdoctor.wording import beyond

# what torch wrote is edited where it stands, so that objects, device tags and checksums stay as they are
_LOSSLESS = ("torch zip", "torch legacy")
_LAID_OUT = frozenset({NoteKind.BIG_ENDIAN, NoteKind.ZIP_UNUSUAL})


def convert(request: ConvertRequest) -> ConvertReport:
    """Write the output, verified; what was read stays as it is.

    Raises UnreadableError, NotACheckpointError and DamagedError for the sources, UsageError for a bad option,
    RefusedError with a list for what the target cannot hold, and WriteError; then nothing has changed.
    """
    started = perf_counter()
    with _said_of_merge(bool(request.names)), inputs(request.paths, request.root, request.names) as given:
        root = ROOT if request.root is None else find_root(given.wanted.contents.tree, request.root)
        found = twins(request, given)
        if request.target == TORCH_ZIP and _stays(request, given):
            report = lossless(request, given, root)
        else:
            report = converted(request, given.wanted, root, given.identity)
        return replace(report, absent=given.absent, twins=found, seconds=perf_counter() - started)


@contextmanager
def _said_of_merge(merging: bool) -> Iterator[None]:
    """Say of options that a refusal offers that only ``convert`` has them, where files are merged."""
    try:
        yield
    except RefusedError as error:
        if merging and ("--root" in error.message or "--flatten" in error.message):
            error.message += "\n  only convert has these options: convert each file first, and merge what that writes"
            error.args = (error.message,)
        raise


def _stays(request: ConvertRequest, given: Inputs) -> bool:
    """Return whether the input is one file of torch, which is edited as it is.

    One that has the other byte order, compressed records, or what torch rejects, is written in the usual form.
    """
    first = given.checkpoints[0]
    usual = not any(note.kind in _LAID_OUT for note in first.notes)
    return len(request.paths) == 1 and first.format in _LOSSLESS and usual and not any(request.names)


def converted(request: ConvertRequest, wanted: Wanted, root: KeyPath, identity: FileIdentity | None) -> ConvertReport:
    """Write what is wanted in the container that is asked for, verified. Raises as ``convert`` does."""
    if request.target == DCP:
        output = to_dcp(request, wanted, root)
    elif request.target == TORCH_ZIP:
        output = to_torch(request, wanted, root)
    else:
        output = to_safetensors(request, wanted, root, sharded=request.target == SHARDED)
    return write(output, request, identity)


# ---- weights that would be written twice: tensors of one file that are in another under another name, byte for byte


_SHOWN = 3  # pairs of names in a refusal


@noun
class _Member:
    """A tensor of one of the files. ``telling``: its numbers are not all the same, as those of many tensors are."""

    file: int
    tensor: Tensor
    telling: bool


def twins(request: ConvertRequest, given: Inputs) -> tuple[Twins, ...]:
    """Return the files of which tensors are in others under other names, and how many.

    Raises RefusedError where that are all tensors of a file, unless it is forced.
    """
    if len(given.checkpoints) < 2:
        return ()
    pairs: dict[tuple[int, int], dict[KeyPath, tuple[KeyPath, bool]]] = {}
    for group in _equal(given):
        for one in group:
            for other in group:
                if one.file != other.file and one.tensor.path != other.tensor.path:
                    found = pairs.setdefault((one.file, other.file), {})
                    found.setdefault(one.tensor.path, (other.tensor.path, one.telling))
    made = [_twins(request, given, files, pairs) for files in combinations(range(len(given.checkpoints)), 2)]
    return tuple([each for each in made if each is not None])


def _twins(
    request: ConvertRequest,
    given: Inputs,
    files: tuple[int, int],
    pairs: dict[tuple[int, int], dict[KeyPath, tuple[KeyPath, bool]]],
) -> Twins | None:
    """Return the tensors that one file has of another, seen from the one of which more is in the other."""
    ways = [_seen(given, one, other, pairs.get((one, other), {})) for one, other in (files, files[::-1])]
    whole = next((way for way in ways if way.number and way.number == way.of), None)
    if whole is not None and not request.force:
        raise _refusal(request, whole)
    best = whole or max(ways, key=lambda way: way.number)
    return best if best.number else None


def _seen(given: Inputs, one: int, other: int, found: dict[KeyPath, tuple[KeyPath, bool]]) -> Twins:
    """Return the part of a file that is in another one.

    What has the same name in both is one entry anyway, not counted.
    """
    its = {tensor.path for tensor in given.checkpoints[other].tensors}
    own = [tensor.path for tensor in given.checkpoints[one].tensors if tensor.path not in its]
    telling = [path for path in own if path in found and found[path][1]]
    every = bool(telling) and all(path in found for path in own)
    counted = [path for path in own if path in found] if every else telling
    names = tuple([(show_path(path), show_path(found[path][0])) for path in counted])
    return Twins(given.paths[one], given.paths[other], len(counted), len(own), names[:_SHOWN])


def _equal(given: Inputs) -> Iterator[list[_Member]]:
    """Yield tensors of several files with the same dtype, shape and bytes."""
    alike: dict[object, list[tuple[int, Tensor]]] = {}
    for number, checkpoint in enumerate(given.checkpoints):
        for tensor in checkpoint.tensors:
            if is_readable(tensor):
                alike.setdefault((tensor.dtype.name, tensor.shape), []).append((number, tensor))
    for group in alike.values():
        if len({number for number, _ in group}) < 2:
            continue
        probed: dict[object, list[_Member]] = {}
        for number, tensor in group:
            mark = probe(given.sources[number], tensor)
            probed.setdefault(mark, []).append(_Member(number, tensor, is_telling(mark, tensor)))
        for likely in probed.values():
            if len({each.file for each in likely}) > 1:
                yield from _digested(given, likely)


def _digested(given: Inputs, likely: list[_Member]) -> Iterator[list[_Member]]:
    found: dict[bytes, list[_Member]] = {}
    for each in likely:
        found.setdefault(digest(given.sources[each.file], each.tensor), []).append(each)
    yield from found.values()


def _refusal(request: ConvertRequest, whole: Twins) -> RefusedError:
    more = beyond(whole.number - len(whole.names))
    names = ", ".join([f"{one} = {other}" for one, other in whole.names])
    return RefusedError(
        f"the same weights would be written twice: every tensor of {whole.one} has an equal twin in {whole.other}, "
        f"under another name\n  {names}{more}\n"
        f"  choose: ckptdoctor convert {quote(whole.other)} {quote(request.output)}, or --force to write both"
    )


# the rules whose fixes make an archive of a legacy file, and plain tensors of DTensors
_LEGACY_FORMAT, _DTENSORS = "C105", "X810"


def lossless(request: ConvertRequest, given: Inputs, root: KeyPath) -> ConvertReport:
    """Write the archive: the contents, or those at ``root``, with the device tags and objects that they have."""
    original, (path,) = given.checkpoints[0], request.paths
    wrapped = whole_dtensors(original) is not None
    if original.format == TORCH_ZIP and not root and not wrapped:
        copied = write(_as_it_is(request, given), request, given.identity)
        return replace(copied, identical=len(original.tensors), next=examined(request.output)[1])
    codes = [*([_LEGACY_FORMAT] if original.format != TORCH_ZIP else []), *([_DTENSORS] if wrapped else [])]
    selection = Selection(tuple(codes)) if codes else Selection()
    named = FixRequest(path=path, output=request.output, root=request.root, selection=selection, force=request.force)
    planned = replace(plan(named), converts=None)  # whatever the output is called
    outcome = repair(planned)
    if outcome.written is None:
        raise RefusedError(
            f"{path}: nothing in it can be rewritten, because torch rejects the file as well. To see why: "
            f"ckptdoctor check {quote(path)}"
        )
    contents = planned.expected
    return replace(
        report_of(request, given.wanted, contents.tensors),
        files=((os.path.basename(request.output), outcome.written.nbytes),),
        identical=len(contents.tensors),
        left_out=tuple(beside(given.wanted.contents.tree, root)),
        root=root,
        weights=weights_of(contents),
        next=None if outcome.proof is None else outcome.proof.next,
    )


def _as_it_is(request: ConvertRequest, given: Inputs) -> Output:
    """The archive is one already: the same bytes under another name."""
    original = given.checkpoints[0]
    renamed = (SetSuffix(os.path.splitext(request.output)[1]),)
    wanted = Wanted(original, original, renamed, stored=kept(original))
    report = replace(report_of(request, wanted, original.tensors), weights=weights_of(original))
    return Output(((request.output, wanted),), report, source=given.sources[0])
