"""What a repair does, as data: the same edits feed the preview, ``--diff``, JSON, the browser and the writer."""

from ckptdoctor.edits.fix import Fix, Safety
from ckptdoctor.edits.kinds import (
    Compact,
    Convert,
    Drop,
    Edit,
    Flatten,
    MakeContiguous,
    MoveToCpu,
    Rename,
    RenameModules,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    Truncate,
)

__all__ = [
    "Compact",
    "Convert",
    "Drop",
    "Edit",
    "Fix",
    "Flatten",
    "MakeContiguous",
    "MoveToCpu",
    "Rename",
    "RenameModules",
    "Replace",
    "Retag",
    "Safety",
    "SetMetadata",
    "SetSuffix",
    "TakeRoot",
    "Truncate",
]
