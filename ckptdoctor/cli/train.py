"""``ckptdoctor train`` trains a small network in one of the ways that multi-GPU users train."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import click

from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import emit, narrate
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import files
from ckptdoctor.cli.progress import drawn
from ckptdoctor.crash import require_torch_installed
from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer.checks import require_choices
from ckptdoctor.trainer.config import (
    DATA,
    DEVICES,
    NETWORKS,
    OPTIMIZERS,
    PRECISIONS,
    PROCESSES,
    SAVES,
    SCHEDULES,
    STRATEGIES,
    RunConfig,
)
from ckptdoctor.trainer.gpus import select
from ckptdoctor.trainer.launch.variables import place as find_place
from ckptdoctor.trainer.slurm import GPUS_PER_NODE, nodes_for, script

_ARGUMENTS = "ckptdoctor.train.arguments"


class _Remembering(Command):
    """A command that knows its own command line: the script for Slurm repeats it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, and parse them."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


_EXAMPLES = (
    ("A run on two replicas, with DistributedDataParallel", "ckptdoctor train lenet --strategy ddp --world-size 2"),
    ("Go on where that run was stopped", "ckptdoctor train lenet --strategy ddp --world-size 2 --resume"),
)
_GROUPS = {
    "How to train": ("strategy", "world_size", "gpus", "device", "timeout"),
    "Data": ("data", "data_dir", "batch_size", "workers", "pin_memory"),
    "Optimization": ("epochs", "optimizer", "lr", "momentum", "schedule", "amp", "compile", "ema", "seed"),
    "Checkpoints": ("out", "save", "every", "resume", "tag_device"),
    "Output": ("show_work", "slurm", "devices"),
}


@click.command("train", cls=_Remembering, examples=_EXAMPLES, groups=_GROUPS)
@click.argument("network", type=Choice(NETWORKS), default="lenet")
@click.option("--strategy", type=Choice(STRATEGIES), default="single", show_default=True, help="Training strategy.")
@click.option("--world-size", type=int, metavar="N", help="Replicas.  [default: one for each GPU; 2 on the CPU]")
@click.option("--gpus", metavar="0,4|auto", help="Use these GPUs only, or those with the most free memory.")
@click.option("--device", type=Choice(DEVICES), default="auto", show_default=True, help="Device.")
@click.option("--data", type=Choice(DATA), help="Dataset.  [default: shapes]")
@click.option(
    "--data-dir", metavar="DIR", shell_complete=files, help="Folder with the files of mnist, fashion-mnist or cifar10."
)
@click.option("--epochs", type=int, default=10, show_default=True, help="Number of epochs.")
@click.option("--batch-size", type=int, help="Global batch size.  [default: 64; 16 for foonet]")
@click.option("--lr", type=float, help="Initial learning rate.  [default: 0.05; 0.001 for adamw]")
@click.option(
    "--schedule",
    type=Choice(SCHEDULES),
    default="cosine",
    show_default=True,
    help="Learning rate schedule.",
)
@click.option("--momentum", type=float, default=0.9, show_default=True, help="SGD momentum.")
@click.option("--optimizer", type=Choice(OPTIMIZERS), default="sgd", show_default=True, help="Optimizer.")
@click.option("--amp", type=Choice(PRECISIONS), default="no", show_default=True, help="Mixed precision.")
@click.option("--compile", is_flag=True, help="Train through torch.compile.")
@click.option("--ema", is_flag=True, help="Also keep a moving average of the weights.")
@click.option("--pin-memory", is_flag=True, help="Copy batches to the GPU from pinned memory.")
@click.option("--workers", type=int, default=0, show_default=True, help="Processes that prepare batches.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of weights, data order and dropout.")
@click.option(
    "--out", metavar="DIR", shell_complete=files, help="Folder for checkpoints.  [default: runs/NETWORK-STRATEGY]"
)
@click.option(
    "--save",
    type=Choice(SAVES),
    multiple=True,
    default=("plain",),
    help="Checkpoint format; repeatable.  [default: plain]",
)
@click.option("--every", type=int, metavar="EPOCHS", default=1, show_default=True, help="Epochs between checkpoints.")
@click.option("--resume", is_flag=True, help="Continue from the newest complete checkpoint in --out.")
@click.option("--tag-device", metavar="cuda:0", help="Save with this device tag, as if the run had been there.")
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    default=120,
    show_default=True,
    help="Seconds to wait for a rank before aborting.",
)
@click.option("--show-work", is_flag=True, help="Print the first step: scatter, gradients, all-reduce (manual, dp).")
@click.option("--slurm", is_flag=True, help="Print the sbatch script for this run, and exit.")
@click.option("--devices", is_flag=True, help="Print the table of devices, and exit.")
def command(slurm: bool, devices: bool, gpus: str | None, **asked: Any) -> ExitStatus:
    """Train a small network and save real checkpoints.

    NETWORK is lenet by default. Strategies: single; dp (nn.DataParallel); functional (features and classifier each
    data-parallel); manual (bare tensors); ddp and fsdp (one process per device, started here, or by torchrun or
    Slurm); exact (the same bits on any number of workers). On a machine without GPUs the replicas are virtual. Each
    checkpoint is a folder in DIR with training.pt, a file for each --save, and truth.json.

    Exit status: 0 done, or stopped by Ctrl-C and saved; 2 the run could not start or continue.
    """
    if slurm:
        return _show_script(_config(**asked, cluster=True))
    require_torch_installed()
    if gpus is not None:
        _choose_gpus(gpus, asked["world_size"], asked["device"])
    if devices:
        return _show_devices()
    with drawn(what="loading torch…") if find_place(os.environ) is None else nullcontext():
        from ckptdoctor.trainer.run import start

    start(_config(**asked))
    return ExitStatus.CLEAN


def _config(strategy: str, world_size: int | None, device: str, cluster: bool = False, **asked: Any) -> RunConfig:
    """Return the command line with every default settled; ``cluster``: for machines elsewhere, which have GPUs."""
    if cluster:
        device = "cuda" if device == "auto" else device
        default_world_size = 1 if strategy == "single" else GPUS_PER_NODE
    else:
        from ckptdoctor.trainer import devices

        device = devices.settle(device)
        place = find_place(os.environ)
        default_world_size = devices.default_world_size(strategy, device) if place is None else place.world_size
    foonet = asked["network"] == "foonet"
    defaults: dict[str, Any] = {
        "data": "points" if foonet else "shapes",
        "batch_size": 16 if foonet else 64,
        "lr": 0.001 if asked["optimizer"] == "adamw" else 0.05,
        "out": os.path.join("runs", f"{asked['network']}-{strategy}"),
    }
    settled: dict[str, Any] = {name: defaults.get(name) if value is None else value for name, value in asked.items()}
    return RunConfig(
        strategy=strategy, device=device, world_size=default_world_size if world_size is None else world_size, **settled
    )


def _choose_gpus(choice: str, count: int | None, device: str) -> None:
    """Before torch starts: it looks at CUDA_VISIBLE_DEVICES once."""
    if device not in ("auto", "cuda"):
        raise UsageError(f"--gpus chooses GPUs, and --device {device} uses none; leave one of the two out")
    if find_place(os.environ) is not None:
        raise UsageError(
            "--gpus is for a run that is started here: this rank was started by torchrun or Slurm, which gave it its "
            "GPUs; leave --gpus out"
        )
    try:
        chosen = select(choice, count, os.environ)
    except TrainingError:  # of nvidia-smi; where no GPU can be used at all, the reason for that comes first
        from ckptdoctor.trainer import devices

        devices.require("cuda", f"--gpus {choice.strip()}")
        raise
    from ckptdoctor.trainer import devices

    devices.require_gpus(chosen)
    narrate(chosen.sentence())


def _show_devices() -> ExitStatus:
    from rich.console import Console

    from ckptdoctor.trainer.devices import table

    Console().print(table())
    return ExitStatus.CLEAN


def _show_script(config: RunConfig) -> ExitStatus:
    require_choices(config)
    arguments = click.get_current_context().meta[_ARGUMENTS]
    # the script adds --resume at the end, where it would be no option after a "--"; no network begins with a dash
    command = ["ckptdoctor", "train", *[each for each in arguments if each != "--"]]
    nodes = nodes_for(config.world_size) if config.strategy in PROCESSES else 1
    emit(script(config, nodes=nodes, gpus_per_node=GPUS_PER_NODE, command=command).rstrip("\n"))
    return ExitStatus.CLEAN
