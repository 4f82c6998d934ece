"""Writes what a conversion came to, proven and in one step, and says what became of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileIdentity, KeyPath, Role, Source, Storage, Tensor
from ckptdoctor.checkpoint.sharing import paths_on
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.examine.file import check
from ckptdoctor.facts.reader_notes import to_salvage
from ckptdoctor.findings import ConvertReport, Finding, Loader, NextStep
from ckptdoctor.noun import noun, replace
from ckptdoctor.prove.output import Checksums, CopyTally, prove
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.rules.kit.recovering import without
from ckptdoctor.shell import quote
from ckptdoctor.writing import Literal, Part, Recipe, publish_together
from ckptdoctor.writing.folder import publish_folder


@noun
class Output:
    """What will be written, and what is reported about it except for the proof.

    ``containers`` are what is wanted of each, with the path under which it is published; ``beside`` is the file of what
    they cannot hold, and ``index`` says which container holds what. ``folder``: the output is a folder with all of
    them. The stored checksums of ``unsummed`` tensors, which the output no longer has, or has in the place of new ones,
    are checked first. The only container may be a copy of ``source``.
    """

    containers: tuple[tuple[str, Wanted], ...]
    report: ConvertReport
    beside: tuple[str, bytes] | None = None
    index: tuple[str, bytes] | None = None
    folder: bool = False
    unsummed: tuple[Tensor, ...] = ()
    source: Source | None = None


def report_of(request: ConvertRequest, wanted: Wanted, tensors: Iterable[Tensor]) -> ConvertReport:
    """Return what is said of any conversion into ``tensors`` before there is a proof."""
    written = list(tensors)
    return ConvertReport(
        sources=request.paths,
        output=request.output,
        source_format=wanted.original.format,
        format=request.target,
        files=(),
        tensors=len(written),
        nbytes=sum(each.nbytes for each in written),
        identical=0,
        remade=0,
        replaces_original=request.replaces,
    )


def weights_of(contents: Checkpoint) -> KeyPath | None:
    """Return the place of the model's state dict, or None where there is not exactly one."""
    models = [each for each in weights_among(contents.state_dicts) if each.role is Role.MODEL]
    return models[0].path if len(models) == 1 else None


def write(output: Output, request: ConvertRequest, identity: FileIdentity | None) -> ConvertReport:
    """Write all files, verified, or none; ``identity`` is what was read then.

    Raises WriteError, and DamagedError for values that are not those saved.
    """
    tallies: list[CopyTally] = []
    recipes = [formats.write(wanted, output.source) for _, wanted in output.containers]
    with closing(Checksums(output.unsummed, partial(_unlike, request))) as sums:
        own = [
            part
            for (path, wanted), recipe in zip(output.containers, recipes, strict=True)
            for part in _parts(path, wanted, recipe, sums, tallies)
        ]
        own += _texts(output.index, recipes[0])
        every = [*_texts(output.beside, recipes[0]), *own]
        if output.folder:
            seconds = publish_folder(every, request.output, force=request.force, identity=identity)
        else:
            seconds = publish_together(every, force=request.force, identity=identity)[0].seconds
    tally = sum(tallies, CopyTally())
    return replace(
        output.report,
        files=tuple([(os.path.basename(part.output), part.recipe.size) for part in own]),
        identical=tally.identical,
        remade=tally.remade,
        computed=tally.computed,
        sidecar=output.beside[0] if output.beside is not None else None,
        seconds=seconds,
    )


def _unlike(request: ConvertRequest, name: str, damaged: Sequence[Storage]) -> str:
    """Return what is said of a tensor whose storages do not have the values that were saved, and what to do."""
    file = next((each.extent.file for each in damaged if each.extent is not None), "")
    # nobody knows where a packed one was unpacked to
    path = next((each for each in request.paths if file.startswith(os.path.join(each, ""))), request.paths[0])
    path = file if file in request.paths else path
    file = file if os.path.isdir(path) else path
    way = _instead(path, file, damaged, alone=len(request.paths) == 1)
    return f"The values of {name} in {file} do not match their checksum, which the output could not show. {way}"


def _instead(path: str, file: str, damaged: Sequence[Storage], *, alone: bool) -> str:
    """Return what to do about a damaged file of the checkpoint at ``path``."""
    original = formats.open_checkpoint(path)
    salvaged = to_salvage(original, os.path.relpath(file, path) if file != path else None)
    if salvaged is not None:
        return f"Recover what is intact: ckptdoctor salvage {quote(salvaged)}"
    rest = without(original, paths_on(original, damaged)) if alone else ""
    if rest:
        return f"Use another copy of it, or write all the others: {rest.replace('FILE', quote(path), 1)}"
    return "Use another copy of it."


def _parts(output: str, wanted: Wanted, recipe: Recipe, sums: Checksums, tallies: list[CopyTally]) -> Iterator[Part]:
    """Yield the files of a container; they are proven together once the last is written."""
    recipes = (recipe, *recipe.beside)
    files: dict[str, str] = {}

    def verified(name: str, path: str) -> None:
        files[name] = path
        if len(files) == len(recipes):
            sums.require()
            tallies.append(prove(files, output, wanted, recipe))

    for each in recipes:
        path = os.path.join(output, each.name) if each.name else output
        yield Part(each, path, lambda path, name=each.name: verified(name, path))  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def _texts(file: tuple[str, bytes] | None, beside: Recipe) -> list[Part]:
    return [] if file is None else [Part(Recipe(beside.source, (Literal(file[1]),)), file[0])]


def examined(path: str) -> tuple[tuple[Finding, ...], NextStep]:
    """Return what check finds in an output, and what to do with it."""
    found = check(path)
    if os.path.isdir(path) or found.checkpoint is None:
        return found.findings, NextStep(Loader.OTHER)
    with formats.opened(path) as (source, container):
        refused = weights_only_refusal(source, container)
    return found.findings, next_step(path, found.checkpoint, found.findings, refused)
