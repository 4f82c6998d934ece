"""A pickle machine that never imports, calls, looks up, hashes or compares what a file holds: bytes → graph → bytes.

What writes (``encode.py``) is imported by those who write: a check only reads.
"""

from __future__ import annotations

from ckptdoctor.pickles.decode import decode
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Ambiguity,
    Constant,
    Extension,
    Global,
    GlobalUse,
    Made,
    Mutation,
    PersistentId,
    Pickle,
    PickleNode,
    Popped,
    Revisit,
    String,
    Tuple,
    Value,
    Verbatim,
    plain,
)
from ckptdoctor.pickles.machine import Budgets

__all__ = [
    "NO_MEMO",
    "Ambiguity",
    "Budgets",
    "Constant",
    "Extension",
    "Global",
    "GlobalUse",
    "Made",
    "Mutation",
    "PersistentId",
    "Pickle",
    "PickleNode",
    "Popped",
    "Revisit",
    "String",
    "Tuple",
    "Value",
    "Verbatim",
    "decode",
    "plain",
]
