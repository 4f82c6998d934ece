"""Going on from a checkpoint, on the same number of ranks or on another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ckptdoctor.errors import DamagedError, NotACheckpointError, UnreadableError, UsageError
from ckptdoctor.loading import load
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import seeding
from ckptdoctor.trainer.snapshot.folders import TRAINING, TRUTH, Position
from ckptdoctor.trainer.snapshot.training import KEYS, as_averaged_model
from ckptdoctor.trainer.snapshot.truth import sha256_of
from ckptdoctor.trainer.strategies.strategy import Strategy
from ckptdoctor.trainer.team import Team

# what must be as it was, or it would be another run: the model, and the order of what it sees
_SAME = ("network", "width", "dtype", "data", "images", "batch_size", "seed", "optimizer")


def read(folder: Path) -> dict[str, Any]:
    """Return the contents of ``training.pt`` in a checkpoint folder. Nothing in it is run, and it is on the CPU.

    Raises UnreadableError, and DamagedError when it is not, to the byte, what was written. An older checkpoint is not
    taken in its place unasked: the run would silently lose what came after.
    """
    path = folder / TRAINING
    if _digest(path) != _noted_digest(folder):
        raise _damaged(folder, f"the bytes of {TRAINING} are not those that were written ({TRUTH} has their checksum)")
    try:
        saved = load(path)
    except (DamagedError, NotACheckpointError) as error:
        raise _damaged(folder, error.message.rstrip(".")) from error
    if not isinstance(saved, Mapping) or any(key not in saved for key in KEYS):
        raise _damaged(folder, f"{TRAINING} has unexpected contents")
    return dict(saved)


def require_same_run(saved: Mapping[str, Any], config: RunConfig) -> None:
    """Raise UsageError where the checkpoint is of another run. Strategy and number of ranks may differ."""
    for name in _SAME:
        then, now = saved["config"].get(name), getattr(config, name)
        if then != now:
            option = "--" + name.replace("_", "-") if name != "network" else "network"
            raise UsageError(
                f"The checkpoint in {config.out} was made with {option} {then}, and this run has {now}: "
                f"continue with {then}, or start another run with another --out."
            )


def restore(saved: Mapping[str, Any], strategy: Strategy, team: Team, config: RunConfig) -> Position:
    """Put a run back where it was, and say where that is. Collective."""
    require_same_run(saved, config)
    average = None if saved["ema"] is None else as_averaged_model(copied(saved["ema"]))
    strategy.load(copied(saved["state_dict"]), copied(saved["optimizer"]), average)
    if strategy.scaler is not None and saved["scaler"]:
        strategy.scaler.load_state_dict(dict(saved["scaler"]))
    seeding.restore(saved["rng"], team, strategy.devices, config.seed, saved["epoch"])
    return Position(saved["epoch"], saved["step"], saved["best_accuracy"])


def copied(value: Any) -> Any:
    """Return the same with tensors of its own.

    What was loaded is a map of the file, which may be removed while we train.
    """
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return value


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise UnreadableError(f"The checkpoint {path} cannot be read: {error.strerror}.") from error


def _noted_digest(folder: Path) -> str:
    try:
        noted = json.loads((folder / TRUTH).read_text(encoding="utf-8"))
        return str(noted["files"][TRAINING]["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"{TRUTH} has changed since it was written") from error


def _damaged(folder: Path, reason: str) -> DamagedError:
    return DamagedError(
        f"The checkpoint {folder} is damaged: {reason}. Remove that folder to resume from the previous checkpoint."
    )
