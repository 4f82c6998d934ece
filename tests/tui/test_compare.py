"""Two checkpoints side by side: the screens, and what keys do there."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter

import pytest
import torch

import ckptdoctor
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.models.comparison import COUNTED, ComparedEntries
from ckptdoctor.tui.models.side_by_side import Show
from ckptdoctor.tui.screens import compare
from ckptdoctor.tui.screens.compare import CompareScreen
from ckptdoctor.tui.widgets.bars import KeyBar
from ckptdoctor.tui.widgets.compare_view import CompareView
from ckptdoctor.tui.widgets.tensor.heatmap import DifferenceMap
from tests.commands import run_here
from tests.tui import NARROW, NORMAL, WIDE, browse, press, screen, screens, settled, text_of, walk
from tests.tui.pairs import save_pair, waves

AT_ONCE = compare.reads_at_once


@pytest.fixture(scope="module", autouse=True)
def pair(library):
    """The files of this module."""
    save_pair(library)


STAGES = {
    "compare": ("down",),  # what the headers tell is there at once, equal tensors folded
    # magnitudes stand on the right, and what has the same contents is renamed
    "compare_values": ("v", "end", "up", "up", "up"),
    "compare_sorted": ("o", "home"),  # the largest change is on top
    "difference": ("enter",),  # drawn for the tensor under the cursor
}


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_one_screen_after_the_other(size):
    """Headers, values, values in order, and the difference of a tensor."""
    screens("a.pt", STAGES, size=size, other="b.pt")


def test_headers_where_there_is_much_room():
    """The details stand beside the lines."""
    screen("compare", "a.pt", "down", size=WIDE, other="b.pt")


def said(app):
    """What the app has notified of."""
    return " ".join(each.message for each in app._notifications)


def lines(app):
    """What the lines are about."""
    from ckptdoctor.tui.models.comparison_facts import title

    view = app.screen.query_one(CompareView)
    return [title(view.comparison, line) for line in view.lines]


def test_equal_checkpoints_are_one_line():
    """Nothing differs: one fold, and after comparing it says so."""
    before, after = walk("a.pt", (), ("v",), look=lines, other="a.pt")
    assert before == ["16 tensors alike by name, shape and dtype"]
    assert after == ["16 tensors the same"]


def test_a_number_means_the_same_everywhere(library):
    """The border counts each way of being different as the report's groups and its sentence do, and JSON."""
    found = ckptdoctor.diff("a.pt", "b.pt", values=True)
    counts = {COUNTED[kind]: number for kind, number in ComparedEntries(found).counts().items() if number}
    lines = run_here("diff", "a.pt", "b.pt", "--values", "--format", "concise", cwd=library).stdout.decode()
    groups: Counter[str] = Counter()
    for label, number in re.findall(r"b\.pt: ([\w ]+): (\d+) tensors?: ", lines):
        groups[label] += int(number)
    assert counts.items() <= groups.items() and groups.keys() - counts == {"converted"}  # exactly: nothing changed
    assert counts == {"changed": 2, "reshaped": 2, "recast": 1, "renamed": 1, "only in A": 1, "only in B": 1}
    assert found.summary.startswith("2 of 15 tensors changed and 2 have a different shape (in ")
    document = json.loads(run_here("diff", "a.pt", "b.pt", "--values", "--format", "json", cwd=library).stdout)
    assert {name: document["counts"][name] for name in ("changed", "reshaped", "recast")}.items() <= counts.items()


def test_the_part_of_a_name_that_differs_is_on_the_screen(tmp_path):
    """However long the names are, in a terminal of 80 columns and in one of 120."""
    for name, step in (("old.pt", "self_attn.query"), ("new.pt", "attn.q")):
        long = f"transformer.encoder.layers.{{}}.{step}.projection.weight"
        tensors = {long.format(layer): waves(4, 4, phase=layer) for layer in range(3)}
        torch.save(tensors, tmp_path / name)
    for size in (NARROW, NORMAL):
        shown = browse(str(tmp_path / "old.pt"), "v", "o", size=size, other=str(tmp_path / "new.pt"))
        line = next(line for line in shown.split("\n") if "self_attn.query" in line and "→" in line)
        assert "attn.q" in line.replace("self_attn.query", "")


def test_folds_open_and_close():
    """Enter opens a fold in its place; again closes it."""
    stages = ((), ("down", "down", "down", "enter"), ("enter",), ("home", "down", "left"))
    before, opened, closed, other = walk("a.pt", *stages, look=lines, other="b.pt")
    assert opened[:5] == ["conv1.weight", "layer1.0", "layer1.0.bn1.bias", *opened[3:5]]
    assert opened[3] == before[3] and opened[4] == "layer1.0.conv1.weight"
    assert closed == before
    assert other == [*before[:2], *before[4:]]


def test_kinds():
    """The key shows one kind of difference after the other, and passes over kinds that there are none of."""

    def shown(app):
        return app.screen.wanted.show, lines(app)

    (show, seen), (then, rest) = walk("a.pt", ("m",), ("m",), look=shown, other="b.pt")
    assert show is Show.UNLIKE and "fc.weight" in seen and "old.scale" not in seen
    show, seen = then, rest  # without values nothing is renamed
    assert show is Show.ONLY_A and set(seen) == {"layer1.0.bn1.bias", "old.scale"}
    show, seen = browse("a.pt", "v", "m", "m", look=shown, other="b.pt")
    assert show is Show.RENAMED and seen == ["layer1.0.bn1.bias → head.norm.weight"]


def test_filter():
    """The filter knows names, sizes and dtypes as everywhere, and kinds of difference."""
    from ckptdoctor.tui.models.side_by_side import EntryLine

    def entries(app):
        view = app.screen.query_one(CompareView)
        return {view.comparison.name(line.entry) for line in view.lines if isinstance(line, EntryLine)}

    names = {
        "fc bias": {"fc.bias"},
        "is:only-b": {"head.norm.weight", "aux.weight"},
        "is:recast": {"layer1.1.bn1.weight"},
        "dtype:f32 !is:same weight shape:10x*": {"fc.weight"},
    }
    found = walk("a.pt", *[("slash", "ctrl+u", f"text:{text}", "enter") for text in names], look=entries, other="b.pt")
    assert dict(zip(names, found, strict=True)) == names


def test_a_filter_that_makes_no_sense_names_the_kinds():
    """The sentence has the words of the comparison in it."""
    assert "is:renamed" in browse("a.pt", "slash", "text:is:what", size=WIDE, other="b.pt")


def test_text_of_the_files_is_escaped():
    """Nothing of a file reaches the terminal that could move the cursor."""
    text = browse("a.pt", "end", other="b.pt")
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"\x1b[2Jx" in text


def test_deep_compares_values_at_once():
    """--deep asks for what v does."""
    assert "values compared" in browse("a.pt", other="b.pt", settings=Settings(deep=True))


def test_the_equal_command():
    """The command that is copied says what was compared."""

    def command(app):
        return app.screen.command()

    line = "ckptdoctor diff a.pt b.pt"
    assert walk("a.pt", (), ("v",), look=command, other="b.pt") == [line, f"{line} --values"]


def test_nothing_is_subtracted_that_cannot_be():
    """Enter on what only one side has, or on another shape, says so."""
    told, where = browse("a.pt", "m", "m", "enter", look=lambda app: (said(app), type(app.screen)), other="b.pt")
    assert where is CompareScreen
    assert "there is nothing to subtract" in told


def test_slices_of_a_difference():
    """Keys go through the slices, turn the dimensions, and show either side alone."""

    def seen(app):
        if isinstance(app.screen, CompareScreen):
            return "left"
        drawn = app.screen.query_one(DifferenceMap)
        return str(drawn._slice), drawn.seen.value

    stages = {
        ("v", "o", "home", "enter"): ("[↓, →, 0, 0]", "A − B"),
        ("right_square_bracket",): ("[↓, →, 0, 1]", "A − B"),
        ("left_square_bracket", "c"): ("[↓, 0, →, 0]", "A − B"),
        ("s",): ("[↓, 0, →, 0]", "A"),
        ("escape",): "left",
    }
    found = walk("a.pt", *stages, look=seen, other="b.pt")
    assert dict(zip(stages, found, strict=True)) == stages


def test_a_file_that_is_not_there_ends_the_program():
    """One line and status 2."""
    assert browse("a.pt", look=lambda app: app.return_code, other="nowhere.pt") == 2


def test_a_file_that_has_changed_is_not_compared(library):
    """Values of another file than the one whose headers were read mean nothing."""
    import shutil

    shutil.copy("b.pt", "c.pt")

    async def run():
        from ckptdoctor.tui.app import BrowserApp
        from tests.tui import press, settled

        app = BrowserApp("a.pt", other="c.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            shutil.copy("exact.pt", "c.pt")
            await press(pilot, "v")
            return said(app)

    import asyncio

    assert "has changed since its headers were read" in asyncio.run(run())


def test_stopping_and_going_on(monkeypatch):
    """The key that begins stops as well, and begins again where it was."""
    import asyncio
    import contextlib
    import time

    from ckptdoctor.checkpoint.progress import Work
    from ckptdoctor.errors import StoppedError
    from ckptdoctor.tui.app import BrowserApp
    from ckptdoctor.tui.widgets.bars import TitleBar
    from tests.tui import press, settled

    begun = []

    def endless(found, request, sofar, listener):
        begun.append(found)
        work = Work("values", 4, listener)
        while not work.stopped:
            with contextlib.suppress(StoppedError):
                work.reach(1)
            time.sleep(0.01)

    async def run():
        app = BrowserApp("a.pt", other="b.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            bar = app.screen.query_one(TitleBar)
            with monkeypatch.context() as patch:
                patch.setattr("ckptdoctor.diffing.diff.compare_values_of", endless)
                await pilot.press("v")
                await pilot.pause(0.1)
                states = [bar.state]
                await pilot.press("down", "down")  # keys are answered meanwhile
                await press(pilot, "v")
                states.append(bar.state)
            await press(pilot, "v")
            return [*states, bar.state]

    states = asyncio.run(run())
    assert states == ["values 25 % · v stops", "stopped: v continues", "values compared"]
    assert len(begun) == 1


def test_no_color(monkeypatch):
    """Without colours signs still say everything."""
    monkeypatch.setenv("NO_COLOR", "1")
    text = browse("a.pt", "v", other="b.pt")
    assert all(sign in text for sign in (" ≠ ", " ~ ", " + ", " − ", " → "))


def test_nothing_to_show_stays_at_another_size():
    """The pane has no line to go back to."""

    async def run():
        app = BrowserApp("a.pt", other="b.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, "slash", *"text:zzz", "enter")
            await pilot.resize_terminal(110, 38)
            await settled(pilot)
            return text_of(app)

    assert "nothing to show" in asyncio.run(run())


def test_keys_have_ids_tooltips_and_the_footer_eight_at_most():
    """As on every screen."""
    from ckptdoctor.tui.screens.difference import DifferenceScreen
    from ckptdoctor.tui.screens.fit import FitScreen
    from ckptdoctor.tui.widgets.fit_view import FitView, NamesView

    for owner in (CompareScreen, CompareView, DifferenceScreen, FitScreen, FitView, NamesView):
        own = owner.__dict__.get("BINDINGS", [])
        assert all(binding.id and binding.tooltip for binding in own), owner
        assert len({binding.id for binding in own}) == len(own), owner
    stages = ((), ("c",), ("escape", "v", "o", "home", "enter"))

    def seen(app):
        return type(app.screen), len(app.screen.query_one(KeyBar).keys)

    found = walk("a.pt", *stages, look=seen, other="b.pt")
    assert [screen for screen, _ in found] == [CompareScreen, FitScreen, DifferenceScreen]
    assert max(many for _, many in found) <= 8


def test_values_are_compared_as_soon_as_headers_are(monkeypatch):
    """Nobody has to ask for it, where both files are on this machine."""
    monkeypatch.setattr(compare, "reads_at_once", AT_ONCE)
    assert "values compared" in browse("a.pt", other="b.pt")
    assert not AT_ONCE("a.pt", "https://example.org/b.pt")


def test_what_was_all_zeros_is_not_the_loudest(tmp_path):
    """No infinity in red, and on top is the largest change that has a size."""
    import torch

    one = {f"h.{layer}.bias": torch.zeros(4) for layer in range(6)} | {"h.5.weight": torch.ones(4, 4)}
    torch.save(one, tmp_path / "one.pt")
    torch.save({name: value + 0.1 for name, value in one.items()}, tmp_path / "other.pt")
    keys = ("v", "o", "home")
    text, first = browse(
        tmp_path / "one.pt", *keys, look=lambda app: (text_of(app), lines(app)[0]), other=str(tmp_path / "other.pt")
    )
    assert "∞" not in text and "from 0" in text and first == "h.5.weight"
    assert "all 6 layers differ" in text


def test_equal_shapes_stand_once():
    """On the left; on the right where they differ."""
    text = browse("a.pt", "v", other="b.pt", size=WIDE)
    same = next(line for line in text.split("\n") if "layer2.1" not in line and "conv1.weight" in line and "=" in line)
    assert same.count("[16, 3, 7, 7]") == 1


@pytest.fixture
def renamed(tmp_path, monkeypatch):
    """A module of which one tensor is trained on, and one that is as it was; all have other names."""
    monkeypatch.chdir(tmp_path)
    first = {"bn.weight": waves(8), "bn.bias": waves(8, phase=1), "bn.mean": waves(8, phase=2), "fc.w": waves(4, 4)}
    second = {f"model.{name}": value + (name == "bn.weight") for name, value in first.items()}
    torch.save(first, "first.pt")
    torch.save(second, "second.pt")


def test_what_is_only_renamed_does_not_differ(renamed):
    """A module says how many of its tensors have other values, as diff does, and how many only other names."""
    text = browse("first.pt", "v", other="second.pt")
    assert "1 of 3 differs, 2 renamed" in text  # in its line
    assert "1 differs, 2 renamed" in text  # and below, where the cursor is on it
    assert "bn  " in browse("first.pt", "v", other="second.pt", size=(40, 16))


def test_a_difference_of_kernels_is_not_called_a_slice(tmp_path, monkeypatch):
    """All kernels are drawn: the title names a slice once one is drawn."""
    monkeypatch.chdir(tmp_path)
    for name, phase in (("one.pt", 0), ("two.pt", 1)):
        torch.save({"conv.weight": waves(16, 8, 3, 3, phase=phase)}, name)
    titles = walk(
        "one.pt", ("down", "enter"), ("x",), ("x",), other="two.pt", look=lambda app: text_of(app).split("\n")[0]
    )
    assert ["slice 1 of 9" in title for title in titles] == [False, True, False]
