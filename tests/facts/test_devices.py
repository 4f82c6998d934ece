"""Device tags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.facts import devices
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import T
from tests.rules import nouns


@pytest.mark.parametrize(
    ("tag", "backend", "index", "cuda"),
    [
        ("cpu", "cpu", 0, False),
        ("cuda", "cuda", 0, True),
        ("cuda:7", "cuda", 7, True),
        ("cuda:x", "cuda", None, False),
        ("cuda:٣", "cuda", None, False),
        ("cuda:" + "9" * 5000, "cuda", None, False),
        ("cudax", "cudax", 0, False),
        ("xla:0", "xla", 0, False),
        ("", "", 0, False),
    ],
)
def test_tags_are_taken_apart(tag: str, backend: str, index: int | None, cuda: bool) -> None:
    """Backend and index; an index that is no small number is none."""
    assert (tags.backend(tag), tags.device_index(tag), tags.is_cuda(tag)) == (backend, index, cuda)


def test_storages_are_counted_without_generator_states() -> None:
    """The state of a generator is not among the tagged storages, unless asked for."""
    found = nouns.checkpoint({"a.weight": T((2,), device="mps"), "rng": T((5056,), "uint8", "cuda:0")})
    assert {tag: len(storages) for tag, storages in tags.tagged(found).items()} == {"mps": 1}
    assert set(tags.tagged(found, rng=True)) == {"mps", "cuda:0"}


def test_what_loading_moves_is_told_from_what_is_tagged() -> None:
    """A copy on the CPU is tagged cpu, and its tensor belongs on the device."""
    found = nouns.checkpoint(
        {"a": T((2,), device="xla:0", saved_as="copy"), "b": T((2,), device="cuda:0"), "c": T((2,))}
    )
    assert {device: [each.key for each in tensors] for device, tensors in devices.moved(found).items()} == {
        "xla:0": ["a"]
    }
    assert {tag: len(storages) for tag, storages in tags.tagged(found).items()} == {"cpu": 2, "cuda:0": 1}
    assert devices.names_of_arrays(found) == frozenset()


def test_wrappers_and_tensors_without_values_are_not_moved() -> None:
    """A meta tensor has no values to move; a wrapper's device is what it says of itself."""
    [tensor] = nouns.checkpoint({"a": T((2,))}).tensors
    assert not replace(tensor, storage=None, device="meta").moved
    assert not replace(tensor, storage=None, device="cuda", subclass="DTensor", parts=(tensor,)).moved
    assert replace(tensor, storage=None, device="xla:0").moved
