"""Writes files as ``torch.save`` of torch 0.1.9 did: a tar archive of a pickle, its tensors and its storages."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from typing import Any

import pytest
import torch
from torch import nn

# torch unpacks what we wrote ourselves in the way that Python 3.12 and 3.13 say will be another one in 3.14
UNFILTERED = pytest.mark.filterwarnings("ignore:Python 3.14 will, by default, filter extracted tar:DeprecationWarning")


def tar_bytes(obj: Any, protocol: int = 2) -> bytes:
    """The file for ``obj``."""
    return packed(members_of(obj, protocol))


def members_of(obj: Any, protocol: int = 2) -> dict[str, bytes]:
    """The members of the file for ``obj``."""
    writer = _Writer(protocol)
    members = {"sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True}, protocol)}
    members["pickle"] = writer.pickle(obj)
    members["tensors"] = writer.tensors()
    members["storages"] = writer.storages()
    return members


def packed(members: dict[str, bytes]) -> bytes:
    """A tar archive with these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class _Writer:
    """Gathers what the pickle names, as the functions inside ``torch.save`` of 0.1.9 did."""

    def __init__(self, protocol: int) -> None:
        self.protocol = protocol
        self.classes: set[type] = set()
        self.found: dict[int, torch.Tensor] = {}
        self.kept: dict[int, tuple[int, Any]] = {}

    def pickle(self, obj: Any) -> bytes:
        buffer = io.BytesIO()
        pickler = pickle._Pickler(buffer, self.protocol)  # type: ignore[attr-defined]
        pickler.persistent_id = self.persistent_id
        pickler.dump(obj)
        return buffer.getvalue()

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, type) and issubclass(obj, nn.Module) and obj not in self.classes:
            self.classes.add(obj)
            return (obj, None, None)
        if isinstance(obj, torch.Tensor) and not isinstance(obj, nn.Parameter):
            self.found[obj._cdata] = obj
            return str(obj._cdata)
        return None

    def tensors(self) -> bytes:
        made = [pickle.dumps(len(self.found), self.protocol)]
        for key, tensor in self.found.items():
            storage = tensor.storage()
            number = self.kept.setdefault(storage.data_ptr(), (7_000_000 + len(self.kept), storage))[0]
            made.append(pickle.dumps((key, number, getattr(torch, tensor.type().rpartition(".")[2])), self.protocol))
            made.append(struct.pack("<ii", tensor.dim(), 0))
            made.append(
                struct.pack(f"<{tensor.dim()}q", *tensor.shape) + struct.pack(f"<{tensor.dim()}q", *tensor.stride())
            )
            made.append(struct.pack("<q", tensor.storage_offset()))
        return b"".join(made)

    def storages(self) -> bytes:
        made = [pickle.dumps(len(self.kept), self.protocol)]
        for key, storage in self.kept.values():
            kind = getattr(torch, _class(storage.dtype))
            made.append(pickle.dumps((key, "cpu", kind), self.protocol))
            made.append(struct.pack("<q", len(storage)) + _raw(storage.untyped()))
        return b"".join([*made, pickle.dumps([], self.protocol)])


def _raw(storage: torch.UntypedStorage) -> bytes:
    """Its bytes: ``bytes`` of it would take them one by one."""
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()


def _class(dtype: torch.dtype) -> str:
    from ckptdoctor.checkpoint.dtypes import BY_NAME

    return BY_NAME[str(dtype).removeprefix("torch.")].storage_class or ""
