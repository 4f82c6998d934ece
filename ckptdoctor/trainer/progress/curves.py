"""The page of a run: ``curves.html``, one file that needs nothing else, made of the records of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.trainer.progress.files import replace
from ckptdoctor.trainer.progress.metrics import Record
from ckptdoctor.trainer.progress.page import page


def write(path: str, metrics: Sequence[Record], title: str) -> None:
    """Write the page of these records to ``path``, which at every moment is a whole page. Raises WriteError."""
    replace(path, page(metrics, title).encode())
