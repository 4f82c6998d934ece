"""A target expects keys, shapes and dtypes. There is one file for each way to learn them."""

from ckptdoctor.checkpoint.expectation import Expected, Reference

__all__ = ["Expected", "Reference"]
