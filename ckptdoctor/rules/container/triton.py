"""Triton's server looks for a TorchScript model in a place of its own: ``MODEL/VERSION/model.pt``."""

from __future__ import annotations

import os
import re

from ckptdoctor.facts.siblings import folder_of, read_small
from ckptdoctor.regex import regex

_LIBTORCH = regex(r'^\s*(?:platform\s*:\s*"pytorch_libtorch"|backend\s*:\s*"pytorch")', re.MULTILINE)


def wants_torchscript(path: str) -> bool:
    """Whether the repository's ``config.pbtxt``, one folder up, asks for a script module in this place.

    A ``model.py`` beside it takes a state dict as well (the backend's models in Python).
    """
    name, version = os.path.basename(path), os.path.basename(os.path.dirname(path))
    if name != "model.pt" or not version.isdecimal() or "model.py" in folder_of(path).names:
        return False
    config = os.path.join(os.path.dirname(os.path.dirname(path)), "config.pbtxt")
    return _LIBTORCH.search(read_small(config)) is not None
