"""Runs of bytes: where the values of tensors lie."""

from __future__ import annotations

from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.noun import noun


@noun
class Extent:
    """``length`` bytes at ``offset`` of the file ``file``."""

    file: str
    offset: int
    length: int


@noun
class Storage:
    """A run of bytes that one or more tensors view.

    ``nbytes`` is the length that the checkpoint declares; ``extent`` says where the bytes really lie
    (None: they are not in the file; ``extent.length != nbytes``: the record has another length).
    ``crc32`` is the stored checksum, None where the container has none or did not compute it.
    ``compressed`` is true for a deflated zip record: the extent then covers the compressed bytes.
    """

    key: str
    nbytes: int
    dtype: DType | None
    device: str
    extent: Extent | None
    crc32: int | None = None
    compressed: bool = False
