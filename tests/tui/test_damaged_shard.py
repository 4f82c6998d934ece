"""A folder with a damaged shard in the browser: what is missing, and what of the shard can be saved."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ckptdoctor.findings import Location
from ckptdoctor.rendering.fates import damaged_file
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.damaged import DamagedScreen
from ckptdoctor.tui.widgets.bars import KeyBar
from ckptdoctor.tui.widgets.findings import FindingsView
from tests.broken_shards import SECOND, folder, name
from tests.tui import browse, text_of, walk

FINDINGS = ("tab", "tab")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes the folder ``m``, where the browser runs."""
    monkeypatch.chdir(tmp_path)
    return lambda *args, **options: folder("m", *args, **options)


def where(app):
    """The screen that is open, and its file."""
    return type(app.screen), getattr(app.screen, "path", None)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *(("safetensors", damage) for damage in ("beheaded", "zeroed", "page", "pointer")),
        ("bin", "beheaded"),
        *(pytest.param("bin", damage, marks=pytest.mark.slow) for damage in ("zeroed", "page", "pointer")),
    ],
)
def test_enter_on_the_finding_opens_the_shard(suffix, damage, made):
    """None of its tensors is in the tree: what there is to see is the file, and escape leads back."""
    shard = made(suffix, damage)
    stages = ((*FINDINGS, "enter"), ("escape",))
    assert walk("m", *stages, look=where) == [(DamagedScreen, shard), (BrowserScreen, "m")]


def test_the_pane_of_the_finding_lists_the_keys(made):
    """With the command that saves the rest, as it can be copied."""
    made("bin", "page")
    text = browse("m", *FINDINGS, size=(200, 50))
    assert "8 keys" in text and all(key in text for key in SECOND)
    assert "ckptdoctor salvage m" in " ".join(text.split())
    assert "Press s to see what is intact in the file" in " ".join(" ".join(text.split("│")).split())


def test_a_cut_archive_shows_what_is_whole_of_it(made):
    """Tensor by tensor, as of a file by itself."""
    shard = made("bin", "cut")
    text = browse("m", *FINDINGS, "enter")
    assert shard in text and "cannot be read" in text
    assert "● model.layers.3.d.weight" in text and "esc back" in text.splitlines()[-1]


def test_what_is_whole_of_a_shard_is_saved_and_opened(made):
    """Beside it, and the folder is not mistaken for another by it."""
    made("bin", "cut")
    saved = os.path.join("m", name(2, "bin").replace(".bin", ".salvaged.bin"))
    assert browse("m", "s", "s", "enter", "enter", look=where) == (BrowserScreen, saved)
    assert browse("m", look=lambda app: app.screen.opened.checkpoint.format) == "sharded Hugging Face checkpoint"


def test_enter_goes_to_a_torn_tensor_and_s_to_its_file(made):
    """Where the header of a cut shard is whole, its tensors are in the tree, with a mark."""
    shard = made("safetensors", "cut")

    def under_the_cursor(app):
        return app.screen.focused.id, app.screen.opened.table.tensors[app.screen.focused.line().item].key

    torn = sorted(SECOND)[3]
    assert browse("m", *FINDINGS, "enter", look=under_the_cursor) == ("tree", torn)
    stages = ((*FINDINGS, "s"), ("escape",), ("tab", "s"))
    found = walk("m", *stages, look=lambda app: (where(app), text_of(app)))
    assert [place for place, _ in found] == [(DamagedScreen, shard), (BrowserScreen, "m"), (DamagedScreen, shard)]
    assert "incomplete" in found[-1][1]


def test_a_missing_shard_has_nothing_to_open(made):
    """Enter says that the first of its keys is not there; s does nothing, and is not offered."""
    made(damage="missing")

    def look(app):
        return where(app), [each.message for each in app._notifications], app.screen.focused.id, text_of(app)

    stages = (("s",), (*FINDINGS, "s"), ("enter",), ("ctrl+p",))
    found = walk("m", *stages, look=look, size=(120, 60))
    assert [each[0] for each in found[:3]] == [(BrowserScreen, "m")] * 3
    assert found[2][1:3] == ([f"{SECOND[0]} is not in the checkpoint."], "tree")
    assert "Show what is intact in a damaged file" not in found[3][3] and "Read every byte" in found[3][3]


def test_the_palette_offers_it(made):
    """From every pane, where a file is damaged."""
    shard = made("bin", "zeroed")

    def look(app):
        return where(app), text_of(app)

    listed, chosen = walk("m", ("colon",), ("text:what is intact", "enter"), look=look, size=(120, 60))
    assert "Show what is intact in a damaged file" in listed[1]
    assert chosen[0] == (DamagedScreen, shard)


def test_a_cut_file_that_can_be_browsed_is_salvaged_too(made, tmp_path):
    """A safetensors file whose header is whole opens as a tree: s shows what of it can be saved."""
    os.rename(made("safetensors", "cut"), "cut.safetensors")
    seen = [(BrowserScreen, "cut.safetensors"), (DamagedScreen, "cut.safetensors")]
    assert walk("cut.safetensors", (), ("s",), look=where) == seen


def test_of_a_whole_file_s_does_nothing():
    """It is not among the commands either."""
    stages = (("s",), ("ctrl+p",))
    found = walk("resnet.pt", *stages, look=lambda app: (where(app), text_of(app)), size=(120, 60))
    assert found[0][0] == (BrowserScreen, "resnet.pt")
    assert "Show what is intact in a damaged file" not in found[1][1] and "Read every byte" in found[1][1]


def test_the_footer_has_eight_keys_at_most(made):
    """More would be clutter: in the tree, among the findings, and of a shard."""
    made("bin", "cut")
    assert max(walk("m", (), FINDINGS, ("s",), look=lambda app: len(app.screen.query_one(KeyBar).keys))) <= 8


def test_loose_files(made, tmp_path):
    """The only file of a folder that is no checkpoint is opened."""
    (tmp_path / "loose").mkdir()
    os.rename(made("bin", "page"), tmp_path / "loose" / "decoder.bin")
    assert browse("loose", look=where) == (DamagedScreen, os.path.join("loose", "decoder.bin"))


def test_links_are_followed_as_in_the_cache_of_downloads(made, tmp_path):
    """There each shard is a link to a file elsewhere."""
    shard = made("safetensors", "page")
    os.replace(shard, tmp_path / "blob")
    os.symlink(tmp_path / "blob", shard)
    assert browse("m", "s", look=where) == (DamagedScreen, shard)


def test_what_is_not_there_is_not_opened(made, tmp_path):
    """Nor are names that lead out of the folder, and empty files."""
    made("safetensors", "page")
    (finding,) = browse("m", look=lambda app: app.screen.query_one(FindingsView).findings)
    assert damaged_file("m", finding) == os.path.join("m", name(2))
    os.replace(tmp_path / "m" / name(2), tmp_path / "elsewhere")
    assert damaged_file("m", finding) is None
    assert damaged_file("m", replace(finding, location=Location(member="../elsewhere"))) is None
    assert damaged_file("m", replace(finding, location=Location(member=str(tmp_path / "elsewhere")))) is None
    (tmp_path / "m" / name(2)).touch()
    assert damaged_file("m", finding) is None
