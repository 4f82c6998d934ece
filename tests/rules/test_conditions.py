"""What the tensors of a file are like, all together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.checkpoint import Checkpoint, Mapping
from ckptdoctor.rules import when
from ckptdoctor.rules.examples import Odict, T
from tests.rules import nouns

PLAIN = {"fc.weight": T((2, 3)), "fc.bias": T((2,))}


def _with(contents: dict[str, object], **changed: object) -> Checkpoint:
    """The contents, and each of these fields of the last tensor as it is given."""
    made = nouns.checkpoint(contents)
    *others, last = made.tensors
    return replace(made, tensors=(*others, replace(last, **changed)))


@pytest.mark.parametrize(
    ("contents", "flat"),
    [
        (PLAIN, True),
        (Odict(dict(PLAIN), {"": {"version": 1}}), True),
        ({**PLAIN, "epoch": 3}, False),
        ({"model": dict(PLAIN)}, False),
        ({**PLAIN, "model": dict(PLAIN)}, False),
        ({**PLAIN, 7: T((2,))}, False),
        ([T((2,))], False),
        ({}, False),
    ],
    ids=["tensors", "with metadata", "a number", "nested", "both", "a number for a key", "a list", "nothing"],
)
def test_flat_is_a_dict_of_tensors_under_texts(contents: object, flat: bool) -> None:
    """Anything else in the file, or a tensor under another key, and it is not flat."""
    assert when.is_flat(nouns.checkpoint(contents)) is flat


def test_metadata_of_versions_holds_only_numbers() -> None:
    """What ``_metadata`` usually has; a text in it is more."""
    versions = nouns.checkpoint(Odict(dict(PLAIN), {"": {"version": 1}, "fc": {"version": 1}}))
    assert when.has_only_versions(versions)
    assert when.has_only_versions(nouns.checkpoint(PLAIN))
    attributes = Mapping("dict", (("_metadata", Mapping("dict", (("", "mine"),))),))
    assert isinstance(versions.tree, Mapping)
    assert not when.has_only_versions(replace(versions, tree=replace(versions.tree, attributes=attributes)))


def test_plain_tensors_fill_storages_of_their_own() -> None:
    """Each views all of its storage, in order, on the CPU."""
    plain = nouns.checkpoint(PLAIN)
    assert when.fill_their_storages(plain)
    assert when.in_c_order(plain)
    assert when.on_the_cpu(plain)
    assert not when.has_composed_tensors(plain)


@pytest.mark.parametrize(
    "changed",
    [{"offset": 1}, {"shape": (1,)}, {"storage": None}, {"stride": (2,)}, {"subclass": "m.C"}, {"layout": "jagged"}],
    ids=lambda changed: next(iter(changed)),
)
def test_one_strange_tensor_is_enough(changed: dict[str, object]) -> None:
    """Another place in the storage, a part of it, another order, another class: then it has to be looked at."""
    assert not when.fill_their_storages(_with(PLAIN, **changed))


def test_a_shared_storage_is_seen() -> None:
    """Two tensors that view all of one storage do not have it to themselves."""
    first = nouns.checkpoint({"a": T((2,)), "b": T((2,))}).tensors[0]
    assert not when.fill_their_storages(_with({"a": T((2,)), "b": T((2,))}, storage=first.storage))


def test_a_device_is_seen() -> None:
    """Of a tensor, and of its storage."""
    assert not when.on_the_cpu(nouns.checkpoint({"a": T((2,), device="cuda:0")}))
    assert not when.on_the_cpu(_with(PLAIN, device="xla:0"))
