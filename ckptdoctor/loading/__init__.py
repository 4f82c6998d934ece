"""Contents with values: plain Python and CPU tensors. The only package that imports torch, and only when called."""

from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.load import load

__all__ = ["Inert", "load"]
