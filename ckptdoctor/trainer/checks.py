"""The choices of a run are checked before anything starts, so that nobody waits for a run that cannot be.

How many replicas there can be depends on the devices: ``devices.require_world_size`` knows. Nothing here needs torch.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.config import MICRO_SHARDS, SAVES, SHOW_WORK, RunConfig

_LONGEST = 1_000_000  # seconds: torch counts milliseconds in 32 bits


def require_choices(config: RunConfig) -> None:
    """Raise UsageError with the first invalid choice, and a valid one."""
    for complaint in _complaints(config):
        raise UsageError(complaint)


def _complaints(config: RunConfig) -> Iterator[str]:
    yield from _about_numbers(config)
    yield from _about_the_network(config)
    yield from _about_the_strategy(config)
    yield from _about_the_device(config)


def _about_numbers(config: RunConfig) -> Iterator[str]:
    for name in ("epochs", "batch_size", "every"):
        if getattr(config, name) < 1:
            yield f"--{name.replace('_', '-')} must be at least 1"
    if config.workers < 0:
        yield "--workers must be at least 0"
    if not config.lr > 0:
        yield "--lr must be above 0"
    if not 0 <= config.momentum < 1:
        yield "--momentum must be at least 0 and below 1"
    if not 0 < config.timeout <= _LONGEST:
        yield f"--timeout must be above 0 seconds, and at most {_LONGEST:,}"
    if not -(2**63) <= config.seed < 2**64:
        yield "--seed must be at least -2**63 and below 2**64, as torch takes them"
    if config.batch_size % max(config.world_size, 1):
        yield (
            f"a batch of {config.batch_size} images cannot be split evenly over {config.world_size} "
            f"replicas: use --batch-size {-(-config.batch_size // config.world_size) * config.world_size}"
        )


def _about_the_network(config: RunConfig) -> Iterator[str]:
    if config.network == "foonet" and config.data != "points":
        yield f"foonet takes three numbers, not the images of {config.data}: leave out --data, or train lenet"
    if config.network != "foonet" and config.data == "points":
        yield f"{config.network} takes images: choose --data shapes"


def _about_the_strategy(config: RunConfig) -> Iterator[str]:
    strategy = config.strategy
    if strategy == "functional" and config.network not in ("lenet", "vgg"):
        yield (
            "--strategy functional runs the features and the classifier of a network separately, and "
            f"{config.network} has no such parts: use lenet or vgg"
        )
    if strategy == "manual":
        yield from _about_manual(config)
    if strategy == "exact":
        yield from _about_exact(config)
    if config.compile and strategy not in ("single", "ddp", "fsdp"):
        yield f"--compile works with single, ddp and fsdp: the replicas of {strategy} are made again in every step"

    if config.show_work and strategy not in SHOW_WORK:
        yield (
            f"--show-work prints the first step of manual and dp; {strategy} has nothing to show from "
            "outside: choose --strategy manual or --strategy dp, or leave out --show-work"
        )


def _about_the_device(config: RunConfig) -> Iterator[str]:
    if config.device == "xla" and config.amp == "fp16":
        yield "--amp fp16 is for GPUs: XLA devices have --amp bf16"
    if config.device == "mps" and config.dtype == "float64":
        yield "MPS devices have no float64: train on the CPU"


def _about_manual(config: RunConfig) -> Iterator[str]:
    if config.network != "lenet":
        yield f"--strategy manual is hand-written for lenet, on bare tensors: it cannot train {config.network}"
    if config.optimizer != "sgd":
        yield f"--strategy manual has its own hand-written SGD: leave out --optimizer {config.optimizer}"
    for option in _extras(config):
        yield f"--strategy manual is bare tensors and float32: leave out {option}"


def _about_exact(config: RunConfig) -> Iterator[str]:
    if config.network == "resnet":
        yield (
            "--strategy exact cannot train resnet: batch norm uses all images that a worker sees, so its "
            "result depends on their number; use lenet or vgg"
        )
    if config.batch_size % MICRO_SHARDS:
        yield f"--strategy exact cuts a batch into {MICRO_SHARDS} micro-shards: --batch-size must be a multiple of that"
    for option in _extras(config):
        if option != "--ema":
            yield f"--strategy exact promises the same bits on any number of workers: leave out {option}"


def _extras(config: RunConfig) -> Iterator[str]:
    if config.amp != "no":
        yield f"--amp {config.amp}"
    if config.compile:
        yield "--compile"
    if config.ema:
        yield "--ema"


def require_styles(config: RunConfig) -> None:
    """Raise UsageError for a style that this run cannot write, or a device tag that nobody would write."""
    for name in config.save:
        if name not in SAVES:
            raise UsageError(f'--save: "{name}" is not a checkpoint format. Use {", ".join(SAVES)}.')
    if "whole" in config.save and config.strategy == "manual":
        raise UsageError(
            "--save whole does not work with --strategy manual, which trains bare tensors and has no module "
            "to pickle; use --save plain."
        )
    if "safetensors" in config.save and importlib.util.find_spec("safetensors") is None:
        raise UsageError("--save safetensors needs the package of that name: pip install safetensors.")
    if config.tag_device is not None:
        require_tag(config.tag_device)


WITHOUT_STORAGE = frozenset({"xla", "maia", "mtia"})
"""Backends whose tensors have no storage to tag (torch.Tensor._reduce_ex_internal)."""

# backends that torch.save has written tags of: torch's own and those of plug-ins (Ascend, Cambricon, Moore Threads …)
_INDEXED = ("cuda", "xpu", "hpu", "npu", "mlu", "musa", "gcu", "privateuseone", *sorted(WITHOUT_STORAGE))
_TAG = re.compile(rf"cpu|mps|(?:{'|'.join(_INDEXED)})(?::(?:0|[1-9]\d{{0,2}}))?")


def require_tag(tag: str) -> None:
    """Raise UsageError unless ``tag`` is one that torch.save writes somewhere."""
    if not _TAG.fullmatch(tag) or tag in WITHOUT_STORAGE:
        raise UsageError(
            f"--tag-device: torch.save never writes the device {tag}. Use cpu, cuda, cuda:N, mps, xla:N or "
            "another backend's, such as npu:0 or hpu."
        )
