"""Reads what torch's pickles mean: from a pickle graph to the nouns of a checkpoint."""

from __future__ import annotations

from ckptdoctor.formats.torch.read.interpret import Contents, interpret, storages_in
from ckptdoctor.formats.torch.read.storages import StorageTable

__all__ = ["Contents", "StorageTable", "interpret", "storages_in"]
