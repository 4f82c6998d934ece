"""The choices of a training run in one frozen noun. It knows nothing of torch, so that it can be read before it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from ckptdoctor.errors import UsageError

NETWORKS = ("foonet", "lenet", "vgg", "resnet")
STRATEGIES = ("single", "dp", "functional", "manual", "ddp", "fsdp", "exact")
DEVICES = ("auto", "cpu", "cuda", "mps", "xla")
DATA = ("shapes", "mnist5k", "mnist", "fashion-mnist", "cifar10")
OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("cosine", "constant")
PRECISIONS = ("no", "bf16", "fp16")
SAVES = ("plain", "wrapped", "whole", "legacy", "safetensors", "dcp")

SHOW_WORK = ("manual", "dp")
"""Strategies whose every part is in sight of this program."""

PROCESSES = frozenset({"ddp", "fsdp", "exact"})
"""Strategies that run one process per device; the others run their replicas in one process."""

MICRO_SHARDS = 8
"""Into how many parts ``exact`` splits every batch, whatever the world size."""


@dataclass(frozen=True)
class RunConfig:
    """One training run. Batch sizes are global: what all replicas see together in a step."""

    network: str = "lenet"
    strategy: str = "single"
    world_size: int = 1
    device: str = "cpu"
    """The kind of device, settled: "cpu", "cuda", "mps" or "xla"; never "auto"."""
    data: str = "shapes"
    """One of DATA, or "points": the little task of foonet."""
    data_dir: str | None = None
    epochs: int = 10
    batch_size: int = 64
    lr: float = 0.05
    schedule: str = "cosine"
    """What becomes of the learning rate: "cosine" takes it down towards 0, "constant" leaves it as it is."""
    momentum: float = 0.9
    optimizer: str = "sgd"
    amp: str = "no"
    compile: bool = False
    ema: bool = False
    pin_memory: bool = False
    workers: int = 0
    seed: int = 0
    out: str = "run"
    save: tuple[str, ...] = ("plain",)
    every: int = 1
    """Epochs between checkpoints; the last epoch is always saved."""
    resume: bool = False
    tag_device: str | None = None
    """The location that torch.save writes for every storage, such as "cuda:0"; None: the truth."""
    show_work: bool = False
    """Whether the first step prints what is scattered, computed and summed; ``manual`` and ``dp`` can."""
    timeout: float = 120.0
    """Seconds that a rank waits for the others before it gives the run up."""

    # not on the command line: for tests and samples
    dtype: str = "float32"
    """Of parameters and inputs: "float32" or "float64"."""
    width: int | None = None
    """Channels of the first layer; None: the network's own."""
    images: int | None = None
    """How many training images to use (and a fifth of that for the test); None: all."""

    def to_json(self) -> str:
        """Return the settings as JSON, for the processes of a run and for the record next to its checkpoints."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Return the configuration that ``to_json`` wrote. Raises UsageError for anything else."""
        try:
            values: dict[str, Any] = json.loads(text)
            known = {field.name for field in fields(cls)}
            return cls(**{**{k: v for k, v in values.items() if k in known}, "save": tuple(values["save"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"this is not the configuration of a run: {error}") from error
