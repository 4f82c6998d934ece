"""Knows what each library puts into the folder of a checkpoint: which parts are read, and which files resuming needs.

Source: ``Trainer._save_checkpoint`` of transformers 5.23, which writes trainer_state.json last;
``accelerate.checkpointing.save_accelerator_state``, which writes random_states_0.pkl last;
``DeepSpeedEngine._get_ckpt_name``; ``megatron.training.checkpointing.get_checkpoint_name``;
``torch.distributed.checkpoint.FileSystemWriter.finish``, which writes .metadata last.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from enum import Enum

from ckptdoctor.checkpoint import Checkpoint, FileSource, Mapping, Node, Opaque
from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.noun import noun
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.runs.grouping import Candidate
from ckptdoctor.runs.listing import below, entries, read_json
from ckptdoctor.wording import plural


class Kind(Enum):
    """Who wrote a checkpoint, as far as that decides what belongs to it."""

    FILE = "a file"
    FOLDER = "a folder of weights"
    TRAINER = "transformers' Trainer"
    ACCELERATE = "accelerate"
    DEEPSPEED = "DeepSpeed"
    MEGATRON = "Megatron"
    DISTRIBUTED = "torch.distributed.checkpoint"
    OURS = "ckptdoctor train"


# kinds that save all that they need, or say that it is missing
COMPLETE = frozenset({Kind.TRAINER, Kind.ACCELERATE, Kind.DEEPSPEED, Kind.MEGATRON, Kind.OURS})

_RNG = re.compile(r"(?:rng_state|random_states)_(\d{1,6})\.(?:pth|pkl)")
_MODEL_STATES = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_ZERO_STATES = re.compile(r"(?:\w*)zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")
_OPTIM_STATES = re.compile(r"\w*zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_MEGATRON_RANK = re.compile(r"mp_rank_(\d{2,3})(?:_(\d{3}))?(?:_\d{3})?/")
# folders in the folder of a checkpoint that are checkpoints of their own: of FSDP, of DeepSpeed, of NeMo
_INNER = re.compile(r"pytorch_model_fsdp_\d+/|optimizer_\d+/|global_step\d+/|pytorch_model(?:_\d+)?/|weights/")
_MODELS = ("model_optim_rng.pt", "model_rng.pt")
_WEIGHTS = re.compile(
    r"(?:diffusion_pytorch_|adapter_|pytorch_)?model(?:-\d+-of-\d+)?\.(?:safetensors|bin)(?:\.index\.json)?"
)


@noun
class Parts:
    """What a candidate is made of: ``names`` in its folder, those in folders with a slash; ``paths`` to be examined.

    ``inner`` are the names of folders in it that are checkpoints of their own. ``unfinished`` is why it is not
    complete yet, or "". ``optimizer``: a file of its own has the state of the optimizer.
    """

    kind: Kind
    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    unfinished: str = ""
    optimizer: bool = False


def parts_of(candidate: Candidate) -> Parts:
    """Return what a candidate is made of, by the names in its folder. Raises UnreadableError."""
    path = candidate.path
    if not candidate.folder:
        return Parts(Kind.FILE, paths=(path,))
    found = entries(path)
    names = frozenset([f"{each.name}/" if each.folder else each.name for each in found])
    kind = kind_of(names)
    unfinished = _unfinished(kind, names)
    if not unfinished and kind is Kind.FOLDER and _is_of_trainer(path):
        unfinished = _NO_STATE
    if unfinished:
        return Parts(kind, names, unfinished=unfinished)
    if kind is Kind.OURS:
        return Parts(kind, names, (below(path, "training.pt"),), optimizer=True)
    inner = _inner(path, kind, names)
    if kind in (Kind.TRAINER, Kind.ACCELERATE) and not inner and not has_weights(names):
        return Parts(kind, names, unfinished="its weights are missing")
    own = kind is not Kind.FOLDER or has_weights(names) or not inner
    paths = [path] if own and not (kind is Kind.TRAINER and inner and not _read_here(names)) else []
    paths += [below(path, each.rstrip("/")) for each in inner]
    optimizer = any(each.startswith(("optimizer", "global_step")) for each in names)
    if kind is Kind.MEGATRON:  # the distributed optimizer has a file of its own in the folder of each rank
        rank = next(each for each in sorted(names) if _MEGATRON_RANK.fullmatch(each))
        optimizer = any("optim" in each.name and each.name not in _MODELS for each in entries(below(path, rank[:-1])))
    return Parts(kind, names, tuple([_as_folder(each) for each in paths]), inner, optimizer=optimizer)


def _inner(path: str, kind: Kind, names: frozenset[str]) -> tuple[str, ...]:
    """Return the folders in a folder that are checkpoints of their own."""
    found = tuple(sorted(each for each in names if _INNER.fullmatch(each) and kind is not Kind.DEEPSPEED))
    if found or kind is not Kind.ACCELERATE or has_weights(names):
        return found
    # scripts of diffusers save each network into a folder, such as unet, by a hook of accelerate's
    folders = sorted(each for each in names if each.endswith("/"))
    return tuple([each for each in folders if any(_WEIGHTS.fullmatch(e.name) for e in entries(below(path, each[:-1])))])


def _as_folder(path: str) -> str:
    return f"{path.rstrip('/')}/" if is_address(path) else path


def belongs(name: str) -> bool:
    """Return whether a folder of this name, in the folder of a checkpoint, is a part of it."""
    return any(each.fullmatch(f"{name}/") for each in (_INNER, _MEGATRON_RANK))


def has_weights(names: Iterable[str]) -> bool:
    """Return whether one of these files is called as libraries call weights."""
    return any(map(_WEIGHTS.fullmatch, names))


def _read_here(names: frozenset[str]) -> bool:
    """Return whether the folder of a Trainer has files of its own to read, next to folders of FSDP or DeepSpeed."""
    read = ("optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state.pth")
    return any(each in names for each in read) or any(
        _WEIGHTS.fullmatch(each) or _RNG.fullmatch(each) for each in names
    )


def kind_of(names: frozenset[str]) -> Kind:
    """Return who wrote a folder with these names in it; those of folders end in a slash."""
    if {"training.pt", "truth.json"} <= names:
        return Kind.OURS
    if "trainer_state.json" in names:
        return Kind.TRAINER
    if any(each.startswith("random_states_") for each in names):
        return Kind.ACCELERATE
    if any(_MODEL_STATES.fullmatch(each) or _ZERO_STATES.fullmatch(each) for each in names):
        return Kind.DEEPSPEED
    if any(map(_MEGATRON_RANK.fullmatch, names)):
        return Kind.MEGATRON
    if ".metadata" in names or any(each.endswith(".distcp") for each in names):
        return Kind.DISTRIBUTED
    return Kind.FOLDER


def _unfinished(kind: Kind, names: frozenset[str]) -> str:
    """Return why a folder is not complete yet, by the file that its library writes last."""
    if not names:
        return "the folder is empty"
    if kind is Kind.DISTRIBUTED and ".metadata" not in names:
        return ".metadata is missing, which is written last"
    if kind is Kind.FOLDER and "training_args.bin" in names:
        return _NO_STATE
    if kind is Kind.FOLDER and "optimizer.bin" in names:
        return "random_states_0.pkl is missing, which accelerate writes last"
    if "training.pt" in names and "truth.json" not in names:
        return "truth.json is missing, which is written last"
    return ""


_NO_STATE = "trainer_state.json is missing, which the Trainer writes last"
_TRAINERS = re.compile(r"checkpoint-(\d{1,18})")
_ASKED = 3  # checkpoints before one that are asked: what save_pretrained makes is called so as well, in any number


def _is_of_trainer(path: str) -> bool:
    """Return whether the Trainer wrote the checkpoints before one in its run, whose files do not show who wrote it.

    Its weights come first, and a Trainer that was killed after them has left nothing else of its own.
    """
    folder, _, name = path.rstrip("/" + os.sep).replace(os.sep, "/").rpartition("/")
    own = _TRAINERS.fullmatch(name)
    if own is None:
        return False
    try:
        found = [(int(match[1]), each) for each in entries(folder or ".") if (match := _TRAINERS.fullmatch(each.name))]
        before = sorted([(step, each.path) for step, each in found if each.folder and step < int(own[1])], reverse=True)
        return any(each.name == "trainer_state.json" for _, one in before[:_ASKED] for each in entries(one))
    except UnreadableError:  # nobody but its owner may look around it
        return False


# ---- V0: the files of every rank


def missing_ranks(parts: Parts, checkpoints: Sequence[Checkpoint]) -> str:
    """Return which ranks have no files, as far as the contents say how many there were; "" where all are there."""
    if parts.kind is Kind.MEGATRON:
        return _megatron_ranks(parts.names, checkpoints)
    if parts.kind is Kind.DEEPSPEED:
        return _deepspeed_ranks(parts.names, checkpoints)
    return ""


def _megatron_ranks(names: frozenset[str], checkpoints: Sequence[Checkpoint]) -> str:
    ranks = {(int(match[1]), int(match[2] or 0)) for name in names if (match := _MEGATRON_RANK.fullmatch(name))}
    sizes = [max(each) + 1 for each in zip(*ranks, strict=True)]
    for checkpoint in checkpoints:
        for each in _states(checkpoint.tree):
            options = _entries(each.get("args"))
            said = [options.get(f"{way}_model_parallel_size") for way in ("tensor", "pipeline")]
            sizes = [
                max(size, number) if type(number) is int else size for size, number in zip(sizes, said, strict=True)
            ]
    return _lacking("rank", len(ranks), sizes[0] * sizes[1])


def _deepspeed_ranks(names: frozenset[str], checkpoints: Sequence[Checkpoint]) -> str:
    parallel = data = 0
    for checkpoint in checkpoints:
        for each in _states(checkpoint.tree):
            for name in ("mp_world_size", "dp_world_size"):
                number = each.get(name)
                if type(number) is int and name == "mp_world_size":
                    parallel = max(parallel, number)
                elif type(number) is int:
                    data = max(data, number)
    models = {int(match[1]) for name in names if (match := _MODEL_STATES.fullmatch(name))}
    zero = {(int(match[1]), int(match[2])) for name in names if (match := _ZERO_STATES.fullmatch(name))}
    optimizers = {(int(match[1]), int(match[2])) for name in names if (match := _OPTIM_STATES.fullmatch(name))}
    return (
        (_lacking("model-parallel rank", len(models), max(parallel, max(models) + 1)) if models else "")
        or (_lacking("rank", len(zero), max(parallel, 1) * data) if zero else "")
        or (_lacking("rank", len(optimizers), max(parallel, 1) * data) if optimizers else "")
    )


def _lacking(what: str, there: int, all_of_them: int) -> str:
    gone = all_of_them - there
    if gone <= 0:
        return ""
    return f"the files of {gone:,} of {plural(all_of_them, what)} are missing"


def _states(tree: Node) -> Iterable[dict[str, Node]]:
    """Return what the file of each rank holds at its top."""
    top = _entries(tree)
    return [top, *[_entries(node) for node in top.values() if isinstance(node, Mapping)]]


def _entries(node: Node) -> dict[str, Node]:
    if isinstance(node, Opaque):  # argparse.Namespace
        node = node.state
    return {part: each for part, each in node.entries if isinstance(part, str)} if isinstance(node, Mapping) else {}


# ---- V1: hashes that a library noted itself


def unlike_their_hashes(candidate: Candidate, parts: Parts) -> str:
    """Return which file of ``ckptdoctor train`` does not have the SHA-256 that truth.json names; "" where all do."""
    if parts.kind is not Kind.OURS or is_address(candidate.path):
        return ""
    truth = read_json(below(candidate.path, "truth.json")) or {}
    files = truth.get("files")
    if not isinstance(files, dict) or "training.pt" not in files:
        return "truth.json is damaged"
    for name, said in files.items():
        digest = said.get("sha256") if isinstance(said, dict) else None
        if digest is None or os.sep in name:
            continue
        if _sha256(below(candidate.path, name)) != digest:
            return f"{name} does not have the hash that truth.json names"
    return ""


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with FileSource(path) as source:
            for at in range(0, source.size, 4 << 20):
                digest.update(source.read(at, min(4 << 20, source.size - at)))
    except CkptDoctorError:
        return ""
    return digest.hexdigest()


# ---- V3: the files that resuming reads


# for each kind what resuming needs: any of these names, and what is said to be missing otherwise
_NEEDED: dict[Kind, tuple[tuple[re.Pattern[str], str], ...]] = {
    Kind.TRAINER: (
        (
            re.compile(r"optimizer\.(?:pt|bin)|optimizer(?:_\d+)?/|global_step\d+/|pytorch_model_fsdp_\d+/"),
            "optimizer.pt",
        ),
        (re.compile(r"scheduler\.pt|global_step\d+/"), "scheduler.pt"),
        (re.compile(r"rng_state(?:_\d+)?\.pth"), "rng_state.pth"),
    ),
    Kind.ACCELERATE: (
        (re.compile(r"optimizer(?:_\d+)?\.bin|optimizer(?:_\d+)?/|pytorch_model(?:_\d+)?/"), "optimizer.bin"),
    ),
    Kind.DEEPSPEED: ((re.compile(r".*_optim_states\.pt|mp_rank_\d+_model_states\.pt"), "its *_optim_states.pt"),),
}


def missing_files(parts: Parts) -> list[str]:
    """Return the files that resuming needs and that are not there, and those of ranks between others."""
    found = [
        name
        for pattern, name in _NEEDED.get(parts.kind, ())
        if not any(pattern.fullmatch(each) for each in parts.names)
    ]
    if parts.kind in (Kind.TRAINER, Kind.ACCELERATE):
        ranks = {int(match[1]): match for name in parts.names if (match := _RNG.fullmatch(name))}
        stem, suffix = ("rng_state", "pth") if parts.kind is Kind.TRAINER else ("random_states", "pkl")
        if ranks and max(ranks) <= 4 * len(ranks) + 16:
            found += [f"{stem}_{rank}.{suffix}" for rank in range(max(ranks)) if rank not in ranks]
    return found
