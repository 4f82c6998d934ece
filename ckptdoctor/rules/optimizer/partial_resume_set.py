"""A checkpoint folder of the transformers Trainer lacks files that resuming needs.

Meaning
    ``checkpoint-500/`` holds the model, and optimizer, scheduler, states of random number generators and the trainer's
    own state in separate files. Some of them were not copied, or ``save_only_model`` was set.

Why it matters
    ``resume_from_checkpoint`` loads what there is and starts the rest again, mostly silently: a fresh optimizer and a
    scheduler at step 0 in a training at step 500.

Symptoms
    Nothing, or: Didn't find an RNG file, if you are resuming a training that was launched in a distributed fashion,
    reproducibility is not guaranteed.

Detection
    The names in a folder called ``checkpoint-`` and a number with a ``trainer_state.json`` in it. Where DeepSpeed or
    FSDP keep the optimizer in folders of their own, nothing is reported. Info only.

Repair
    None: copy the missing files from where the training ran.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import Folder, folder_of
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import file_beside

_STATE = b'{"global_step": 500}'
_NET: dict[str, object] = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
_RANK = re.compile(r"rng_state_(\d{1,6})\.pth")
_NAME = re.compile(r"checkpoint-\d+")
_WEIGHTS = re.compile(r"(?:model|pytorch_model|adapter_model)(?:-\d{5}-of-\d{5})?\.(?:safetensors|bin)")
_ELSEWHERE = ("optimizer.bin", "latest", "optimizer_0", "optimizer", "pytorch_model_fsdp_0")
SICK = (
    Example(
        "the model and the trainer's state", name="checkpoint-500",
        files={"pytorch_model.bin": _NET, "trainer_state.json": _STATE},
    ),
    Example(
        "a generator of one process is missing", name="checkpoint-20",
        files={
            "pytorch_model.bin": _NET, "trainer_state.json": _STATE, "optimizer.pt": b"x", "scheduler.pt": b"x",
            "rng_state_0.pth": b"x", "rng_state_2.pth": b"x",
        },
    ),
)  # fmt: skip
HEALTHY = (
    Example("a release", name="release", files={"pytorch_model.bin": _NET, "trainer_state.json": _STATE}),
    Example(
        "all files are there", name="checkpoint-500",
        files={
            "pytorch_model.bin": _NET, "trainer_state.json": _STATE, "optimizer.pt": b"x", "scheduler.pt": b"x",
            "rng_state.pth": b"x",
        },
    ),
)  # fmt: skip


@rule("O761", "partial-resume-set", Severity.INFO, when=file_beside("trainer_state.json"))
def partial_resume_set(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report folders of the Trainer that are not whole."""
    path = os.path.abspath(checkpoint.path) if "://" not in checkpoint.path else ""
    inside = os.path.isdir(path)
    if not _NAME.fullmatch(os.path.basename(path if inside else os.path.dirname(path))):
        return
    folder = folder_of(path)
    if "trainer_state.json" not in folder.names or (folder.name and not _WEIGHTS.fullmatch(folder.name)):
        return
    missing = [*_state_files(folder), *_generators(folder)]
    if missing:
        yield Problem(
            message=f"the folder lacks {wording.listed(missing)}",
            cause="resume_from_checkpoint loads what there is and silently starts the rest again.",
            advice="Copy them from where the training ran, or do not resume: start a new training with these weights.",
        )


def _state_files(folder: Folder) -> list[str]:
    if any(os.path.exists(os.path.join(folder.path, name)) for name in _ELSEWHERE):
        return []
    return [name for name in ("optimizer.pt", "scheduler.pt") if name not in folder.names]


def _generators(folder: Folder) -> list[str]:
    """Return the states of generators that are not there: any at all, or those of processes between others."""
    ranks = {int(match[1]) for name in folder.names if (match := _RANK.fullmatch(name)) is not None}
    if not ranks:
        return [] if "rng_state.pth" in folder.names else ["rng_state.pth"]
    if max(ranks) > 4 * len(ranks) + 16:
        return []
    return [f"rng_state_{rank}.pth" for rank in range(max(ranks)) if rank not in ranks]
