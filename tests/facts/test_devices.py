"""Device tags."""

from __future__ import annotations

import pytest

from ckptdoctor.facts import devices
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
    assert (devices.backend(tag), devices.index(tag), devices.is_cuda(tag)) == (backend, index, cuda)


def test_storages_are_counted_without_generator_states() -> None:
    """The state of a generator is not among the tagged storages, unless asked for."""
    found = nouns.checkpoint({"a.weight": T((2,), device="mps"), "rng": T((5056,), "uint8", "cuda:0")})
    assert {tag: len(storages) for tag, storages in devices.tagged(found).items()} == {"mps": 1}
    assert set(devices.tagged(found, rng=True)) == {"mps", "cuda:0"}
