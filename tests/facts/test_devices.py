"""What loading moves to a device, and what it does not."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.facts import devices
from ckptdoctor.rules.examples import T
from tests.rules import nouns


def test_what_loading_moves_is_told_from_what_is_tagged() -> None:
    """A copy on the CPU is tagged cpu, and its tensor belongs on the device."""
    found = nouns.checkpoint(
        {"a": T((2,), device="xla:0", saved_as="copy"), "b": T((2,), device="cuda:0"), "c": T((2,))}
    )
    assert {device: [each.key for each in tensors] for device, tensors in devices.moved(found).items()} == {
        "xla:0": ["a"]
    }
    assert [storage.device for storage in found.storages] == ["cpu", "cuda:0", "cpu"]
    assert devices.names_of_arrays(found) == frozenset()


def test_wrappers_and_tensors_without_values_are_not_moved() -> None:
    """A meta tensor has no values to move; a wrapper's device is what it says of itself."""
    [tensor] = nouns.checkpoint({"a": T((2,))}).tensors
    assert not replace(tensor, storage=None, device="meta").moved
    assert not replace(tensor, storage=None, device="cuda", subclass="DTensor", parts=(tensor,)).moved
    assert replace(tensor, storage=None, device="xla:0").moved
