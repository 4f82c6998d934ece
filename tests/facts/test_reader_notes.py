"""Checkpoints that must not pass for the whole."""

from __future__ import annotations

import pytest

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.errors import DamagedError
from ckptdoctor.facts.reader_notes import is_salvaged_whole, require_every_file, salvage_advice
from tests.broken_shards import DAMAGE, folder, name


def test_what_saves_the_others(tmp_path):
    """Of shards the folder is named; of one file in another kind of folder, that file."""
    folder(tmp_path / "m")
    shards = formats.open_checkpoint(tmp_path / "m")
    assert is_salvaged_whole(shards)
    assert "recover every intact tensor into a new folder: ckptdoctor salvage FILE" in salvage_advice(shards, name(2))


UNREAD = [("bin", damage) for damage in DAMAGE] + [("safetensors", damage) for damage in DAMAGE if damage != "cut"]


@pytest.mark.parametrize(("suffix", "damage"), UNREAD)
def test_a_damaged_shard_is_named_with_what_to_do(tmp_path, suffix, damage):
    """Whatever became of the file: the path of the folder, the file, its tensors in the index, and the command."""
    folder(tmp_path / "a b", suffix, damage)
    with pytest.raises(DamagedError) as caught:
        require_every_file(ckptdoctor.open(tmp_path / "a b"))
    assert caught.value.message.startswith(f"{tmp_path / 'a b'}: {name(2, suffix)}")
    assert "with 8 tensors of the index" in caught.value.message
    assert caught.value.message.endswith(f"recover what is intact: ckptdoctor salvage '{tmp_path / 'a b'}'")


def test_where_nothing_is_whole_salvage_is_not_named(tmp_path):
    """A folder of which no tensor was read cannot be salvaged: check says more."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("<!DOCTYPE html><html><title>404</title></html>")
    with pytest.raises(DamagedError, match=r"or look closer: ckptdoctor check .*$"):
        require_every_file(ckptdoctor.open(tmp_path))


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
def test_a_whole_folder_passes(tmp_path, suffix):
    """With every shard there is nothing to say."""
    folder(tmp_path / "m", suffix)
    assert require_every_file(ckptdoctor.open(tmp_path / "m")) is None
