"""Loads the machine code of torch beforehand, while other threads go on."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

_LIBRARY = os.path.join("lib", "libtorch_python.so")  # and what it needs: libtorch_cpu.so, which is most of it


def load_beforehand() -> None:
    """Load what ``import torch`` would load while it keeps every other thread waiting, for a quarter of a second.

    A call of a function in C does not. Where the library is not to be found, or not to be loaded, nothing is done:
    importing finds it, or says what is wrong.
    """
    if "torch" in sys.modules or sys.platform != "linux":
        return
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(folder, _LIBRARY)
        if os.path.exists(path):
            _load(path)


def _load(path: str) -> None:
    from ctypes import CDLL, c_char_p, c_int, c_void_p

    load = CDLL(None).dlopen
    load.argtypes, load.restype = (c_char_p, c_int), c_void_p
    load(os.fsencode(path), os.RTLD_NOW)
