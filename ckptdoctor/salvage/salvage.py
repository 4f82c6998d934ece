"""Saves what is whole of a file or a folder of shards."""

from __future__ import annotations

import os

from ckptdoctor.findings import SalvageReport
from ckptdoctor.repair.repair import repair
from ckptdoctor.salvage.checkpoint import beside, plan_salvage
from ckptdoctor.salvage.folder import salvage_folder


def salvage(path: str, output: str | None = None, *, force: bool = False) -> SalvageReport:
    """Write what is whole of the checkpoint at ``path`` to ``output`` (None: beside it, ``name.salvaged.ext``).

    Of a folder of shards it makes a folder. The output is verified before it gets its name; the original is never
    touched. Raises UnreadableError and NotACheckpointError for a file that is none, DamagedError where its headers are
    lost, RefusedError where no tensor is whole, and WriteError when the output could not be written.
    """
    if os.path.isdir(path):
        return salvage_folder(path, output, force=force)
    planned = plan_salvage(path, output or beside(path), force=force)
    repair(planned.plan)
    return planned.report
