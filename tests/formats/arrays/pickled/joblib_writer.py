"""Writes uncompressed files as ``joblib.dump`` does (joblib 0.10 to 1.6): arrays follow their objects in the stream.

The classes and names are joblib's own; NumpyPickler of joblib.numpy_pickle shows where each byte comes from.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import ModuleType
from typing import Any

import numpy as np

_ALIGNMENT = 16


class NumpyArrayWrapper:
    """What stands for an array in the pickle."""

    def __init__(self, array: np.ndarray, aligned: bool) -> None:
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        self.subclass = type(array)
        self.shape = array.shape
        self.order = "F" if fortran else "C"
        self.dtype = array.dtype
        self.allow_mmap = not array.dtype.hasobject
        if aligned:  # since joblib 1.2
            self.numpy_array_alignment_bytes = _ALIGNMENT


NumpyArrayWrapper.__module__ = "joblib.numpy_pickle"


class _Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """The pickler of Python, with arrays written behind their objects."""

    def __init__(self, file: io.BytesIO, protocol: int, aligned: bool) -> None:
        super().__init__(file, protocol)
        self.file_handle = file
        self.aligned = aligned

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if type(obj) not in (np.ndarray, np.matrix):
            super().save(obj)
            return
        super().save(NumpyArrayWrapper(obj, self.aligned))
        if self.proto >= 4:
            self.framer.commit_frame(force=True)
        if obj.dtype.hasobject:
            pickle.dump(obj, self.file_handle, protocol=2)
            return
        if self.aligned:
            padding = _ALIGNMENT - (self.file_handle.tell() + 1) % _ALIGNMENT
            self.file_handle.write(bytes([padding]) + b"\xff" * padding)
        fortran = obj.flags.f_contiguous and not obj.flags.c_contiguous
        self.file_handle.write(obj.tobytes("F" if fortran else "C"))


def joblib_bytes(value: Any, protocol: int = 4, *, aligned: bool = True) -> bytes:
    """The file for ``value``; joblib before 1.2 did not align its arrays."""
    modules = {"joblib": ModuleType("joblib"), "joblib.numpy_pickle": ModuleType("joblib.numpy_pickle")}
    modules["joblib.numpy_pickle"].NumpyArrayWrapper = NumpyArrayWrapper  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        file = io.BytesIO()
        _Pickler(file, protocol, aligned).dump(value)
        return file.getvalue()
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
