"""Contents with values: plain Python, with CPU tensors of torch or arrays of NumPy, imported only when called."""

from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.load import load

__all__ = ["Inert", "load"]
