"""The kinds of device, "cpu", "cuda", "mps" and "xla": which are here, and why the others are not."""

from __future__ import annotations

import os
import warnings

import torch

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer.config import DEVICES
from ckptdoctor.trainer.devices import xla
from ckptdoctor.trainer.gpus import Gpu, GpuSelection, query

KINDS = tuple(kind for kind in DEVICES if kind != "auto")


def settle(kind: str) -> str:
    """Turn "auto" into the best kind that is here; a kind that is named and not here is a TrainingError that says why.

    "auto" prefers CUDA, then MPS, then XLA, then the CPU. XLA on the CPU is passed over: it is the same processor.
    """
    if kind == "auto":
        return next((each for each in ("cuda", "mps", "xla") if missing(each) is None and not _is_cpu(each)), "cpu")
    require(kind, f"--device {kind}")
    return kind


def require(kind: str, asked: str) -> None:
    """Raise TrainingError where there is no device of a kind: why, and what to do; ``asked`` is what asked for it."""
    reason = missing(kind)
    if reason is not None:
        raise TrainingError(f"{asked}: {reason}; or train on the CPU: --device cpu")


def require_gpus(chosen: GpuSelection) -> None:
    """Raise UsageError when this process does not see every GPU that was chosen: the message lists those there are.

    Where none can be used it is the TrainingError of ``--device cuda``.

    CUDA says nothing of a number that no GPU has: it stops reading CUDA_VISIBLE_DEVICES there, and shows fewer.
    """
    asked = ",".join(map(str, chosen.physical))
    require("cuda", f"--gpus {asked}")
    seen = torch.cuda.device_count()
    if seen == len(chosen.physical):
        return
    try:
        found: tuple[Gpu, ...] = query()
    except TrainingError:  # no nvidia-smi, or one that fails: what torch says is all that is known
        found = ()
    there = ", ".join(f"GPU {each.index} ({each.name})" for each in found)
    absent = [number for number in chosen.physical if found and number not in {each.index for each in found}]
    if absent:
        raise UsageError(f"--gpus {asked}: this machine has no GPU {absent[0]}. It has {there}; choose from these")
    listed = f". This machine has {there}" if there else ""
    raise UsageError(f"--gpus {asked}: CUDA shows {seen} of these {len(chosen.physical)}{listed}; check nvidia-smi")


def missing(kind: str) -> str | None:
    """Return why there is no device of that kind here and what would help, as half a sentence.

    It is None when there is one.
    """
    if kind not in KINDS:
        raise UsageError(f"--device {kind}: unknown device type; choose one of {', '.join(DEVICES)}")
    return {"cpu": lambda: None, "cuda": _no_cuda, "mps": _no_mps, "xla": xla.missing}[kind]()


def device(kind: str, index: int = 0) -> torch.device:
    """Return the device of a settled kind with that logical number.

    There is one CPU and one MPS, whatever the number.
    """
    if kind == "xla":
        return xla.device(index)
    return torch.device("cuda", index) if kind == "cuda" else torch.device(kind)


def count(kind: str) -> int | None:
    """Return the number of devices of a settled kind that this process sees, or None for the CPU: any number.

    Replicas on the CPU are virtual: each is a copy of the weights (and, where a strategy runs processes, a process).
    They share the cores, so their number is a matter of teaching and testing, not of hardware.
    """
    if kind == "cpu":
        return None
    if kind == "xla":
        return xla.count()
    return torch.cuda.device_count() if kind == "cuda" else 1


def _is_cpu(kind: str) -> bool:
    return kind == "xla" and xla.hardware() == "CPU"


def _no_cuda() -> str | None:
    """Tell four different troubles apart that all look like ``torch.cuda.is_available() == False``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of an old driver here; it is told below
        if torch.cuda.is_available():
            return None
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"this torch ({torch.__version__}) is built for the CPU; install a build with CUDA"
            " (https://pytorch.org/get-started/locally)"
        )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and not hidden.strip()[:1].isalnum():
        return f"CUDA_VISIBLE_DEVICES is {hidden!r}, which hides every GPU; unset it or name one (--gpus 0)"
    return _said_by_cuda()


def _said_by_cuda() -> str:
    """Tell CUDA to start, and return why it does not: no driver, too old a driver, no GPU."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        said = xla.short_message(error)
        if "Found no NVIDIA driver" in said:
            return "this machine has no NVIDIA driver; install one if it has an NVIDIA GPU"
        if "No CUDA GPUs are available" in said:
            return "the NVIDIA driver sees no GPU; check nvidia-smi, or ask the scheduler for one"
        return f"CUDA does not start ({said}); check nvidia-smi"
    return "CUDA starts but shows no GPU; check nvidia-smi"


def _no_mps() -> str | None:
    if torch.backends.mps.is_available():
        return None
    if not torch.backends.mps.is_built():
        return f"this torch ({torch.__version__}) is built without MPS, which is for Macs with Apple silicon"
    return "this Mac has no GPU that MPS can use, or its macOS is too old for this torch; update macOS"


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done all that it was given: a clock that is read too early measures nothing.

    A call such as ``loss.backward()`` only puts kernels into the queue of a GPU and returns. The CPU has no queue.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    elif device.type == "xla":
        xla.cut()
        xla.wait()


def finish_step(device: torch.device) -> None:
    """Mark the end of a training step. XLA compiles and runs what came since the last mark; others need none.

    Without the mark the graph of a step would grow into that of an epoch before anything ran.
    """
    if device.type == "xla":
        xla.cut()
