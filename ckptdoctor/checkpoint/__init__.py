"""Defines what a checkpoint is made of. Standard library only; everything may import this package."""

from ckptdoctor.checkpoint.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    FileIdentity,
    GlobalName,
    LookUp,
    Lying,
    Role,
    StateDict,
)
from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.checkpoint.keypath import ROOT, KeyPath, Part, Special, show_part, show_path
from ckptdoctor.checkpoint.notes import Note, NoteKind
from ckptdoctor.checkpoint.source import FileSource, FolderSource, Source
from ckptdoctor.checkpoint.tensor import Extent, Storage, Tensor
from ckptdoctor.checkpoint.tree import Cycle, Elided, Mapping, Named, Node, Opaque, Sequence, at, children, walk

__all__ = [
    "ROOT",
    "Aside",
    "Checkpoint",
    "Container",
    "Cycle",
    "DType",
    "Elided",
    "Extent",
    "FileIdentity",
    "FileSource",
    "FolderSource",
    "GlobalName",
    "KeyPath",
    "LookUp",
    "Lying",
    "Mapping",
    "Named",
    "Node",
    "Note",
    "NoteKind",
    "Opaque",
    "Part",
    "Role",
    "Sequence",
    "Source",
    "Special",
    "StateDict",
    "Storage",
    "Tensor",
    "at",
    "children",
    "show_part",
    "show_path",
    "walk",
]
