"""The devices that tensors live on: which are here, how many replicas they hold, and when they have finished.

A tensor and the module that is to use it must be on the same device. ``.to(device)`` takes both there, differently:

- a tensor is copied: the result is a new object, the old one stays where it was, so ``x = x.to(device)``. A tensor that
  is on the device already is returned itself, not a copy: several replicas on one device must be cloned, or they are
  one and the same.
- a module is moved in place: ``model.to(device)`` returns the same object with its parameters on the device.

Devices of a kind are numbered from 0: the logical numbers. Which physical GPU ``cuda:1`` is says
``CUDA_VISIBLE_DEVICES``, see ``ckptdoctor.trainer.gpus``.
"""

from __future__ import annotations

from ckptdoctor.trainer.devices.inventory import DeviceRow, rows, table
from ckptdoctor.trainer.devices.kinds import (
    count,
    device,
    finish_step,
    missing,
    require,
    require_gpus,
    settle,
    synchronize,
)
from ckptdoctor.trainer.devices.worlds import default_world_size, replicas, require_world_size

__all__ = [
    "DeviceRow",
    "count",
    "default_world_size",
    "device",
    "finish_step",
    "missing",
    "replicas",
    "require",
    "require_gpus",
    "require_world_size",
    "rows",
    "settle",
    "synchronize",
    "table",
]
