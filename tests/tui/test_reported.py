"""The findings of the browser are those of the report: with the same repairs, and the same advice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import text_of, walk


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own, with a small model and the same with one more weight, of which there is no other copy."""
    monkeypatch.chdir(tmp_path)
    weights = {"conv.weight": torch.randn(4, 3), "fc.weight": torch.randn(2, 4)}
    torch.save(weights, "tiny.pt")
    torch.save({**weights, "extra.weight": torch.randn(4, 4)}, "extra.pt")
    save_file({f"l.{index}.w": torch.randn(1000) for index in range(20)}, "whole.safetensors")
    return tmp_path


def cut():
    """The safetensors file without its second half."""
    whole = Path("whole.safetensors").read_bytes()
    Path("cut.safetensors").write_bytes(whole[: len(whole) // 2])
    return "cut.safetensors"


def findings(app):
    """What the screen shows, and what it marks in the tree."""
    return list(app.screen.findings), list(app.screen.query_one(TreeView).lines and app.screen.opened.badges.findings)


@pytest.mark.parametrize("keys", [(), ("e",)], ids=["headers", "values"])
def test_no_repair_that_drops_the_only_copy_of_a_weight(keys, folder):
    """A repair that check leaves out is not offered here, neither at first nor after every value was read."""
    settings = Settings(like="tiny.pt", deep=bool(keys))
    expected = list(check("extra.pt", settings).findings)
    assert [each.code for each in expected] == ["R002"] and expected[0].fix is None
    shown = walk("extra.pt", keys, ("f",), look=lambda app: app.screen, settings=Settings(like="tiny.pt"))
    assert shown[0].findings == expected == shown[0].opened.badges.findings
    assert isinstance(shown[1], RepairScreen) and [each.safety for each in shown[1].offered] == [None]
    assert sorted(each.name for each in folder.iterdir()) == ["extra.pt", "tiny.pt", "whole.safetensors"]


def test_no_repair_of_the_layout_of_a_file_that_is_cut_off():
    """What no longer matters, for values are missing, is not shown."""
    path = cut()
    expected = list(check(path).findings)
    assert len(expected) == 1
    assert walk(path, (), look=findings) == [(expected, expected)]


def test_the_advice_of_a_sealed_file_that_is_cut_off():
    """It names the command that shows what changed since it was sealed."""
    ckptdoctor.seal("whole.safetensors")
    shutil.move(cut(), "whole.safetensors")
    (shown,) = walk("whole.safetensors", (), look=lambda app: app.screen.findings)
    assert any("ckptdoctor verify" in each.advice for each in shown)
    assert shown == list(check("whole.safetensors").findings)


def test_reading_every_byte_shows_no_repair_that_the_report_left_out(monkeypatch):
    """While it goes on, too: what was found in the headers keeps the advice that it got there."""
    from ckptdoctor.tui import messages
    from ckptdoctor.tui.screens.examined import ExaminedScreen

    ended, seen = ExaminedScreen.on_examination_ended, []

    def before(self, message: messages.ExaminationEnded) -> None:
        seen.append(list(self.findings))
        ended(self, message)

    monkeypatch.setattr(ExaminedScreen, "on_examination_ended", before)
    walk("extra.pt", (), ("e",), settings=Settings(like="tiny.pt"))
    assert [each[0].fix is None for each in seen] == [False, True]


def test_saving_what_is_intact_is_offered():
    """Where a file is cut off, the footer and the help have the key; where nothing is wrong they have not."""
    for path, there in ((cut(), True), ("whole.safetensors", False)):
        footer, keys = walk(path, (), ("question_mark",), look=text_of)
        assert ("s salvage" in footer.split("\n")[-1]) is there
        assert ("Show what is intact in a damaged file" in keys) is there


def test_advice_has_its_command_at_its_end():
    """The command that compares with the seal does not come between the two."""
    ckptdoctor.seal("whole.safetensors")
    shutil.move(cut(), "whole.safetensors")
    for finding in check("whole.safetensors").findings:
        assert "verify" not in finding.advice.rpartition(": ")[2] and "verify" in finding.advice
