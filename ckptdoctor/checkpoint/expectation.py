"""What a target expects to load: key → shape and dtype, wherever that was learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.checkpoint.keypath import ROOT, KeyPath


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected tensor; ``dtype`` is None where the source of the expectation does not say."""

    shape: tuple[int, ...]
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Every key that the target expects. ``source`` is what people call it: a path, ``nets:ResNet50``.

    ``root`` is where its keys lie in its own file (``()`` at the top): a file laid out alike is not nested too deep.
    ``option`` is how to name it on the command line, such as ``--like other.pt``; "" where it was not named there.
    """

    source: str
    tensors: Mapping[str, Expected]
    root: KeyPath = ROOT
    option: str = ""
