"""Recognises zip archives that are not torch checkpoints, by the names in their directory."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import DamagedError, NotACheckpointError
from ckptdoctor.formats.recognise.magic import Found
from ckptdoctor.formats.recognise.members import checkpoints_in

_LOCAL = b"PK\x03\x04"
_EMPTY = b"PK\x05\x06"

_TORCHSCRIPT = "torch.jit.load opens it, but its module (data.pkl) is not where torch has put it since 1.4."
_EXPORTED = "It has no list of weights besides its program: they are compiled into it, or are in another file."
_PACKAGE = "torch.package.PackageImporter opens it, and runs the code in it."
_KERAS = "keras.saving.load_model reads it; it is not a torch checkpoint."
_SERVE = "TorchServe serves it; unpack it (unzip FILE) for the checkpoint inside."
_REPACKED = (
    "It holds the parts of a torch checkpoint, but not in one folder at the top: it was unpacked and packed "
    "again. Unpack it, and pack the folder that has data.pkl with zip -0 -r model.pt FOLDER."
)
_CUT = (
    "It is damaged or incomplete: its central directory is missing. Download it again; ckptdoctor salvage recovers "
    "nothing from it."
)
_SHARD = (
    "It is a part of a distributed checkpoint: torch.distributed.checkpoint.format_utils.dcp_to_torch_save "
    "joins the folder that it is in."
)


def recognise_zip(source: Source, head: bytes) -> Found | None:
    """Return a zip archive by what it holds. One without a directory is said to be cut off."""
    if not head.startswith((_LOCAL, _EMPTY)):
        return None
    try:
        names = _names(source)
    except NotACheckpointError:  # several archives, one behind the other
        return Found("torch distributed checkpoint shard", _SHARD)
    except DamagedError:
        return Found("zip archive", _CUT)
    name, guidance = _kind(names)
    return Found(name, guidance)


def _names(source: Source) -> list[str]:
    from ckptdoctor.formats.torch.zip.central_directory import find_end, read_entries
    from ckptdoctor.formats.torch.zip.records import Remarks

    remarks = Remarks()
    return [
        entry.name.encode("utf-8", "backslashreplace").decode()
        for entry in read_entries(source, find_end(source, remarks), remarks)
    ]


def _kind(names: Sequence[str]) -> tuple[str, str]:
    inner = {name.partition("/")[2] for name in names}
    last = {name.rpartition("/")[2] for name in names}
    if "archive_format" in inner or "serialized_exported_program.json" in names:
        return "torch.export program", _EXPORTED
    if "constants.pkl" in inner:
        return "TorchScript archive", _TORCHSCRIPT
    if ".data/python_version" in inner or ".data/extern_modules" in inner:
        return "torch.package archive", _PACKAGE
    if "model.weights.h5" in names and "config.json" in names:
        return "Keras archive", _KERAS
    if "MAR-INF/MANIFEST.json" in names:
        return "TorchServe archive", _SERVE
    if "data.pkl" in last and last & {"version", "byteorder", ".data/version"}:
        return "zip archive", _REPACKED
    return "zip archive", checkpoints_in([name for name in names if not name.endswith("/")], "unzip FILE")
