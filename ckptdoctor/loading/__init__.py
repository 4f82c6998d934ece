"""Loads contents with values: plain Python and CPU tensors. This package imports torch, and only when called."""

from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.load import load

__all__ = ["Inert", "load"]
