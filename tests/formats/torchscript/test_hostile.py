"""Lists of names in code that are built to take forever, and modules in modules."""

from __future__ import annotations

import time

import pytest

from ckptdoctor.checkpoint import Mapping, Opaque
from ckptdoctor.errors import HostileError
from ckptdoctor.formats.torchscript import module
from ckptdoctor.formats.torchscript.classes import Attributes, _attributes


def test_quotes_without_an_end():
    """They are gone through once."""
    started = time.process_time()
    _attributes('  __parameters__ = ["' + '\\"' * 500_000 + "]\n")
    assert time.process_time() - started < 2
    assert _attributes('  __parameters__ = ["a", "b\\"c", ]\n').parameters == {"a", 'b\\"c'}


def test_names_without_an_end(monkeypatch):
    """One module in two places of one that is in two places, and so on, is refused."""

    class Known:
        def find(self, name):
            return Attributes(frozenset(), frozenset())

    monkeypatch.setattr(module, "_MOST_TEXT", 1 << 20)
    made = Opaque("__torch__.M", state=Mapping("dict", ()))
    for _ in range(30):
        made = Opaque("__torch__.M", state=Mapping("dict", (("a" * 100, made), ("b", made))))
    with pytest.raises(HostileError, match="no end"):
        module.state_of(made, Known())
