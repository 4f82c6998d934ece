"""What the target of a checkpoint expects: key → shape and dtype. One file for each way to learn it."""

from ckptdoctor.checkpoint.expectation import Expected, Reference

__all__ = ["Expected", "Reference"]
