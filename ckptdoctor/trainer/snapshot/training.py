"""``training.pt``: everything that a run needs to go on, as plain data and tensors.

Plain data, so that ``torch.load(path, weights_only=True)`` takes it: no class of this program is named in the file, and
it can be read after any of them has been renamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ckptdoctor.trainer.checks import WITHOUT_STORAGE
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.strategies.strategy import StateTensors

KEYS = (
    "epoch",
    "step",
    "best_accuracy",
    "network",
    "strategy",
    "world_size",
    "config",
    "state_dict",
    "optimizer",
    "scheduler",
    "scaler",
    "ema",
    "rng",
)

# where a run was, not what it was: the same run elsewhere writes the same file
_ABOUT_THE_PLACE = ("out", "data_dir", "resume", "show_work")
_USUAL = {"schedule": "cosine"}  # what older files do not name: not named, the same run goes on writing the same file


def contents(config: RunConfig, position: Position, collected: Collected) -> dict[str, Any]:
    """Return the contents of the file, under KEYS."""
    return {
        "epoch": position.epoch,
        "step": position.step,
        "best_accuracy": float(position.best_accuracy),
        "network": config.network,
        "strategy": config.strategy,
        "world_size": config.world_size,
        "config": config_as_data(config),
        "state_dict": collected.weights,
        "optimizer": collected.optimizer,
        # all there is to a schedule that is computed from the epoch
        "scheduler": {"last_epoch": position.epoch, "base_lr": config.lr},
        "scaler": collected.scaler,
        "ema": None if collected.ema is None else bared(collected.ema),
        "rng": collected.rng,
    }


def write(path: Path, saved: dict[str, Any], tag: str) -> None:
    """Write the file, with weights and optimizer tagged as being on ``tag``."""
    with saving_with_tag(tag, stays=_on_the_cpu(saved)):
        torch.save(saved, path)


def config_as_data(config: RunConfig) -> dict[str, Any]:
    """Return the choices that make the run what it is, as plain data."""
    choices: dict[str, Any] = json.loads(config.to_json())
    return {
        name: value
        for name, value in choices.items()
        if name not in _ABOUT_THE_PLACE and not (name in _USUAL and _USUAL[name] == value)
    }


def _on_the_cpu(saved: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Yield tensors that stay on the CPU in a run on a GPU: states of generators, and the optimizer's step counters."""
    for state in saved["rng"]:
        yield from (state["cpu"], *(state["cuda"] or ()), *(() if state["mps"] is None else (state["mps"],)))
    for slots in saved["optimizer"]["state"].values():
        # torch.optim.Adam and its kind keep "step" there unless they are capturable or fused
        yield from (value for name, value in slots.items() if name == "step" and isinstance(value, torch.Tensor))


COUNTER = "n_averaged"
"""The buffer in which torch.optim.swa_utils.AveragedModel counts its updates."""
WRAPPER = "module."
"""What AveragedModel puts before the keys of the model that it holds."""


def bared(ema: StateTensors) -> dict[str, Any]:
    """Return ``{"n_averaged": 7, "state_dict": {…}}`` from the state dict of an AveragedModel.

    Under bare keys, so that the file holds weights and not a wrapper.
    """
    weights = {key.removeprefix(WRAPPER): value for key, value in ema.items() if key != COUNTER}
    return {COUNTER: int(ema[COUNTER]), "state_dict": weights}


def as_averaged_model(saved: Mapping[str, Any]) -> StateTensors:
    """Return the state dict of an AveragedModel from what ``bared`` gave."""
    counter = torch.tensor(saved[COUNTER], dtype=torch.long)
    return {COUNTER: counter, **{WRAPPER + key: value for key, value in saved["state_dict"].items()}}


_Reduced = tuple[Any, ...]


def tag_of(device: torch.device) -> str:
    """Return the tag that torch.save writes for tensors on this device: ``cpu``, ``mps``, ``cuda:0`` or ``xla:0``."""
    if device.type in ("cpu", "mps"):
        return device.type
    return f"{device.type}:{device.index or 0}"


@contextmanager
def saving_with_tag(tag: str, stays: Iterable[torch.Tensor] = ()) -> Iterator[None]:
    """Have ``torch.save`` in this block write what it would write if the tensors were on the device ``tag``.

    It writes the device with each storage, so that a checkpoint of a GPU differs from one of the CPU only in these
    tags, and its problems can be made without a GPU. The bytes are those that torch itself writes on such a device.

    The tensors in ``stays`` stay on the CPU, as step counters of optimizers and states of random generators do.
    """
    held = list(stays)
    on_cpu = {tensor.untyped_storage().data_ptr() for tensor in held if tensor.numel()}
    if tag.partition(":")[0] in WITHOUT_STORAGE:
        with _rebuilt_on(tag, on_cpu):
            yield
    else:
        with _located_on(tag, on_cpu):
            yield


@contextmanager
def _located_on(tag: str, on_cpu: set[int]) -> Iterator[None]:
    """``torch.serialization.location_tag`` is what torch.save asks for the tag of a storage.

    For a device with an index it puts together a new string each time. That shows in the bytes: the pickler writes a
    string that it has seen only once more by its number, so one shared string would make another file.
    """
    genuine = torch.serialization.location_tag

    def location(storage: Any) -> str:
        if storage.data_ptr() in on_cpu:
            return "cpu"
        return "".join(list(tag)) if ":" in tag else tag

    torch.serialization.location_tag = location
    try:
        yield
    finally:
        torch.serialization.location_tag = genuine


@contextmanager
def _rebuilt_on(device: str, on_cpu: set[int]) -> Iterator[None]:
    """An XLA tensor has no storage: its pickle is a call that moves a copy from the CPU to the device.

    The copy is a tensor of the CPU like any other, tag and all (``torch.Tensor._reduce_ex_internal``).
    """
    genuine: Any = torch.Tensor._reduce_ex_internal
    copies: list[torch.Tensor] = []  # held, so that no other tensor gets the address of one of them

    def reduce(self: torch.Tensor, protocol: int) -> _Reduced:
        if (copies and self is copies[-1]) or self.untyped_storage().data_ptr() in on_cpu:
            plain: _Reduced = genuine(self, protocol)
            return plain
        copies.append(self.clone(memory_format=torch.contiguous_format))
        arguments = (copies[-1], self.dtype, "".join(list(device)), self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    torch.Tensor._reduce_ex_internal = reduce  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor._reduce_ex_internal = genuine  # type: ignore[method-assign]
