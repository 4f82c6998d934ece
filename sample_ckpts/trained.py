"""The samples that a training run leaves behind, and what ``check`` must say of each of their files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nets
import torch
from reproducible import train, train_own
from tags import by_tensor, saving_with_tags

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data.dataset import Dataset, DataSplit
from ckptdoctor.trainer.data.load import load
from ckptdoctor.trainer.events import RunEvent, StepDone
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.networks import build
from ckptdoctor.trainer.strategies.data_parallel import DataParallel
from ckptdoctor.trainer.strategies.make import BY_NAME
from ckptdoctor.trainer.strategies.module_strategy import SingleDevice
from ckptdoctor.trainer.team import Team

Codes = tuple[str, ...]

# what the files are, whichever run they are from
WHAT = {
    "training.pt": "All that the run needs to go on: weights, optimizer, epoch, states of the random generators.",
    "model.pt": "The state dict of the bare model.",
    "wrapped.pt": "The state dict of the wrapper, as torch.save(net.state_dict()) leaves it.",
    "whole.pt": "The model object itself, as torch.save(net) leaves it.",
    "legacy.pt": "The state dict of the bare model in the format before torch 1.6.",
    "model.safetensors": "The weights of the bare model.",
    "ema.pt": "The state dict of the AveragedModel: module. and a counter.",
    "dcp": "The folder of torch.distributed.checkpoint, which both ranks wrote together.",
    "stripped.pt": "The keys of wrapped.pt cut by hand into a plain dict, which forgets the versions of the modules.",
    "split.pt": "Saved with its first layers on cuda:0, its last block and its head on cuda:1.",
}


@dataclass(frozen=True)
class Training:
    """A run: how to carry it out, the codes of each file it leaves, and the options of ``check`` where it needs any."""

    name: str
    train: Callable[[str], Path]
    """Trains into a folder of that name, and returns the folder of the checkpoint."""
    files: Mapping[str, Codes]
    options: Mapping[str, tuple[str, ...]]
    about: str


TRAININGS: list[Training] = []

Train = Callable[[str], Path]


def training(
    name: str, files: Mapping[str, Codes], options: Mapping[str, tuple[str, ...]] | None = None
) -> Callable[[Train], Train]:
    """Register the decorated run; its docstring says what is trained and how."""

    def register(run: Train) -> Train:
        about = " ".join((run.__doc__ or "").split())
        TRAININGS.append(Training(name, run, files, options or {}, about))
        return run

    return register


def write_all(folder: Path) -> dict[str, dict[str, Any]]:
    """Carry out every run, keep its files below ``folder``/trained, and return what EXPECTED.json says of them."""
    expected = {}
    for each in TRAININGS:
        with TemporaryDirectory() as elsewhere:
            # a relative path, since the distributed checkpoint notes the path that it was written to
            with working_in(elsewhere):
                made = Path(each.train("run")).resolve()
            kept = folder / "trained" / each.name
            shutil.copytree(made, kept, copy_function=shutil.copyfile, dirs_exist_ok=True)
        expected |= {f"trained/{each.name}/{file}": _expected(each, file) for file in each.files}
    return expected


def _expected(each: Training, file: str) -> dict[str, Any]:
    said = {"options": list(each.options.get(file, ())), "codes": list(each.files[file])}
    return {**said, "about": f"{each.about} {WHAT[file]}"}


@contextmanager
def working_in(folder: str) -> Iterator[None]:
    """Make ``folder`` the working directory in this block."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def resnet(out: str, **choices: Any) -> RunConfig:
    """A run of four steps with a ResNet of 1,384 parameters, unless the choices say otherwise."""
    tiny = {"network": "resnet", "width": 2, "images": 64, "batch_size": 16, "epochs": 1, "lr": 0.005}
    return RunConfig(**{**tiny, "out": out, **choices})


def foonet(out: str, **choices: Any) -> RunConfig:
    """The same with FooNet, 27 parameters."""
    return resnet(out, network="foonet", data="points", width=None, **choices)


def network(config: RunConfig, dataset: Dataset) -> torch.nn.Module:
    """The network that the run begins with."""
    return build(config, dataset.shape, len(dataset.classes))


# --- ways of training ------------------------------------------------------------------------------------------------


@training(
    "single",
    {
        "training.pt": ("W301",),
        "model.pt": (),
        "whole.pt": ("P204",),
        "legacy.pt": ("C105",),
        "model.safetensors": (),
    },
)
def _(out: str) -> Path:
    """A ResNet on one device, saved in many ways."""
    return train(resnet(out, save=("plain", "whole", "legacy", "safetensors")))


@training("dp", {"training.pt": ("W301",), "model.pt": (), "wrapped.pt": ("N401",)})
def _(out: str) -> Path:
    """FooNet in DataParallel, each batch of 16 split between two replicas."""
    return train(foonet(out, strategy="dp", world_size=2, save=("plain", "wrapped")))


@training("dp-cuda", {"training.pt": ("D601", "W301"), "wrapped.pt": ("D601", "N401"), "whole.pt": ("D601", "P204")})
def _(out: str) -> Path:
    """A ResNet in DataParallel, with the device tags of a GPU: the checkpoint of the tutorials."""
    return train(resnet(out, strategy="dp", world_size=2, tag_device="cuda:0", save=("wrapped", "whole")))


@training("ddp", {"training.pt": ("W301",), "wrapped.pt": ("N401",)})
def _(out: str) -> Path:
    """A ResNet in DistributedDataParallel, two processes, AdamW."""
    return train(resnet(out, strategy="ddp", world_size=2, optimizer="adamw", lr=0.001, save=("wrapped",)))


@training("fsdp", {"training.pt": ("W301",), "model.pt": (), "dcp": ("X809",)})
def _(out: str) -> Path:
    """A ResNet sharded by FSDP2 over two processes."""
    return train(resnet(out, strategy="fsdp", world_size=2, save=("plain", "dcp")))


@training("compile", {"training.pt": ("W301",), "wrapped.pt": ("N404",)})
def _(out: str) -> Path:
    """FooNet in torch.compile, which only traced it (backend="eager"): the wrapper in the keys is the same."""
    return train(foonet(out, compile=True, save=("wrapped",)))


@training("compile-ddp", {"training.pt": ("W301",), "wrapped.pt": ("N401", "N404")})
def _(out: str) -> Path:
    """FooNet in DistributedDataParallel (one process) in torch.compile, which only traced it (backend="eager")."""
    return train(foonet(out, strategy="ddp", compile=True, save=("wrapped",)))


@training("ema", {"training.pt": ("W302",), "model.pt": (), "ema.pt": ("N411",)})
def _(out: str) -> Path:
    """A ResNet with an exponential moving average of its weights."""
    return train(resnet(out, ema=True))


@training("amp", {"training.pt": ("W301",), "model.pt": ()})
def _(out: str) -> Path:
    """FooNet under float16 autocast with a GradScaler; its weights stay float32."""
    return train(foonet(out, amp="fp16"))


# --- devices ---------------------------------------------------------------------------------------------------------


@training("cuda-1", {"training.pt": ("D602", "W301"), "model.pt": ("D602",)})
def _(out: str) -> Path:
    """A ResNet with the device tags of the second GPU."""
    return train(resnet(out, tag_device="cuda:1"))


@training("cuda-split", {"split.pt": ("D602", "D603")})
def _(out: str) -> Path:
    """A ResNet with the device tags of a model that is laid out over two GPUs."""
    state = torch.load(train(resnet(out)) / "model.pt", weights_only=True)
    behind = [value for key, value in state.items() if key.startswith(("layer3.", "fc."))]
    kept = Path("kept")
    kept.mkdir()
    with saving_with_tags(by_tensor({"cuda:1": behind}, "cuda:0")):
        torch.save(state, kept / "split.pt")
    return kept


# --- interrupted -----------------------------------------------------------------------------------------------------


@training("stopped", {"training.pt": ("W301",), "model.pt": ()})
def stopped(out: str) -> Path:
    """A ResNet in DataParallel, stopped after the first step of the first epoch."""
    chosen = resnet(out, strategy="dp", world_size=2)
    data = load(chosen)

    def stop_it(event: RunEvent, stop: StopRequest) -> None:
        stop.asked = stop.asked or isinstance(event, StepDone)

    return train_own(chosen, data, lambda *given: DataParallel(*given, network(chosen, data)), stop_it)


@training("resumed", {"training.pt": ("W301",), "model.pt": ()})
def _(out: str) -> Path:
    """The run that was stopped, taken up again on one device without DataParallel and led to its second epoch."""
    stopped(out)
    return train(resnet(out, resume=True, epochs=2))


# --- for another model -----------------------------------------------------------------------------------------------


def like(name: str, *files: str) -> dict[str, tuple[str, ...]]:
    """The options of ``check`` that hold each of these files against a trained file."""
    return dict.fromkeys(files, ("--like", f"trained/{name}"))


@training(
    "head",
    {"training.pt": ("S501", "W301"), "model.pt": ("S501",)},
    like("single/model.pt", "training.pt", "model.pt"),
)
def _(out: str) -> Path:
    """A ResNet for five of the ten classes, for a model with a head for all ten."""
    chosen = resnet(out, images=128)
    data = five_classes(load(chosen))
    return train_own(chosen, data, lambda *given: SingleDevice(*given, network(chosen, data)))


def five_classes(data: Dataset) -> Dataset:
    """The images of the first five classes."""

    def those(split: DataSplit) -> DataSplit:
        chosen = split.labels < 5
        return DataSplit(split.inputs[chosen], split.labels[chosen])

    return replace(data, train=those(data.train), test=those(data.test), classes=data.classes[:5])


@training(
    "instance-norm",
    {"training.pt": ("W301",), "wrapped.pt": ("N401", "N418"), "stripped.pt": ("N418",)},
    like("instance-norm-default/model.pt", "wrapped.pt", "stripped.pt"),
)
def _(out: str) -> Path:
    """A network in DataParallel whose InstanceNorm2d tracks running stats, for one whose InstanceNorm2d does not."""
    trained = normed(resnet(out, network="normed", strategy="dp", save=("wrapped",)), track=True)
    wrapped = torch.load(trained / "wrapped.pt", weights_only=True)
    torch.save({key.removeprefix("module."): value for key, value in wrapped.items()}, trained / "stripped.pt")
    return trained


@training("instance-norm-default", {"training.pt": ("W301",), "model.pt": ()})
def _(out: str) -> Path:
    """The same network with InstanceNorm2d as torch makes it unless told otherwise: the reference of the other."""
    return normed(resnet(out, network="normed"), track=False)


def normed(config: RunConfig, track: bool) -> Path:
    """Train the network with instance norms."""
    torch.manual_seed(config.seed)
    return train_own(config, load(config), lambda *given: BY_NAME[config.strategy](*given, nets.Normed(track)))


@training("optimizer-order", {"training.pt": ("W301",), "model.pt": ()})
def _(out: str) -> Path:
    """FooNet whose AdamW was given the last layer first. No rule can tell; an optimizer made from model.parameters()
    takes the state without a word, since all layers have one shape, and each layer is stepped by another's moments."""
    chosen = foonet(out, optimizer="adamw", lr=0.001)
    data = load(chosen)
    return train_own(chosen, data, lambda *given: LastFirst(*given, network(chosen, data)))


class LastFirst(SingleDevice):
    """One device, with the parameters given to the optimizer in the opposite order."""

    def __init__(self, config: RunConfig, team: Team, model: torch.nn.Module) -> None:
        super().__init__(config, team, model)
        self.optimizer = torch.optim.AdamW(reversed(list(self.model.parameters())), lr=config.lr)
