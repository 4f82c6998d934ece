"""Heals the damaged files of a folder of shards with those of another copy of it, each completely or not at all.

All files are examined before anything is decided: how far the two copies agree is a matter of all of them, so a shard
of which nothing is left can be vouched for by the others. A file that is missing, or whose headers are damaged, has no
tensors to heal. It is taken as a whole where its SHA-256 is the sealed one, or where the two folders agree in all other
tensors and in what the index says of this file.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from time import perf_counter
from typing import Union

from ckptdoctor.checkpoint import FileSource, FolderSource, NoteKind, show_path
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.checkpoint.progress import Progress, follow, phase
from ckptdoctor.edits.grafts import FolderGraftReport, Ground, Likeness, Shard, ShardState
from ckptdoctor.errors import DamagedError, NotACheckpointError, RefusedError, UnreadableError, UsageError, WriteError
from ckptdoctor.examine.promised_checksums import digest_of
from ckptdoctor.formats.folders.weights import weights_in
from ckptdoctor.formats.suffixes import SAFETENSORS, TORCH_OUTPUTS
from ckptdoctor.grafting.heal import Plan, Seen, examine, settled
from ckptdoctor.grafting.published import proven
from ckptdoctor.grafting.request import GraftRequest
from ckptdoctor.noun import replace
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.sealing.manifest import SealedFile, entries_of, read_seal, seal_beside
from ckptdoctor.wording import first_few, listed
from ckptdoctor.writing import Copy, Part, Recipe, publish_together
from ckptdoctor.writing.folder import publish_folder

Event = Union[Progress, FolderGraftReport]
_SUFFIXES = (*SAFETENSORS, *TORCH_OUTPUTS)
_NAMED = 5  # files that a refusal names


def graft_folder(request: GraftRequest) -> FolderGraftReport:
    """Write the folder again with its damaged files healed; see ``grafting_folder``."""
    return follow(grafting_folder(request), lambda event: None)


def grafting_folder(request: GraftRequest) -> Generator[Event, None, FolderGraftReport]:
    """Say how far it is, what will be done before it is, and in the end what was.

    The output (None: ``FOLDER.grafted``) is a new folder with all files of the damaged one; with ``force`` it may be
    the damaged one itself, of which only the damaged files are replaced. Raises UsageError, UnreadableError and
    WriteError, and RefusedError where something is damaged and nothing of it can be healed.
    """
    started = perf_counter()
    donor = _require_folders(request)
    with ExitStack() as stack:
        seen: dict[str, Seen] = {}
        broken: dict[str, str] = {}
        likenesses = []
        names = _shards(request.path)
        for name in names:
            files = ExitStack()
            stack.enter_context(files)
            try:
                one = yield from examine(files, _of_one(request, name, donor))
            except (RefusedError, NotACheckpointError, DamagedError, UnreadableError) as error:
                broken[name] = _unread(os.path.join(request.path, name)) or error.message.split("\n")[0]
                continue
            likenesses.append(one.likeness)
            if one.choice.wanted:
                seen[name] = one
            else:
                files.close()  # nothing is wrong with it, and a folder may have more files than can be open
        likeness = _altogether(likenesses)
        plans: dict[str, Plan] = {}
        shards = []
        for name in names:
            shard = Shard(name, ShardState.STAYS if name in broken else ShardState.INTACT, broken.get(name, ""))
            if name in seen:
                shard, plan = yield from _healed(name, seen[name], likeness)
                if plan is not None:
                    plans[name] = plan
            if shard.state is ShardState.STAYS:
                shard = yield from _as_a_whole(shard, request, donor, likeness)
            shards.append(shard)
        report = _report(request, donor, tuple(shards), likeness)
        yield report
        if report.output is None or request.dry:
            return report
        parts = list(_parts(report, plans))
        if report.replaces_original:
            publish_together(parts, force=True)
        else:
            publish_folder(parts, report.output, force=request.force, identity=None)
        return replace(report, written=True, seconds=perf_counter() - started)


def _require_folders(request: GraftRequest) -> str:
    donor = request.donor
    if donor is None:
        raise UsageError(f"{request.path} is a folder: name the other copy of it with --from, or a damaged file in it.")
    if request.keys or request.root is not None or request.from_root is not None:
        raise UsageError(f"{request.path} is a folder. --key, --root and --from-root are about one file: name it.")
    if is_address(donor) or not os.path.isdir(donor):
        raise UsageError(f"{request.path} is a folder, so --from has to be a folder on this machine; {donor} is not.")
    return donor


def _of_one(request: GraftRequest, name: str, donor: str) -> GraftRequest:
    """Return the request for one file: the other copy is the file of its name, or else all of the other folder."""
    its = os.path.join(donor, name)
    return replace(
        request, path=os.path.join(request.path, name), donor=its if os.path.lexists(its) else donor, output=None
    )


# ---- which files there are, or should be


def _shards(path: str) -> list[str]:
    """Return the files with tensors directly in a folder, and those that its index, numbers or seal say are missing."""
    with closing(FolderSource(path)) as folder:
        weights = weights_in(folder)
        names = {name for name in folder.names if name.lower().endswith(_SUFFIXES)}
    if weights is not None:
        names.update(weights.files, weights.shards.missing if weights.shards is not None else ())
    names.update([file.name for file in _sealed(path) if file.name.lower().endswith(_SUFFIXES)])
    found = sorted(name for name in names if os.path.basename(name) == name)
    if not found:
        raise UsageError(f"{path} has no PyTorch or safetensors files directly in it. Name the folder that has them.")
    return found


def _sealed(path: str) -> tuple[SealedFile, ...]:
    where = seal_beside(path)
    with suppress(DamagedError, UnreadableError):  # most folders have none; verify says what is wrong with one
        return read_seal(where).files
    return ()


# ---- what becomes of each


def _altogether(likenesses: Iterable[Likeness]) -> Likeness:
    """Return how far the folders agree in all files."""
    every = list(likenesses)
    return Likeness(
        sum(each.equal for each in every),
        tuple([path for each in every for path in each.unlike]),
        sum(each.others for each in every),
        sum(each.alone for each in every),
    )


def _healed(name: str, seen: Seen, likeness: Likeness) -> Generator[Progress, None, tuple[Shard, Plan | None]]:
    """Heal all damaged tensors of a file, or none."""
    try:
        plan = yield from settled(seen, likeness)
    except RefusedError as error:
        cut = any(note.kind is NoteKind.TRUNCATED for note in seen.mine.checkpoint.notes)
        why = "it is cut off" if cut else " ".join(error.message.split())
        return Shard(name, ShardState.STAYS, why), None
    if plan.report.left:
        first = plan.report.left[0]
        why = f"{show_path(first.path)} {first.trouble}, and {first.why}"
        return Shard(name, ShardState.STAYS, why), None
    if not plan.report.changes:
        return Shard(name, ShardState.INTACT), None
    if not plan.report.published and any(entries_of(seen.request.path)):
        whole = yield from proven(plan.recipe, seen.mine.source, None, None)
        if not whole.by:
            why = f"with the tensors of {plan.report.donor} it does not have {listed(whole.asked)}"
            return Shard(name, ShardState.STAYS, why), None
        plan = replace(plan, report=replace(plan.report, published=whole.by))
    return Shard(name, ShardState.HEALED, graft=plan.report), plan


def _unread(path: str) -> str:
    """Return what is wrong with a file of which nothing can be read, in words that follow its name; "" if unknown."""
    if not os.path.lexists(path):
        return "it is missing"
    with suppress(OSError):  # the error that it was opened with is told instead
        if os.path.getsize(path) == 0:
            return "it is empty"
    return ""


def _as_a_whole(
    shard: Shard, request: GraftRequest, donor: str, likeness: Likeness
) -> Generator[Progress, None, Shard]:
    """Take the other copy's file where it is proven to be the one that was lost, and leave it otherwise."""
    path, its = os.path.join(request.path, shard.name), os.path.join(donor, shard.name)
    if not os.path.isfile(its):
        return replace(shard, why=f"{shard.why}; {donor} has no such file")
    digests = {file.digest: where for where, _, file in entries_of(path)}
    if digests:
        with closing(FileSource(its)) as source, phase("hashing", source.size) as work:
            digest = digest_of(source, "sha256", work)
        if digest not in digests:
            return replace(shard, why=f"{shard.why}; {its} does not have the SHA-256 of the seal")
        return replace(shard, state=ShardState.REPLACED, ground=Ground.PUBLISHED, by=digests[digest])
    reason = yield from _doubt(shard.name, request.path, its, likeness)
    if reason:
        return replace(shard, why=f"{shard.why}; {reason}")
    return replace(shard, state=ShardState.REPLACED, ground=Ground.COPIES)


def _doubt(name: str, path: str, its: str, likeness: Likeness) -> Generator[Progress, None, str]:
    """Return why nothing proves that a file of the other copy is the one that was lost; "" where something does."""
    with closing(FolderSource(path)) as folder:
        weights = weights_in(folder)
    if weights is None or weights.index is None:
        return "no seal and no index shows what was in it"
    if not likeness.alike:
        return "nothing shows that both folders are copies of one save"
    wanted = {key for key, file in weights.index.weight_map.items() if file == name}
    with ExitStack() as stack:
        try:
            seen = yield from examine(stack, GraftRequest(its))
        except (RefusedError, NotACheckpointError, DamagedError, UnreadableError) as error:
            return error.message.split("\n")[0]
        if seen.choice.wanted:
            return f"{its} is damaged as well"
        if {each.path for each in seen.mine.checkpoint.tensors} != {(key,) for key in wanted}:
            return f"the tensors of {its} are not those that the index names"
    return ""


def _report(request: GraftRequest, donor: str, shards: tuple[Shard, ...], likeness: Likeness) -> FolderGraftReport:
    """Return what will be done. Raises RefusedError where all that is damaged stays so."""
    report = FolderGraftReport(request.path, donor, None, shards, likeness)
    if not report.changed:
        if report.left:
            stays = [f"  {each.name}: {each.why}" for each in report.left]
            raise RefusedError("\n".join([f"{request.path}: nothing can be healed:", *first_few(stays, _NAMED)]))
        return report
    output = request.output or f"{stem_of(request.path)}.grafted"
    own = os.path.realpath(output) == os.path.realpath(request.path)
    if own and not request.force:
        raise WriteError(f"{output} is the original itself; give another folder, or replace its files with --force.")
    with closing(FolderSource(request.path)) as folder:
        below = () if own else tuple([name for name in folder.names if name.endswith("/")])
    return replace(report, output=output, folders=below, replaces_original=own)


# ---- written


def _parts(report: FolderGraftReport, plans: Mapping[str, Plan]) -> Iterator[Part]:
    """Yield the files of the output: those that change, and in a new folder all others as they are."""
    assert report.output is not None
    changed = {each.name: each for each in report.changed}
    with closing(FolderSource(report.path)) as folder:
        names = {name for name in folder.names if not name.endswith("/")}
    for name in sorted(changed if report.replaces_original else names | changed.keys()):
        output = os.path.join(report.output, name)
        if name in plans:
            yield replace(plans[name].part, output=output)
        else:
            file = os.path.join(report.donor if name in changed else report.path, name)
            yield Part(Recipe(file, (Copy(0, os.path.getsize(file)),)), output, None)
