"""Real files of torch, taken apart and put together again around the pickle that is under test."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ckptdoctor.checkpoint import Checkpoint, DType, Extent, Storage
from ckptdoctor.edits import Edit
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.formats.torch.patch.reconcile import reconcile
from ckptdoctor.formats.torch.read import Contents, interpret, storages_in
from ckptdoctor.formats.torch.read.storages import ZIP_ID
from ckptdoctor.pickles import Pickle, decode
from ckptdoctor.pickles.encode import encode, prove
from tests.builders import saving_tags

MEMBER = "archive/data.pkl"


class Table:
    """Storages that all lie in one imaginary file; ``asked`` counts the questions."""

    id_parts = ZIP_ID

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        self.asked.append(key)
        return Storage(key, nbytes, dtype, device, Extent("file", 0, nbytes))


@dataclass
class Saved:
    """What torch.save wrote: the pickle, and the bytes of every storage by key."""

    data: bytes
    storages: dict[str, bytes]


def save(value: object, protocol: int = 2) -> Saved:
    """The value as torch saves it, with the device tags that tests.builders.tagged gave."""
    buffer = io.BytesIO()
    with saving_tags():
        torch.save(value, buffer, pickle_protocol=protocol)
    with zipfile.ZipFile(buffer) as archive:
        names = {name.split("/", 1)[1]: name for name in archive.namelist()}
        storages = {name[5:]: archive.read(full) for name, full in names.items() if name.startswith("data/")}
        return Saved(archive.read(names["data.pkl"]), storages)


def contents_of(value: object, protocol: int = 2) -> Contents:
    """The nouns of the value, by way of the bytes that torch.save writes."""
    return contents_of_bytes(save(value, protocol).data)


def contents_of_bytes(data: bytes) -> Contents:
    return interpret(decode(data), Table(), MEMBER)


def as_checkpoint(contents: Contents) -> Checkpoint:
    """The contents as those of a file."""
    return Checkpoint(
        "file",
        "torch zip",
        0,
        contents.tree,
        contents.tensors,
        contents.storages,
        contents.state_dicts,
        contents.globals,
        notes=contents.notes,
    )


def edited(saved: Saved, edits: Sequence[Edit]) -> Saved:
    """The file with the edits applied, storages cut and made as planned."""
    pickle = decode(saved.data)
    prove(saved.data, pickle)
    contents = interpret(pickle, Table(), MEMBER)
    plans = reconcile(pickle, storages_in(pickle, Table(), MEMBER), wanted_of(as_checkpoint(contents), edits)).storages
    storages = {}
    for plan in plans:
        old = saved.storages.get(plan.old.key, b"")
        if plan.data is not None:
            made = plan.data
        elif plan.generate is not None:
            made = b"".join(plan.generate(lambda key, at, length: saved.storages[key][at : at + length]))
        else:
            made = b"".join([old[offset : offset + length] for offset, length in plan.pieces])
        assert len(made) == plan.nbytes
        storages[plan.key] = made
    return Saved(encode(pickle), storages)


def load(saved: Saved, *, weights_only: bool = True) -> object:
    """What torch.load makes of the file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", saved.data)
        archive.writestr("archive/byteorder", "little")
        for key, data in saved.storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    buffer.seek(0)
    return torch.load(buffer, weights_only=weights_only)


def decoded(value: object) -> Pickle:
    return decode(save(value).data)
