"""Lists of names in code that are built to take forever, and modules in modules."""

from __future__ import annotations

import pytest

from ckptdoctor.checkpoint import Mapping, Opaque
from ckptdoctor.errors import HostileError
from ckptdoctor.formats.torch.script import contents as module
from ckptdoctor.formats.torch.script.contents import Attributes, _attributes
from tests.work import growth


def test_quotes_without_an_end():
    """They are gone through once: ten times as many are ten times the work, not a hundred times."""
    texts = {number: '  __parameters__ = ["' + '\\"' * number + "]\n" for number in (50_000, 500_000)}
    assert growth(lambda number: _attributes(texts[number]), 50_000, 500_000) < 40
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
    with pytest.raises(HostileError, match="never end"):
        module.state_of(made, Known())
