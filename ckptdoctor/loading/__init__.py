"""Loads contents with values: plain Python, with tensors of torch or arrays of NumPy, imported when called."""

from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.load import load

__all__ = ["Inert", "load"]
