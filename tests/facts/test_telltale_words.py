"""The words by which a kind of key is known at first sight."""

from __future__ import annotations

import pytest

from ckptdoctor.facts import adapters, names
from ckptdoctor.rules.sharding import layer_lists


@pytest.mark.parametrize("parameter", sorted(adapters.PARAMETERS))
def test_every_parameter_of_an_adapter_holds_a_mark(parameter: str) -> None:
    """A file in which none of the words stands has no adapter."""
    assert any(word in parameter for word in names.ADAPTERS)


def test_every_list_of_layers_ends_with_a_mark() -> None:
    """What models call such a list ends with one of the words, and a dot follows it."""
    assert all(f"{name}.".endswith(names.LAYER_LISTS) for name in layer_lists.LISTS)
