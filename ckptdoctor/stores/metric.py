"""Finds out how good a checkpoint is, as far as somebody wrote that down: its library, or whoever named it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from ckptdoctor.checkpoint import Checkpoint, Mapping
from ckptdoctor.runs.kinds import Kind
from ckptdoctor.runs.listing import below, read_json
from ckptdoctor.runs.step import scalar
from ckptdoctor.runs.validity import Examined

_LOWER = ("loss", "error", "perplexity", "ppl", "wer", "cer", "fid", "mse", "mae", "rmse", "nll", "bpb")
_HIGHER = (
    "acc",
    "accuracy",
    "f1",
    "auc",
    "map",
    "iou",
    "miou",
    "bleu",
    "rouge",
    "psnr",
    "ssim",
    "dice",
    "score",
    "top1",
)
_IN_NAME = re.compile(
    r"(?:^|[-_.=/])((?:[A-Za-z]\w*[-_/])?(?:" + "|".join(_LOWER + _HIGHER) + r"))[-_= ]?(-?\d+\.\d+(?:e[-+]?\d+)?)",
    re.IGNORECASE,
)


def metric_of(found: Examined) -> tuple[float | None, str, str, str]:
    """Return a number that says how good a checkpoint is, its name, where it was read, and min or max."""
    if found.parts.kind is Kind.TRAINER:
        said = _of_trainer(read_json(below(found.candidate.path, "trainer_state.json")) or {})
        if said is not None:
            return said
    for each in found.checkpoints:
        for options in callbacks_of(each):
            score, monitor = scalar(options.get("current_score")), options.get("monitor")
            if score is not None and isinstance(monitor, str):
                return score, monitor, "ModelCheckpoint", _mode(monitor)
    match = _IN_NAME.search(os.path.basename(found.candidate.name))
    return (float(match[2]), match[1], "its name", _mode(match[1])) if match is not None else (None, "", "", "")


def _of_trainer(state: dict[str, Any]) -> tuple[float, str, str, str] | None:
    """Return the last evaluation that the Trainer logged up to this step."""
    history = state.get("log_history")
    best = state.get("best_metric")
    for entry in reversed(history if isinstance(history, list) else []):
        scores = _scores(entry)
        if not scores:
            continue
        chosen = next((name for name, value in scores.items() if value == best), "")
        name = chosen or ("eval_loss" if "eval_loss" in scores else min(scores))
        return float(scores[name]), name, "trainer_state.json", _mode(name)
    return None


def _scores(entry: object) -> dict[str, float]:
    if not isinstance(entry, dict):
        return {}
    speeds = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time")
    return {
        name: value
        for name, value in entry.items()
        if name.startswith("eval_") and name not in speeds and isinstance(value, (int, float))
    }


def _mode(name: str) -> str:
    words = re.split(r"[^a-z0-9]+", name.lower())
    return "min" if any(each in _LOWER for each in words) else "max" if any(each in _HIGHER for each in words) else ""


def callbacks_of(checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    """Yield what Lightning's ModelCheckpoint keeps of itself."""
    top = dict(checkpoint.tree.entries) if isinstance(checkpoint.tree, Mapping) else {}
    callbacks = top.get("callbacks")
    for name, node in callbacks.entries if isinstance(callbacks, Mapping) else ():
        if isinstance(name, str) and name.startswith("ModelCheckpoint") and isinstance(node, Mapping):
            yield {part: each for part, each in node.entries if isinstance(part, str)}
