"""Screens and reports as they must look, in files that can be read and reviewed."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent


def golden(name, text):
    """Hold ``text`` against the file ``name``; with UPDATE_GOLDEN=1 write it instead."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")
