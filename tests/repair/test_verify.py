"""Outputs that are not what was planned are found out, however small the difference."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Rename
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.errors import WriteError
from ckptdoctor.repair.plan import Plan, plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.writing import Copy, Literal, Recipe
from tests.repair.checkpoints import save


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    contents = {f"module.{name}": torch.arange(50_000.0) + ord(name) for name in "abc"}
    contents["module.d"] = contents["module.a"]
    path = save(contents, tmp_path / "model.pt")
    return plan(FixRequest(str(path), strip_module=True))


def refused(planned: Plan, said: str) -> None:
    """Repairing raises WriteError with these words, and leaves nothing."""
    folder = Path(planned.request.path).parent
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(WriteError, match=said):
        repair(planned)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def with_literals(planned: Plan, old: bytes, new: bytes) -> Plan:
    assert planned.recipe is not None
    assert any(old in each.data for each in planned.recipe.segments if isinstance(each, Literal))
    segments = [
        Literal(each.data.replace(old, new)) if isinstance(each, Literal) else each for each in planned.recipe.segments
    ]
    return replace(planned, recipe=Recipe(planned.recipe.source, tuple(segments)))


def expecting(planned: Plan, contents: Checkpoint) -> Plan:
    return replace(planned, wanted=replace(planned.wanted, contents=contents))


def test_the_untampered_plan_is_carried_out(planned: Plan):
    """The tests below tamper with this one."""
    assert repair(planned).proof is not None


def test_another_key_is_found(planned: Plan):
    """A writer that renames differently than the nouns say."""
    wrong = apply(planned.expected, [Rename((), (("b", "x"),))])
    refused(expecting(planned, wrong), 'the key "b" instead of "x"')


def test_another_shape_is_found(planned: Plan):
    """A tensor that is not as it was."""
    tensor = planned.expected.tensors[1]
    tree = planned.expected.tree
    entries = tuple((key, replace(node, shape=(25, 2000)) if node is tensor else node) for key, node in tree.entries)
    refused(
        expecting(planned, replace(planned.expected, tree=replace(tree, entries=entries))),
        "at b the tensor's shape",
    )


def test_swapped_storages_are_found(planned: Plan):
    """Two storages of equal length in each other's place: nothing but where the bytes came from tells."""
    assert planned.recipe is not None
    extents = [storage.extent for storage in planned.original.storages[:2]]
    one, other = (Copy(extent.offset, extent.length) for extent in extents)
    segments = []
    for segment in planned.recipe.segments:
        segments += split(segment, one, other) if isinstance(segment, Copy) else [segment]
    refused(
        replace(planned, recipe=Recipe(planned.recipe.source, tuple(segments))),
        "The values of a differ in the output",
    )


def split(segment: Copy, one: Copy, other: Copy) -> list[Copy]:
    """The copied range with the ranges of two storages exchanged where they lie in it."""
    made, at, end = [], segment.offset, segment.offset + segment.length
    for first, instead in sorted([(one, other), (other, one)], key=lambda pair: pair[0].offset):
        if at <= first.offset and first.offset + first.length <= end:
            made += [Copy(at, first.offset - at), instead]
            at = first.offset + first.length
    return [*made, Copy(at, end - at)]


def test_an_output_that_cannot_be_read_is_found(planned: Plan):
    """Its directory is broken."""
    refused(with_literals(planned, b"PK\x05\x06", b"PK\x05\x07"), "cannot be read back|not what was planned")


def test_a_class_that_the_original_does_not_name_is_found(planned: Plan, tmp_path_factory: pytest.TempPathFactory):
    """A plan and a writer that agree, on an output that torch would have to import something for."""
    path = save({"args": argparse.Namespace(lr=1)}, tmp_path_factory.mktemp("elsewhere") / "other.pt")
    with formats.opened(str(path)) as (source, container):
        expected = formats.read(source, container)
    recipe = Recipe(planned.request.path, (Literal(path.read_bytes()),))
    refused(
        replace(expecting(planned, expected), recipe=recipe),
        "names argparse.Namespace, which the original does not; it was discarded",
    )


def test_a_fix_that_did_not_help_is_found(planned: Plan):
    """A rule's finding that is still there in the file."""
    step = replace(planned.steps[0], label="N401", name="module-prefix")
    tampered = expecting(replace(planned, steps=(step,)), planned.original)
    assert planned.recipe is not None
    whole = Recipe(planned.recipe.source, (Copy(0, planned.original.size),))
    refused(replace(tampered, recipe=whole), "still has N401")
