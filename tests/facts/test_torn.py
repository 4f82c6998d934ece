"""Folders of which a file is cut off: which tensors that tears, and what saves the others."""

from __future__ import annotations

from ckptdoctor import formats
from ckptdoctor.facts.torn import is_salvaged_whole, salvage_advice, torn_by_file
from tests.broken_shards import SECOND, folder, name


def test_torn_tensors_are_those_from_the_cut_on(tmp_path):
    """One that lies across the cut, and those of which nothing is there."""
    folder(tmp_path / "m", damage="cut")
    checkpoint = formats.open_checkpoint(tmp_path / "m")
    torn = torn_by_file(checkpoint, [name(2), name(3)])
    assert list(torn) == [name(2), name(3)]
    assert [path[-1] for path in torn[name(2)]] == sorted(SECOND)[3:]
    assert torn[name(3)] == ()


def test_nothing_of_a_whole_folder_is_torn(tmp_path):
    """Every byte is there."""
    folder(tmp_path / "m")
    assert torn_by_file(formats.open_checkpoint(tmp_path / "m"), [name(2)]) == {name(2): ()}


def test_what_saves_the_others(tmp_path):
    """Of shards the folder is named; of one file in another kind of folder, that file."""
    folder(tmp_path / "m")
    shards = formats.open_checkpoint(tmp_path / "m")
    assert is_salvaged_whole(shards)
    assert "ckptdoctor salvage FILE saves every tensor" in salvage_advice(shards, name(2))
