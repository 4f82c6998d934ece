"""Open any checkpoint without running it, say what is wrong, and repair it losslessly.

    import ckptdoctor

    checkpoint = ckptdoctor.open("model.pt")      # headers only; nothing is run
    report = ckptdoctor.check("model.pt")         # findings, worst first
    repaired = ckptdoctor.fix("model.pt")         # a new file beside it, verified
    ckptdoctor.convert("model.pt", "model.safetensors")     # the same tensors in another container
    ckptdoctor.graft("damaged.pt", "copy.pt")     # damaged tensors from another copy, all else as it was
    difference = ckptdoctor.diff("a.pt", "b.safetensors", values=True)   # what changed, and by how much
    contents = ckptdoctor.load("model.pt")        # plain Python with CPU tensors; framework="np": arrays of NumPy
    weights = ckptdoctor.load_state_dict("model.pt", net)   # what net.load_state_dict takes, or why there is none

Every name is imported when it is first used, so that ``import ckptdoctor`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckptdoctor.api import check, convert, diff, fix, graft, open
    from ckptdoctor.checkpoint import Checkpoint, Tensor
    from ckptdoctor.checkpoint.expectation import Expected, Reference
    from ckptdoctor.differences import Difference
    from ckptdoctor.edits.conversion import ConvertReport
    from ckptdoctor.edits.grafts import GraftReport
    from ckptdoctor.errors import CkptDoctorError
    from ckptdoctor.findings import FileReport, Finding, RepairReport, Report, Severity
    from ckptdoctor.fit.state_dict import load_state_dict
    from ckptdoctor.loading.load import load

__version__: str

__all__ = [
    "Checkpoint",
    "CkptDoctorError",
    "ConvertReport",
    "Difference",
    "Expected",
    "FileReport",
    "Finding",
    "GraftReport",
    "Reference",
    "RepairReport",
    "Report",
    "Severity",
    "Tensor",
    "__version__",
    "check",
    "convert",
    "diff",
    "fix",
    "graft",
    "load",
    "load_state_dict",
    "open",
]

# Public name → the module that holds it
_HOMES = {
    "Checkpoint": "ckptdoctor.checkpoint",
    "CkptDoctorError": "ckptdoctor.errors",
    "ConvertReport": "ckptdoctor.edits.conversion",
    "Difference": "ckptdoctor.differences",
    "Expected": "ckptdoctor.checkpoint.expectation",
    "FileReport": "ckptdoctor.findings",
    "Finding": "ckptdoctor.findings",
    "GraftReport": "ckptdoctor.edits.grafts",
    "Reference": "ckptdoctor.checkpoint.expectation",
    "RepairReport": "ckptdoctor.findings",
    "Report": "ckptdoctor.findings",
    "Severity": "ckptdoctor.findings",
    "Tensor": "ckptdoctor.checkpoint",
    "check": "ckptdoctor.api",
    "convert": "ckptdoctor.api",
    "diff": "ckptdoctor.api",
    "fix": "ckptdoctor.api",
    "graft": "ckptdoctor.api",
    "load": "ckptdoctor.loading",
    "load_state_dict": "ckptdoctor.fit.state_dict",
    "open": "ckptdoctor.api",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("ckptdoctor")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
