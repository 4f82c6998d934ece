"""Waiting for devices: they work on while Python goes on, and a clock read too early measures nothing."""

from __future__ import annotations

import torch

from ckptdoctor.trainer.devices import xla


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done all that it was given; call it before a clock is read.

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
