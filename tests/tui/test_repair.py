"""Repairing in the browser: choosing, the plan, the question, the new file and what was proven of it."""

from __future__ import annotations

import shutil

import pytest
import torch

from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.rules.examples import T
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.questions import ConfirmScreen
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.screens.writing import WritingScreen
from ckptdoctor.tui.widgets.fix_list import FixList
from tests import builders
from tests.golden import golden
from tests.tui import NARROW, NORMAL, WIDE, browse, screen, screens, text_of, walk

SIZES = pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)


@pytest.fixture(autouse=True)
def folder(library, tmp_path, monkeypatch):
    """Files that may be written beside."""
    for name in ("resnet.pt", "hostile.pt", "plain.safetensors"):
        shutil.copy(library / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def current(app):
    """The screen that is uppermost."""
    return type(app.screen)


def test_offers():
    """Safe repairs are chosen, and the plan says what they do."""
    screen("repair", "resnet.pt", "f", size=WIDE)


@SIZES
def test_from_offers_to_proof(size):
    """Plan, question with what is new and what goes, an unsafe repair with what it drops, and what was proven."""
    stages = {
        "repair": ("f",),
        "repair_question": ("end", "space", "enter"),
        "repair_unsafe": ("escape", "tab", "end"),
        "repair_proof": ("shift+tab", "a", "home", "enter", "enter"),
    }
    screens("resnet.pt", stages, size=size)


def test_nothing_is_chosen():
    """Nothing chosen is nothing planned."""
    screen("repair_nothing", "resnet.pt", "f", *["space", "down"] * 3)


def test_no_repair_is_possible(folder):
    """What cannot be repaired says why."""
    builders.save({"module.a.w": T((2,)), "a.w": T((2,)), "module.b.w": T((2,))}, folder / "two.pt")
    screen("repair_none", "two.pt", "f")
    footer = browse("two.pt", "f").split("\n")[-1]
    assert not any(offered in footer for offered in ("choose", "safe ones", "write", "name"))


def test_refusal(monkeypatch):
    """A plan that is refused says why, and is not written."""

    def refuse(request, settings):
        raise RefusedError("--auto would give two keys one name\n  a.b  →  c\n  c    is already there")

    monkeypatch.setattr("ckptdoctor.tui.screens.repair.planned", refuse)
    screen("repair_refused", "resnet.pt", "f", "enter", size=NARROW)


def test_hostile_names():
    """Nothing of a file reaches the terminal that could move the cursor, whatever is asked and written."""
    stages = (("f",), ("end", "space", "enter"), ("escape", "tab", "end"), ("shift+tab", "a", "enter", "enter"))
    for text in walk("hostile.pt", *stages):
        assert all(line.isprintable() for line in text.split("\n"))


def test_from_the_file_to_the_repaired_one(folder):
    """The result is opened, has nothing wrong, and torch loads it with the right keys; the original is as it was."""
    before = (folder / "resnet.pt").read_bytes()

    def look(app):
        return app.screen.path, [each.code for each in app.screen.findings], len(app.screen_stack)

    keys = ("f", "enter", "enter", "enter")
    opened, back = walk("resnet.pt", keys, ("less_than_sign",), look=look)
    assert opened == ("resnet.fixed.pt", ["W301"], 3)
    assert (back[0], back[2]) == ("resnet.pt", 2) and "N401" in back[1]
    assert walk("resnet.pt", keys, ("escape",), look=look)[1] == back
    loaded = torch.load(folder / "resnet.fixed.pt", weights_only=True)
    assert "conv1.weight" in loaded["state_dict"]
    assert loaded["args"] == {"lr": 0.1, "data": "imagenet"}
    assert (folder / "resnet.pt").read_bytes() == before


def test_nothing_is_written_without_an_answer(folder):
    """Only enter on the question writes."""
    before = sorted(folder.iterdir())
    stages = (("f",), ("enter",), ("escape",), ("escape",), ("f", "enter", "n"))
    shown = [RepairScreen, ConfirmScreen, RepairScreen, BrowserScreen, RepairScreen]
    assert walk("resnet.pt", *stages, look=current) == shown
    assert sorted(folder.iterdir()) == before


def test_a_name_of_ones_own(folder):
    """The field takes a name; enter in it goes on to the question. Left empty it is the usual one again."""
    stages = (("f", "n", "ctrl+u", "escape"), ("n", "ctrl+u", "text:mine.pt", "enter"), ("enter",))
    found = walk("resnet.pt", *stages, look=lambda app: (current(app), text_of(app)))
    assert [shown for shown, _ in found] == [RepairScreen, ConfirmScreen, WritingScreen]
    assert "│ resnet.fixed.pt" in found[0][1]
    assert (folder / "mine.pt").exists()


def test_the_end_of_a_long_name_is_to_be_seen(folder):
    """Where there is little room, the beginning is left out."""
    long = folder / f"{'of_a_model' * 8}.pt"
    shutil.copy(folder / "resnet.pt", long)
    assert "of_a_model.fixed.pt  " in browse(long, "f", size=NARROW)


def test_names_that_will_not_do(folder):
    """It says why beside the name, and enter goes nowhere."""
    before = sorted(folder.iterdir())
    said = {
        "resnet.pt": "resnet.pt is the original: choose another name for the new file.",
        "plain.safetensors": "plain.safetensors already exists: choose another name.",
        "new.safetensors": "must not end in .safetensors",
        "no/such.pt": "There is no folder no.",
        "": "The new file needs a name.",
    }
    stages = [("f", "n"), *[("ctrl+u", f"text:{name}", "enter", "enter") for name in said]]
    found = walk("resnet.pt", *stages, look=lambda app: (current(app), text_of(app)))
    for (shown, text), sentence in zip(found[1:], said.values(), strict=True):
        assert shown is RepairScreen
        assert sentence in text
    assert sorted(folder.iterdir()) == before


def test_a_name_that_is_taken_gets_a_number(folder):
    """What was written before is not replaced."""
    (folder / "resnet.fixed.pt").write_bytes(b"precious")
    text, _ = walk("resnet.pt", ("f",), ("enter", "enter"))
    assert "resnet.fixed-2.pt" in text
    assert "resnet.fixed.pt already exists" in text
    assert (folder / "resnet.fixed.pt").read_bytes() == b"precious"
    assert (folder / "resnet.fixed-2.pt").exists()


def test_failure_is_one_sentence(folder, monkeypatch):
    """What cannot be written says so; the way back leads to the plan."""

    def fail(plan):
        raise WriteError("Not enough disk space for it.")

    monkeypatch.setattr("ckptdoctor.converting.repaired.repair", fail)
    stages = (("f", "enter", "enter"), ("escape",))
    (_, said), (back, _) = walk("resnet.pt", *stages, look=lambda app: (current(app), text_of(app)), size=NARROW)
    golden("tui/repair_failed_80x24.txt", said)
    assert back is RepairScreen


def test_stopping(folder, monkeypatch):
    """Escape while it is written leaves nothing."""
    from ckptdoctor.repair.repair import repair
    from ckptdoctor.tui import workers

    def slowly(plan):
        screen.stop()
        return repair(plan)

    class Stopped(workers.Repairing):
        def run(self):
            nonlocal screen
            screen = self
            super().run()

    screen = None
    before = sorted(folder.iterdir())
    monkeypatch.setattr("ckptdoctor.converting.repaired.repair", slowly)
    monkeypatch.setattr("ckptdoctor.tui.screens.writing.Repairing", Stopped)
    assert "Stopped." in browse("resnet.pt", "f", "enter", "enter")
    assert sorted(folder.iterdir()) == before


def test_y_copies_the_equal_command():
    """Anywhere: of the screen that is uppermost, or of the one below a dialogue."""
    lines = {
        (): "show resnet.pt --root epoch",
        ("down", "down", "down"): "show resnet.pt --root state_dict/module.conv1.weight",
        ("question_mark",): "show resnet.pt --root state_dict/module.conv1.weight",
        ("escape", "t"): "show resnet.pt --keys",
        ("shift+tab",): "check resnet.pt",
        ("shift+tab", "e", "tab"): "check resnet.pt --deep",
        ("f",): "fix resnet.pt",
        ("home", "space"): "fix resnet.pt --select P201,D601",
        ("a",): "fix resnet.pt",
        ("end", "space", "enter"): "fix resnet.pt --select N401,P201,D601,W301 --unsafe-fixes",
        ("escape", "a", "n", "ctrl+u", "text:x.pt", "escape"): "fix resnet.pt -o x.pt",
        ("enter", "enter"): "fix resnet.pt -o x.pt",
    }
    found = walk("resnet.pt", *[(*keys, "y") for keys in lines], look=lambda app: app.clipboard)
    assert found == [f"ckptdoctor {line}" for line in lines.values()]


def test_f_on_a_finding_goes_to_its_repair():
    """The cursor is on the repair of what was selected."""

    def look(app):
        fixes = app.screen.query_one(FixList)
        return fixes.offered[fixes.at].code

    assert browse("resnet.pt", "shift+tab", "down", "down", "f", look=look) == "D601"


@pytest.mark.parametrize("name", ["esc\x1b[31mred.pt", "new\nline.pt", "[red]x.pt"], ids=ascii)
def test_a_hostile_name_of_the_file(folder, name):
    """It is shown as it is written anywhere else, also where the name of the new file stands, and written as it is."""
    shutil.copy(folder / "resnet.pt", folder / name)

    shown = ascii(name).strip("'").replace(".pt", ".fixed.pt")
    texts = walk(name, ("f",), ("enter",), ("enter",))
    assert f"│ {shown} " in texts[0]
    assert all(line.isprintable() for text in texts for line in text.split("\n"))
    assert (folder / name.replace(".pt", ".fixed.pt")).exists()


def test_nothing_to_repair():
    """A healthy file has no repairs to choose."""
    assert browse("plain.safetensors", "f", look=current) is BrowserScreen


@pytest.mark.parametrize("theme", ["ckptdoctor-dark", "ckptdoctor-light"])
def test_no_color(monkeypatch, theme):
    """Without colour everything can still be told: chosen by its box, dropped by its sign."""
    monkeypatch.setenv("NO_COLOR", "1")
    text = browse("resnet.pt", "f", "end", "space", theme=theme)
    assert "[✓] W301" in text
    assert "− epoch, args, log" in text


@pytest.mark.parametrize("gone", [False, True], ids=["replaced", "deleted"])
def test_nothing_is_said_of_an_original_that_others_have_changed(folder, gone):
    """Where it is replaced or deleted before the answer, the box does not call it unchanged."""

    def look(app):
        if isinstance(app.screen, ConfirmScreen):
            (folder / "resnet.pt").unlink()
            if not gone:
                shutil.copy(folder / "plain.safetensors", folder / "resnet.pt")
        return current(app), text_of(app)

    _, (kind, text) = walk("resnet.pt", ("f", "enter"), ("enter",), look=look)
    assert kind is WritingScreen and "unchanged" not in text
    assert text.lower().count("nothing was written") == 2  # once above the box, and once in it


def test_all_that_speaks_against_a_name_can_be_read():
    """Also where there is no room for it next to the name."""
    text = browse("resnet.pt", "f", "n", "ctrl+u", "text:a.safetensors", size=NARROW)
    words = iter(text.replace("│", " ").split())
    said = "It stays PyTorch .pt (zip): its name must not end in .safetensors."
    assert all(word in words for word in said.split())
