"""``single``: one process, one device. Every other strategy must compute the same as this one."""

from __future__ import annotations

from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy


class Single(ModuleStrategy):
    """The model and the data on one device, nothing else."""
