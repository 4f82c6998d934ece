"""Turns the listing of a run into candidates: the files and folders that may be its checkpoints, by their names.

Names are those that libraries give: ``checkpoint-500`` (transformers.trainer_utils.PREFIX_CHECKPOINT_DIR),
``checkpoint_3`` (accelerate's automatic_checkpoint_naming), ``epoch=3-step=400.ckpt`` and ``last.ckpt`` (Lightning's
ModelCheckpoint), ``global_step100`` (DeepSpeed's save_checkpoint), ``iter_0000100`` (Megatron's
get_checkpoint_name), ``step-100`` (torchtitan's CheckpointManager), ``epoch-0003`` (``ckptdoctor train``), and what
scripts call their files. Candidates whose names differ in numbers alone are a series.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from ckptdoctor import formats
from ckptdoctor.errors import CkptDoctorError, MissingFileError, UnreadableError, UsageError
from ckptdoctor.noun import noun, replace
from ckptdoctor.remote.addresses import is_address, shown
from ckptdoctor.remote.entry import Entry
from ckptdoctor.runs.listing import below, entries, entries_unless_file, is_file, read_small
from ckptdoctor.runs.step import Key, Numbers, numbers_in
from ckptdoctor.wording import listed

_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".pth.tar", ".pt.tar", ".tar")

# folders that are checkpoints by their names: a word for it and a number, or what Lightning gives a suffix
_FOLDER = re.compile(
    r"(?:.*[-_.=])?(?:checkpoint|ckpt|chkpt|global_?step|steps?|iter(?:ation)?s?|epochs?|updates?|snapshot|state|save)"
    r"[-_=.]?\d+(?:\D.*)?|.*\.ckpt|checkpoint[-_](?:last|latest|best|final)",
    re.IGNORECASE,
)
# the folders of Lightning's fits, and those that only hold checkpoints: of accelerate and torchtitan, and what scripts
# call them
_VERSION = re.compile(r"version_(\d+)")
_HOLDERS = frozenset(
    {"checkpoint", "checkpoints", "ckpt", "ckpts", "lightning_logs", "snapshots", "saves", "saved_models", "weights"}
)

# files that are parts of a checkpoint, or belong to a run, and are never a checkpoint by themselves
_PARTS = re.compile(
    r"(?:optim|scheduler|scaler|rng_state|random_states|training_args|sampler|dl_state_dict|custom_checkpoint_"
    r"|mp_rank_|zero_pp_rank_|bf16_zero_|fp16_zero_|layer_\d|expert_\d|meta[_.]).*"
    r"|(?:diffusion_pytorch_|adapter_|pytorch_)?model(?:\.fp16)?\.(?:safetensors|bin)"
    r"|.*-\d{5}-of-\d{5}\..*|.*_optim_states\.pt|tokenizer.*",
    re.IGNORECASE,
)
_OPTIMIZER = re.compile(r"optim.*", re.IGNORECASE)

# names that are given to what is still written, with the library that does so where one is known for it
_UNFINISHED = (
    (re.compile(r"tmp-checkpoint-\d+"), "the Trainer was still writing it under this name"),
    (re.compile(r".*\.partial"), "it was still being written under this name"),
    (re.compile(r".*\.replaced"), "another checkpoint was taking its place"),
    (re.compile(r"(?:tmp|temp)[-_.].*", re.IGNORECASE), "it has a temporary name"),
    (re.compile(r".*(?:\.tmp|\.temp|\.incomplete|\.part|\.crdownload|\.filepart|~)(?:[-_.]?\w{0,12})?"),
     "it has a temporary name"),
)  # fmt: skip
_MARKER = "-unfinished"  # NeMo has a file of this name next to a checkpoint that it writes

# what the folder of a single checkpoint has in it, and no folder of a run
_OWN = re.compile(r"trainer_state\.json|\.metadata|.*\.distcp|mp_rank_\d+.*|random_states_\d+\.pkl|.*\.index\.json")
_RUNS = re.compile(r"checkpoint[-_]\d+")

_NOBODYS = "lost+found"  # of the file system, where the run is the top of one
_DEEPEST = 4  # folders below a run that are searched for its checkpoints
_MOST_NAMED = 3


@noun
class Candidate:
    """A file or folder that may be a checkpoint of the run; ``name`` is its path below the run.

    Those of one ``series`` are called alike. ``version`` is the number of Lightning's folder version_N around it.
    ``unfinished`` is why it is not a checkpoint yet, "" where its name does not say so. ``optimizers`` are files next
    to it with the optimizer's state of the same step. ``size`` is that of a file in the listing of its folder.
    """

    path: str
    name: str
    folder: bool
    modified: float
    series: str
    numbers: Numbers
    version: int = 0
    unfinished: str = ""
    optimizers: tuple[str, ...] = ()
    size: int = 0


@noun
class Unlisted:
    """A folder in a run that cannot be listed, and ``why``; ``name`` and ``version`` are as those of a candidate."""

    path: str
    name: str
    version: int
    why: str


def candidates(run: str) -> tuple[Candidate, ...]:
    """Return the candidates of a run in no order; a file, or a folder that is one checkpoint, is its own only one.

    Raises UnreadableError where it cannot be listed, and UsageError where it holds several runs.
    """
    return listed_run(run)[0]


def listed_run(run: str) -> tuple[tuple[Candidate, ...], tuple[Unlisted, ...]]:
    """Return the same, and the folders in the run that cannot be listed. There may be candidates in these.

    Raises UnreadableError, too, where there are none elsewhere.
    """
    found = entries_unless_file(run)
    if found is None:
        return (alone(run, folder=False),), ()
    if is_one(found):
        return (alone(run, folder=True),), ()
    unlisted: list[Unlisted] = []
    groups = _groups(found, unlisted)
    if not groups:
        if is_checkpoint(run):
            return (alone(run, folder=True),), ()
        if unlisted:
            raise UnreadableError(unlisted[0].why)
        return (), ()
    runs = _runs(groups)
    if len(runs) > 1:
        here = [shown(below(run, each)) for each in runs[:_MOST_NAMED]]
        raise UsageError(f"{shown(run)} holds several runs, not one. Name one of them, such as {listed(here)}.")
    return tuple([each for group in groups.values() for each in group]), tuple(unlisted)


def is_one(found: Iterable[Entry]) -> bool:
    """Return whether a folder with these names in it is a single checkpoint, whatever it is called."""
    names = {each.name for each in found}
    return any(map(_OWN.fullmatch, names)) and not any(map(_RUNS.fullmatch, names))


def candidate_at(path: str) -> Candidate:
    """Return what is at a path as a candidate, whatever its name. Raises UnreadableError for an address like that."""
    return alone(path, folder=not is_file(path))


def alone(path: str, *, folder: bool) -> Candidate:
    """Return what is a checkpoint for itself, in no run."""
    name = path.rstrip("/" + os.sep).replace(os.sep, "/").rpartition("/")[2]
    if not is_address(path) and name in ("", ".", ".."):
        name = os.path.basename(os.path.abspath(path))
    return Candidate(path, name, folder, 0.0, name, numbers_in(_stem(name)))


def is_checkpoint(path: str) -> bool:
    """Return whether a folder is one that can be read as a checkpoint."""
    try:
        with formats.opened(f"{path.rstrip('/')}/" if is_address(path) else path) as (_, container):
            return container.readable
    except CkptDoctorError:
        return False


def _runs(groups: Iterable[str]) -> list[str]:
    """Return the runs that folders of checkpoints belong to: without Lightning's version, and what only holds them."""
    found: dict[str, None] = {}
    for group in groups:
        steps = group.split("/") if group else []
        end = next((at for at, step in enumerate(steps) if step in _HOLDERS or _VERSION.fullmatch(step)), len(steps))
        found["/".join(steps[:end])] = None
    return list(found)


def run_of(folder: str) -> str:
    """Return the folder of the run that checkpoints in a folder belong to: what only holds them is left out."""
    steps = folder.split("/")
    while steps and (steps[-1] in _HOLDERS or _VERSION.fullmatch(steps[-1])):
        steps.pop()
    return "/".join(steps)


def _groups(
    found: list[Entry], unlisted: list[Unlisted], prefix: str = "", depth: int = 0
) -> dict[str, list[Candidate]]:
    """Return the candidates by the folder below the run that they are in: those that are met first on each way.

    Folders that only hold checkpoints are looked into in any case, and others where there is nothing above them.
    """
    group = in_folder(found, prefix)
    groups = {prefix.rstrip("/"): group} if group else {}
    if depth == _DEEPEST:
        return groups
    inner = [each for each in found if each.folder and not each.name.startswith(".") and each.name != _NOBODYS]
    for each in [each for each in inner if each.name in _HOLDERS]:
        groups |= _inside(each, unlisted, prefix, depth)
    if not groups:
        for each in sorted(inner, key=lambda entry: entry.name):
            groups |= _inside(each, unlisted, prefix, depth)
            if len(_runs(groups)) > _MOST_NAMED:  # more are not asked for
                break
    return groups


def _inside(folder: Entry, unlisted: list[Unlisted], prefix: str, depth: int) -> dict[str, list[Candidate]]:
    name = f"{prefix}{folder.name}"
    try:
        return _groups(entries(folder.path), unlisted, f"{name}/", depth + 1)
    except MissingFileError:  # removed meanwhile
        return {}
    except UnreadableError as error:
        unlisted.append(Unlisted(folder.path, name, _version_of(name), error.message))
        return {}


def _version_of(way: str) -> int:
    """Return the number of Lightning's folder version_N on the way below a run; 0 where there is none."""
    return next((int(match[1]) for step in way.split("/") if (match := _VERSION.fullmatch(step))), 0)


def in_folder(found: list[Entry], prefix: str) -> list[Candidate]:
    """Return the candidates among what is directly in a folder, which is ``prefix`` below its run ("" or "a/b/")."""
    version = _version_of(prefix)
    writing = {each.name.removesuffix(_MARKER) for each in found if each.name.endswith(_MARKER)}
    optimizers: dict[Key, list[str]] = {}
    for each in found:
        if not each.folder and _OPTIMIZER.fullmatch(each.name) and each.name.endswith(_SUFFIXES):
            optimizers.setdefault(_without_rank(each.name).key, []).append(each.path)
    made = []
    for each in found:
        if each.name.startswith(".") or each.name.endswith(_MARKER):
            continue
        unfinished = "it is marked as unfinished" if each.name in writing else _unfinished(each.name)
        if not _is_candidate(each, unfinished != ""):
            continue
        stem = _stem(each.name)
        numbers = numbers_in(stem)
        beside = tuple(sorted(optimizers.get(numbers.key, ()))) if numbers.any and not each.folder else ()
        series = f"{prefix}{numbers.template}{each.name[len(stem) :]}"
        name = f"{prefix}{each.name}"
        made.append(
            Candidate(
                each.path,
                name,
                each.folder,
                each.modified,
                series,
                numbers,
                version=version,
                unfinished=unfinished,
                optimizers=beside,
                size=each.size,
            )
        )
    return _tracked(found, made)


def _without_rank(name: str) -> Numbers:
    return numbers_in(re.sub(r"[-_]?rank[-_]?\d+", "", _stem(name)))


def _is_candidate(entry: Entry, unfinished: bool) -> bool:
    if entry.folder:
        return _FOLDER.fullmatch(entry.name) is not None
    if unfinished:
        return any(suffix in entry.name for suffix in _SUFFIXES) and not is_part(entry.name)
    return entry.name.lower().endswith(_SUFFIXES) and not is_part(entry.name)


def is_part(name: str) -> bool:
    """Return whether files of this name are parts of a checkpoint, or belong to a run, and never are one themselves."""
    return _PARTS.fullmatch(name) is not None


def _unfinished(name: str) -> str:
    return next((why for pattern, why in _UNFINISHED if pattern.fullmatch(name)), "")


def _stem(name: str) -> str:
    """Return a name without the suffixes of a checkpoint."""
    while True:
        shorter = next((name[: -len(each)] for each in _SUFFIXES if name.lower().endswith(each)), name)
        if shorter == name or not shorter:
            return name
        name = shorter


# ---- what libraries write next to checkpoints when one of them is complete


# the file of a run, how the folder of a checkpoint is called, and who writes the file after all ranks are done
_TRACKERS = (
    ("latest_checkpointed_iteration.txt", re.compile(r"iter_(\d+)"), "Megatron"),
    ("latest", re.compile(r"global_step(\d+)"), "DeepSpeed"),
)


def _tracked(found: list[Entry], made: list[Candidate]) -> list[Candidate]:
    """Return the candidates, those as unfinished that came after the one that their library calls the last one.

    DeepSpeed and Megatron write the name of a checkpoint into a file of the run when every rank has written its part.
    """
    for tracker, pattern, library, said in _said_by_trackers(found):
        last = pattern.fullmatch(said) or re.fullmatch(r"(\d+)", said)
        if last is None or not any(_number(each, pattern) == int(last[1]) for each in made):
            continue
        why = f"{library} did not finish it: {tracker.name} still names {said}"
        made = [
            replace(each, unfinished=each.unfinished or why) if _number(each, pattern) > int(last[1]) else each
            for each in made
        ]
    return made


def _said_by_trackers(found: list[Entry]) -> Iterator[tuple[Entry, re.Pattern[str], str, str]]:
    for name, pattern, library in _TRACKERS:
        tracker = next((each for each in found if each.name == name and not each.folder), None)
        if tracker is None:
            continue
        try:
            yield tracker, pattern, library, read_small(tracker.path)[:256].decode("utf-8", "replace").strip()
        except CkptDoctorError:
            continue


def named_last(found: list[Entry], made: Iterable[Candidate]) -> list[tuple[Entry, Candidate]]:
    """Return the files that name the last checkpoint of a run, each with the one that it names."""
    return [
        (tracker, each)
        for tracker, pattern, _, said in _said_by_trackers(found)
        if (last := pattern.fullmatch(said) or re.fullmatch(r"(\d+)", said)) is not None
        for each in made
        if _number(each, pattern) == int(last[1])
    ]


def _number(candidate: Candidate, pattern: re.Pattern[str]) -> int:
    match = pattern.fullmatch(candidate.name.rpartition("/")[2]) if candidate.folder else None
    return int(match[1]) if match is not None else -1
