"""The fit of a checkpoint to a target: coverage, the chain, what is left over."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.tui import workers
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.fit import FitScreen
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.widgets.fit_view import NamesView
from tests.tui import NARROW, NORMAL, browse, screens, settled, walk
from tests.tui.pairs import save_pair

TARGET = Settings(like="target.pt")


@pytest.fixture(scope="module", autouse=True)
def pair(library):
    """The files of this module."""
    save_pair(library)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_chain(size):
    """Steps with coverage after each, and below the names that a step changes; keys of another shape say both."""
    stages = {"fit": ("c", "down")} | ({"fit_left_over": ("end", "up")} if size == NORMAL else {})
    screens("wrapped.pt", stages, size=size, settings=TARGET)


def names(app):
    """What the lower pane lists."""
    return [(each.before, each.after) for each in app.screen.query_one(NamesView).names]


def test_names_of_a_step():
    """Names of one kind are put together."""
    found = browse("whole.pt", "c", look=names, settings=Settings(like="exact.pt"))
    assert ("module.fc.{weight,bias}", "fc.{weight,bias}") in found


def test_long_names_are_whole(tmp_path, monkeypatch):
    """Where there is little room they take several lines: names that differ in the middle do not read the same."""
    import torch

    monkeypatch.chdir(tmp_path)
    names = [f"backbone.transformer_{each}_stack.of_many_layers.projection.weight" for each in ("encoder", "decoder")]
    torch.save({f"module.{name}": torch.ones(2, at + 1) for at, name in enumerate(names)}, "wrapped.pt")
    torch.save({name: torch.ones(2, at + 1) for at, name in enumerate(names)}, "bare.pt")
    told = [browse("wrapped.pt", "c", size=NARROW, settings=Settings(like="bare.pt"))]
    torch.save({name: torch.ones(7) for name in names}, "bare.pt")
    told.append(browse("wrapped.pt", "c", "end", size=NARROW, settings=Settings(like="bare.pt")))
    for text in [each.split("╭")[-1] for each in told]:
        assert all(f"transformer_{each}_stack" in text for each in ("encoder", "decoder"))
        assert "…" not in text


def test_the_main_screen_says_how_much_fits():
    """What fits before and after stands above the findings."""
    assert "0 → 15 of 15 keys fit exact.pt · c" in browse("whole.pt", settings=Settings(like="exact.pt"))


def test_without_a_target():
    """There is nothing to hold it against."""

    def said(app):
        return " ".join(each.message for each in app._notifications)

    assert "--model, --config or --like" in browse("whole.pt", "c", look=said)


def test_the_equal_command():
    """It repairs where the chain makes everything fit; elsewhere it examines."""

    def command(app):
        return app.screen.command()

    exact = "ckptdoctor fix whole.pt --auto --like exact.pt"
    assert browse("whole.pt", "c", look=command, settings=Settings(like="exact.pt")) == exact
    assert browse("wrapped.pt", "c", look=command, settings=TARGET) == "ckptdoctor check wrapped.pt --like target.pt"


def test_repair():
    """From the chain to its repair, and back."""
    options = {"settings": Settings(like="exact.pt")}
    found = walk("whole.pt", ("c", "f"), ("escape",), look=lambda app: type(app.screen), **options)
    assert found == [RepairScreen, FitScreen]


def test_two_files_fit_each_other():
    """Over a comparison, A is held against B."""
    assert "15 after 1 step" in browse("whole.pt", "c", other="exact.pt")


def test_a_model(tmp_path, monkeypatch):
    """A model of the user's own code, which is run; what it prints does not reach the screen."""
    import torch

    (tmp_path / "nets_of_a_test.py").write_text(
        "import torch\n\ndef build():\n    print('hello there')\n    return torch.nn.Linear(3, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    torch.save({"module.weight": torch.ones(2, 3), "module.bias": torch.ones(2)}, tmp_path / "linear.pt")
    text = browse(tmp_path / "linear.pt", "c", settings=Settings(model="nets_of_a_test:build"))
    assert "0 of 2 keys fit nets_of_a_test:build as it is, 2 after 1 step" in text
    assert "hello there" not in text


def test_a_model_is_built_once(tmp_path, monkeypatch):
    """However often it is asked for: by the findings, the chain, the plan, the repaired file and --deep."""
    import torch

    (tmp_path / "counted_nets.py").write_text(
        "import torch\n\ndef build():\n    open('built', 'a').write('x')\n    return torch.nn.Linear(3, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    torch.save({"module.weight": torch.ones(2, 3), "module.bias": torch.ones(2)}, "linear.pt")
    keys = ("c", "escape", "c", "f", "enter", "enter", "enter", "c", "escape", "e")
    path = browse("linear.pt", *keys, look=lambda app: app.screen.path, settings=Settings(model="counted_nets:build"))
    assert path == "linear.fixed.pt"
    assert (tmp_path / "built").read_text() == "x"


def test_a_target_that_cannot_be_read_is_a_sentence():
    """The program ends with what is wrong."""
    assert browse("whole.pt", look=lambda app: app.return_code, settings=Settings(like="nowhere.pt")) == 2


def test_code_that_fails_is_shown_with_its_lines(tmp_path):
    """The program ends with the sentence and the user's own traceback, line by line."""
    bad = tmp_path / "bad.py"
    bad.write_text("raise ValueError('\x1b[2J')\nNet = 1\n")
    said = browse(
        "whole.pt",
        look=lambda app: "".join([str(each) for each in app._exit_renderables]),
        settings=Settings(model=f"{bad}:Net"),
    )
    lines = said.split("\n")
    assert "The error is in your own code" in lines[0]
    assert lines[1] == "Traceback (most recent call last):" and lines[-1].startswith("ValueError: ")
    assert all(line.isprintable() for line in lines)


def test_the_contents_are_there_before_the_target_is(monkeypatch):
    """A model takes seconds to build: nobody waits for it to see the tree."""
    goes_on, genuine = Event(), workers.read_reference

    def slow(*arguments):
        goes_on.wait(60)
        return genuine(*arguments)

    async def run():
        app = BrowserApp("whole.pt", Settings(like="exact.pt"))
        async with app.run_test(size=NORMAL) as pilot:
            while not (app.screen.is_attached and app.screen.query("TreeView") and app.screen.opened):
                await asyncio.sleep(0.01)
            before = app.screen.query_one("TreeView").count(), app.screen.report
            goes_on.set()
            await settled(pilot)
            return before, app.screen.report.coverage.keys

    monkeypatch.setattr(workers, "read_reference", slow)
    (lines, report), keys = asyncio.run(run())
    assert lines == 5 and report is None and keys == 0
