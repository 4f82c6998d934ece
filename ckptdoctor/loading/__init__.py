"""Loads contents with values: plain Python, and tensors on the CPU. Torch is imported only when called."""

from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.load import load

__all__ = ["Inert", "load"]
