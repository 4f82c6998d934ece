"""Open any checkpoint without running it, say what is wrong, and repair it losslessly.

    import ckptdoctor

    report = ckptdoctor.check("model.pt", model=net)         # findings, worst first; report.ok, report.to_json()
    checkpoint = ckptdoctor.open("model.pt")                  # headers; checkpoint["state_dict/fc.weight"] reads one
    ckptdoctor.show("model.pt", stats=True)                   # the tree, or every tensor in numbers
    ckptdoctor.fix("model.pt", strip_module=True)             # a new file next to it, verified
    ckptdoctor.convert("model.pt", "model.safetensors")       # the same tensors in another container
    ckptdoctor.salvage("broken.pt")                           # every intact tensor
    ckptdoctor.seal("model.pt")                               # hashes next to it, for ckptdoctor.verify
    ckptdoctor.latest("runs/x", resumable=True)               # the newest checkpoint to resume from, or None
    ckptdoctor.audit("/data/runs", "store.db")                # every checkpoint of a store, in one database
    ckptdoctor.prune("store.db", keep_last=3)                 # what of it may go
    for each in ckptdoctor.watch("runs/x"):                   # each new checkpoint when it is complete
        print(each.step, each.valid, each.moved)
    difference = ckptdoctor.diff("a.pt", "b.safetensors", values=True)   # what changed, and by how much
    contents = ckptdoctor.load("model.pt")                    # plain Python with CPU tensors; framework="np": arrays
    ckptdoctor.load_state_dict(net, "model.pt")               # under the names that net has, or why not

Every name is imported when it is first used, so that ``import ckptdoctor`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckptdoctor.api.checking import CheckReport, check, list_rules
    from ckptdoctor.api.looking import OpenCheckpoint, diff, explain, load_state_dict, open, report
    from ckptdoctor.api.repairing import convert, fix, graft, merge, salvage, undo
    from ckptdoctor.api.running import browse, train
    from ckptdoctor.api.runs import audit, latest, prune, watch
    from ckptdoctor.api.sealing import rebuild, seal, verify
    from ckptdoctor.api.showing import Shown, show
    from ckptdoctor.checkpoint import Checkpoint, Tensor
    from ckptdoctor.checkpoint.expectation import Expected, Reference
    from ckptdoctor.checkpoint.progress import Progress
    from ckptdoctor.differences import Difference
    from ckptdoctor.edits.grafts import FolderGraftReport, GraftReport
    from ckptdoctor.errors import (
        CkptDoctorError,
        DamagedError,
        HostileError,
        MissingFileError,
        MissingPackageError,
        NotACheckpointError,
        RefusedError,
        TrainingError,
        TruncatedError,
        UnprovenError,
        UnreadableError,
        UsageError,
        WriteError,
    )
    from ckptdoctor.findings import ConvertReport, FileReport, Finding, RepairReport, Report, SalvageReport, Severity
    from ckptdoctor.inplace.history import UndoReport
    from ckptdoctor.loading.load import load
    from ckptdoctor.pruning.prune import Pruned
    from ckptdoctor.runs.latest import Latest
    from ckptdoctor.sealing.parity.folders import FolderRebuildReport
    from ckptdoctor.sealing.parity.rebuild import RebuildReport
    from ckptdoctor.sealing.seal import SealReport
    from ckptdoctor.sealing.verify import VerifyReport
    from ckptdoctor.stores.audit import Audited
    from ckptdoctor.watching.judging import Watched

__version__: str

# The module that holds each public name
_MODULES = {
    "api.checking": ("CheckReport", "check", "list_rules"),
    "api.looking": ("OpenCheckpoint", "diff", "explain", "load_state_dict", "open", "report"),
    "api.repairing": ("convert", "fix", "graft", "merge", "salvage", "undo"),
    "api.running": ("browse", "train"),
    "api.runs": ("audit", "latest", "prune", "watch"),
    "api.sealing": ("rebuild", "seal", "verify"),
    "api.showing": ("Shown", "show"),
    "checkpoint": ("Checkpoint", "Tensor"),
    "checkpoint.expectation": ("Expected", "Reference"),
    "checkpoint.progress": ("Progress",),
    "differences": ("Difference",),
    "edits.grafts": ("FolderGraftReport", "GraftReport"),
    "errors": (
        *("CkptDoctorError", "DamagedError", "HostileError", "MissingFileError", "MissingPackageError"),
        *("NotACheckpointError", "RefusedError", "TrainingError", "TruncatedError", "UnprovenError"),
        *("UnreadableError", "UsageError", "WriteError"),
    ),
    "findings": ("ConvertReport", "FileReport", "Finding", "RepairReport", "Report", "SalvageReport", "Severity"),
    "inplace.history": ("UndoReport",),
    "loading": ("load",),
    "pruning.prune": ("Pruned",),
    "runs.latest": ("Latest",),
    "sealing.parity.folders": ("FolderRebuildReport",),
    "sealing.parity.rebuild": ("RebuildReport",),
    "sealing.seal": ("SealReport",),
    "sealing.verify": ("VerifyReport",),
    "stores.audit": ("Audited",),
    "watching.judging": ("Watched",),
}
_HOMES = {name: f"ckptdoctor.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "Audited",
    "CheckReport",
    "Checkpoint",
    "CkptDoctorError",
    "ConvertReport",
    "DamagedError",
    "Difference",
    "Expected",
    "FileReport",
    "Finding",
    "FolderGraftReport",
    "FolderRebuildReport",
    "GraftReport",
    "HostileError",
    "Latest",
    "MissingFileError",
    "MissingPackageError",
    "NotACheckpointError",
    "OpenCheckpoint",
    "Progress",
    "Pruned",
    "RebuildReport",
    "Reference",
    "RefusedError",
    "RepairReport",
    "Report",
    "SalvageReport",
    "SealReport",
    "Severity",
    "Shown",
    "Tensor",
    "TrainingError",
    "TruncatedError",
    "UndoReport",
    "UnprovenError",
    "UnreadableError",
    "UsageError",
    "VerifyReport",
    "Watched",
    "WriteError",
    "__version__",
    "audit",
    "browse",
    "check",
    "convert",
    "diff",
    "explain",
    "fix",
    "graft",
    "latest",
    "list_rules",
    "load",
    "load_state_dict",
    "merge",
    "open",
    "prune",
    "rebuild",
    "report",
    "salvage",
    "seal",
    "show",
    "train",
    "undo",
    "verify",
    "watch",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("ckptdoctor")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
