"""The main screen, driven by keys and mouse."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.screens.damaged import DamagedScreen
from ckptdoctor.tui.widgets import values_preview
from ckptdoctor.tui.widgets.bars import KeyBar
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from tests.tui import NARROW, NORMAL, WIDE, browse, press_at_once, settled, text_of, walk


@pytest.mark.parametrize("name", ["hostile.pt", "empty.pt"])
def test_text_of_the_file_is_escaped(name):
    """Nothing of a file reaches the terminal that could move the cursor."""
    for text in walk(name, (), ("shift+tab", "down"), ("tab", "asterisk", "t", "end")):
        assert all(line.isprintable() for line in text.split("\n"))


def test_an_empty_file_is_shown():
    """A file without contents has the screen that says so."""
    assert browse("empty.pt", look=lambda app: isinstance(app.screen, DamagedScreen))


def test_a_missing_file_ends_the_program():
    """There is nothing to show of it: one line and status 2."""
    assert browse("nowhere.pt", look=lambda app: app.return_code) == 2


def cursor(app):
    """What the tree's cursor is on."""
    tree = app.screen.query_one(TreeView)
    line = tree.line()
    return tree.lines.tree.name(line.parent, line.item)


def test_moving():
    """Arrows, the letters of vi, home and end all go where they say."""
    places = {
        ("j",): "state_dict",
        ("home", "down", "down", "k"): "state_dict",
        ("home", "down", "left", "right"): "state_dict",
        ("home", "down", "l", "l"): "conv1.weight",
        ("home", "down", "right", "right", "h"): "module",
        ("end",): "log",
        ("g",): "epoch",
        ("G",): "log",
        ("space", "down"): "0",
        ("home", "o", "o"): "state_dict",
    }
    found = walk("resnet.pt", *places, look=cursor)
    assert dict(zip(places, found, strict=True)) == places


def test_enter_on_a_finding_jumps_to_its_first_tensor():
    """Enter goes to what the finding speaks of."""
    assert browse("resnet.pt", "left", "shift+tab", "enter", look=cursor) == "conv1.weight"


def test_escape_forgets_the_filter():
    """Escape shows everything again, and what was open is open still."""
    before, after = walk("resnet.pt", (), ("slash", "text:fc", "escape"))
    assert before == after


def burst(path, keys, **options):
    """The screen after keys that come all at once, as they do over a slow line or out of the clipboard."""

    async def run():
        app = BrowserApp(path, **options)
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press_at_once(pilot, f"text:{keys}")
            return text_of(app).split("\n")

    return asyncio.run(run())


@pytest.mark.parametrize("other", [None, "resnet.pt"], ids=["one", "two"])
def test_what_is_typed_right_behind_the_slash_is_in_the_filter(other):
    """However quickly it comes: none of it is lost, or taken for the keys of other things; a slash is typed as well."""
    lines = burst("resnet.pt", "/conv/e", other=other)
    assert any(line.startswith(" / conv/e ") for line in lines)


def test_the_footer_offers_no_keys_that_would_be_typed():
    """While a filter is typed, letters and signs are letters and signs."""
    assert browse("resnet.pt", "slash").split("\n")[-1] == " esc show all  f1 help  ^q quit"


def test_a_filter_that_lets_nothing_through_says_so():
    """Not an empty pane, and nothing beside it that is not shown."""
    text = browse("resnet.pt", "slash", "text:zzz")
    assert "No tensor matches this filter." in text
    assert "0 of 15 tensors" in text
    assert "tensors · " not in text.split("\n", 3)[3]


def test_what_was_not_examined_is_said():
    """Where nothing was found, that does not mean that everything is well."""
    text = browse("plain.safetensors", size=NARROW)
    assert "✓ No problems found. Values not checked yet: press e." in text
    assert "not examined: checksums and values (e), fit to a model (--model, --like)" in text


def test_names_have_the_room_that_their_line_leaves():
    """Names of wide characters are cut by their cells, and no line is longer than the others."""
    for text in walk("hostile.pt", (), ("asterisk",), ("t",), size=NARROW):
        assert {cell_len(line) for line in text.split("\n") if line.startswith("│")} == {80}


def test_a_filter_that_makes_no_sense_says_why():
    """The sentence stands beside the line, and the contents stay."""
    text = browse("resnet.pt", "slash", "text:dtype:bf61")
    assert 'Unknown dtype "bf61". Did you mean "bf16"?' in text
    assert "state_dict" in text


def test_a_click_moves_the_cursor_and_a_second_one_opens():
    """The mouse does what keys do."""

    async def click(pilot):
        await pilot.click(TreeView, offset=(12, 5), times=2)

    import asyncio

    from ckptdoctor.tui.app import BrowserApp
    from tests.tui import settled

    async def run():
        app = BrowserApp("resnet.pt")
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            before = app.screen.query_one(TreeView).count()
            await click(pilot)
            await settled(pilot)
            tree = app.screen.query_one(TreeView)
            return tree.cursor, tree.count() != before

    assert asyncio.run(run()) == (5, True)


def test_every_key_has_an_id_and_a_tooltip():
    """Keys can be given to other actions by id, and the help says what they do."""
    from ckptdoctor.tui.app import BrowserApp
    from ckptdoctor.tui.screens.browser import BrowserScreen
    from ckptdoctor.tui.screens.help import HelpScreen
    from ckptdoctor.tui.widgets.filter_bar import FilterBar

    owners = (BrowserApp, BrowserScreen, DamagedScreen, HelpScreen, FilterBar, TreeView, ListView, FindingsView, Detail)
    for owner in owners:
        own = owner.__dict__.get("BINDINGS", [])
        assert all(binding.id and binding.tooltip for binding in own), owner
        assert len({binding.id for binding in own}) == len(own), owner


def test_the_footer_has_eight_keys_at_most():
    """More would be clutter."""
    assert browse("resnet.pt", look=lambda app: len(app.screen.query_one(KeyBar).keys)) <= 8


def test_no_color(monkeypatch):
    """NO_COLOR is obeyed: no colour at all, and the cursor is still to be seen."""
    monkeypatch.setenv("NO_COLOR", "1")

    def colours(app):
        strips = app.screen._compositor.render_strips()
        filtered = [
            strip.apply_filter(each, app.screen.background_colors[1]) for each in app._filters for strip in strips
        ]
        styles = [segment.style for strip in filtered[len(strips) :] for segment in strip if segment.style]
        return {style.color.name for style in styles if style.color}, any(style.reverse for style in styles)

    names, reverse = browse("resnet.pt", look=colours)
    assert names <= {"default"}
    assert reverse


def test_keys_can_be_given_away():
    """A keymap gives an action another key."""
    import asyncio

    from ckptdoctor.tui.app import BrowserApp
    from tests.tui import press, settled

    async def run():
        app = BrowserApp("resnet.pt", keymap={"list": "z"})
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, "z")
            return app.screen.query_one(ListView).display

    assert asyncio.run(run())


def row_on_screen(app):
    """What the tree's cursor is on, and whether its line can be seen."""
    tree = app.screen.query_one(TreeView)
    return cursor(app), 0 <= tree.cursor - tree.scroll_offset.y < tree.scrollable_content_region.height


DEEP = {
    "opened": ("home",),
    "read": ("e",),
    "enter": ("shift+tab", "enter"),
    "back": ("home",),
    "n": ("n",),
    "tensor": ("enter",),
    "strip": ("escape", "home", "tab", "right", "right", "right"),
    "gone there": ("enter",),
    "by standard deviation": ("o", "o", "o", "o", "home"),
    "by NaN": ("o", "o", "o", "home"),
    "list": ("t", *["o"] * 10),
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Sixty layers, of which one holds NaN: its line is far below what fits on a screen. What is seen at each stage."""
    weights = {f"layers.{layer}.{leaf}.weight": torch.zeros(4, 4) + 0.1 for layer in range(60) for leaf in "abcd"}
    weights["layers.47.c.weight"][2, 3] = float("nan")
    weights["layers.9.b.weight"][1, 1] = 7.0
    path = tmp_path_factory.mktemp("deep") / "deep.pt"
    torch.save(weights, path)

    def look(app):
        tree = app.screen.query("TreeView") and app.screen.query_one("#contents").has_focus_within
        return row_on_screen(app) if tree else None, text_of(app)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values_preview, "REST", 1e6)
        return dict(zip(DEEP, walk(path, *DEEP.values(), look=look), strict=True))


def test_enter_on_a_finding_scrolls_the_tree_there(deep):
    """However far down it is, with what is around it."""
    assert deep["enter"][0] == ("c.weight", True)
    assert " ▸ 45 " in deep["enter"][1] and " ▸ 50 " in deep["enter"][1]


def test_n_goes_to_the_next_finding_and_shows_what_it_is_about(deep):
    """Without leaving the tree: its details and the finding are on the right."""
    row, text = deep["n"]
    assert row == ("c.weight", True)
    assert "╭─ layers.47.c.weight ─" in text and "● V651 nan-or-inf  1 NaN" in text


def test_a_tensor_with_a_nan_opens_there(deep):
    """Nobody opens it to see its first number."""
    assert "[2, 3] = NaN" in deep["tensor"][1]


def test_a_level_says_what_is_wrong_below_it(deep):
    """Where a row has a badge, the details say why."""
    assert "││ ● V651 nan-or-inf" in deep["read"][1]


def test_what_was_read_has_columns(deep):
    """After e, the tree shows spread and distribution of each tensor, and a fold its norms by depth."""
    assert "by depth  press e to read the values" in deep["opened"][1]
    assert "││ norm   " in deep["read"][1] and "NaN      in 47" in deep["read"][1]
    assert "● 47" in deep["read"][1]
    assert "σ 0" in deep["n"][1]


def test_a_layer_is_chosen_with_arrows(deep):
    """What is drawn by depth says what it is, and enter leads the tree there."""
    assert "2  norm 0.8  std 0  NaN 0" in deep["strip"][1]
    assert deep["gone there"][0] == ("2", True)


def test_the_tree_is_sorted_by_values(deep):
    """In every level what comes first has the most of it; a level stands where the first in it would."""
    assert "by standard deviation" in deep["by standard deviation"][1]
    first = [
        next(line for line in deep[name][1].split("\n") if "│   ▸" in line or "│   ▾" in line)
        for name in ("by standard deviation", "by NaN")
    ]
    assert "▸ 9 " in first[0] and "▾ 47 " in first[1]


def test_the_list_is_sorted_by_values_too(deep):
    """The tensor with NaN first."""
    text = deep["list"][1]
    assert "by NaN" in text
    assert "layers.47.c.weight" in next(line for line in text.split("\n") if "[4, 4]" in line)


def test_values_that_are_no_tensors_are_shown_prettily(tmp_path):
    """What is nested stands line by line, a short list or dict in one, and a long text in full; NumPy's as values."""
    config = {"accuracy": np.float64(71.3), "seeds": np.arange(624, dtype=np.uint32), "sizes": [1, 2, 3, 4]}
    config |= {"best": {"loss": 0.5, "step": 9}, "note": "word " * 40, "deep": {"a": {"b": 1}}}
    torch.save({"config": config}, tmp_path / "c.pt")
    level, text = walk(tmp_path / "c.pt", (), ("right", "end", "up"))
    assert "sizes      1, 2, 3, 4" in level and "best       loss 0.5, step 9" in level and "  a        b 1" in level
    assert "accuracy   71.3  NumPy float64" in level and "seeds      NumPy uint32 [624]  0, 1, 2, 3," in level
    assert "accuracy  71.3  NumPy float64" in text and text.count("word word") > 15


def test_the_details_follow_the_filter():
    """While a filter is typed, they are about the line that the tree's cursor is on."""
    before, narrowed = walk("resnet.pt", ("home",), ("slash", "text:fc.bias"))
    assert "╭─ epoch ─" in before
    assert "╭─ state_dict ─" in narrowed and "╭─ epoch ─" not in narrowed


def test_escape_in_the_tree_shows_everything_again():
    """A filter is forgotten without going back to it."""
    before, narrowed, after = walk("resnet.pt", (), ("slash", "text:fc", "enter"), ("escape",))
    assert "of 15 tensors" in narrowed and before == after


def test_a_filter_that_matches_nothing_suggests_one_that_does():
    """A glob that has to match whole names, and a word that is misspelt."""
    globbed, spelt = walk("resnet.pt", ("slash", "text:fc.*"), ("ctrl+u", "text:layr1"))
    assert "No tensor matches this filter. Did you mean *fc.*?" in globbed
    assert "Did you mean layer1?" in spelt


def test_a_long_path_makes_room_for_the_facts(tmp_path):
    """Its middle is left out before what the file is."""
    folder = tmp_path / "a_folder_with_a_rather_long_name" / "and_another_one_in_it"
    folder.mkdir(parents=True)
    torch.save({"weight": torch.ones(2)}, folder / "model.pt")
    assert "model.pt · PyTorch .pt (zip)" in browse(folder / "model.pt", size=NARROW).split("\n")[0]


def copied(app):
    """What Y has copied."""
    return app.clipboard


def test_capital_y_copies_python():
    """The call that loads what is under the cursor, with its keys."""
    keys = ("home", "down", "right", "right", "right", "right", "Y")
    line = browse("resnet.pt", *keys, look=copied)
    assert line == 'ckptdoctor.load("resnet.pt")["state_dict"]["module.conv1.weight"]'
    line = browse("plain.safetensors", "right", "right", "Y", look=copied)
    assert line.startswith('safetensors.torch.load_file("plain.safetensors")["')


def test_a_tensor_is_drawn_without_opening_it(monkeypatch, tmp_path):
    """Numbers, histogram and heatmap, once the cursor rests on it: also on the first one, when the file is opened."""
    monkeypatch.setattr(values_preview, "REST", 0.01)
    torch.save({"a": torch.arange(-50.0, 50.0).reshape(10, 10), "b": torch.ones(3)}, tmp_path / "a.pt")
    for text in walk(tmp_path / "a.pt", (), ("down", "up")):
        assert "norm " in text and "┼" in text and "▀▀▀▀" in text


def test_filters_that_were_typed_come_back():
    """Up goes through them from the last one, and down returns to an empty line."""

    def typed(app):
        return app.screen.query_one("Input").value

    first, second = ("slash", "text:conv", "enter", "escape"), ("slash", "text:fc", "escape")
    found = walk("resnet.pt", (*first, *second, "slash", "up"), ("up",), ("up",), ("down",), ("down",), look=typed)
    assert found == ["fc", "conv", "conv", "fc", ""]


def test_one_colour_all_over_is_no_picture(monkeypatch, tmp_path):
    """A heatmap of equal values shows nothing that the numbers do not."""
    monkeypatch.setattr(values_preview, "REST", 0.01)
    torch.save({"a": torch.zeros(10, 10), "b": torch.ones(3)}, tmp_path / "a.pt")
    text = browse(tmp_path / "a.pt", "down", "up", size=WIDE)
    assert "norm " in text and "▀▀" not in text and "▄▄" not in text


def test_names_of_parts_are_whole_where_there_is_room(tmp_path):
    """They have a third of the pane."""
    name = "post_attention_layernorm.weight"
    torch.save({f"h.{name}": torch.ones(4), "h.bias": torch.ones(2), "epoch": 3}, tmp_path / "a.pt")
    assert name in browse(tmp_path / "a.pt", size=WIDE, look=lambda app: str(app.screen.query_one("#facts").visual))


def test_a_list_of_sixty_is_whole(tmp_path):
    """What the pane can scroll through is not left out."""
    torch.save({"a": torch.ones(2), "history": list(range(60))}, tmp_path / "a.pt")
    text = browse(tmp_path / "a.pt", "end", size=WIDE, look=lambda app: str(app.screen.query_one("#facts").visual))
    assert "59" in text and "more" not in text


def test_a_heatmap_leaves_its_scale_on_the_screen(monkeypatch, tmp_path):
    """Wherever the cursor comes from, it has as many lines as are left, and nothing has to be scrolled to."""
    monkeypatch.setattr(values_preview, "REST", 0.01)
    weights = {f"h.{layer}.{leaf}": torch.randn(64, 64) for layer in range(9) for leaf in ("q", "k", "v")}
    torch.save({"embed": torch.randn(64, 64), **weights}, tmp_path / "a.pt")

    def seen(app):
        pane = app.screen.query_one(Detail)
        return pane.query_one("#preview-map").display, pane.max_scroll_y

    stages = (("e", "down", "right", "down", "t"), ("down",), ("t", "home"), ("t",))
    assert {each for each in walk(tmp_path / "a.pt", *stages, look=seen, size=WIDE) if each[0]} == {(True, 0)}


def test_long_names_of_values_stand_in_their_column(tmp_path):
    """As long as there is room; what they name begins in one column."""
    values = {"_get_lr_called_within_step": False, "eta": 1}
    torch.save({"a": torch.ones(2), "scheduler": values}, tmp_path / "a.pt")
    text = browse(tmp_path / "a.pt", "end", size=WIDE, look=lambda app: str(app.screen.query_one("#facts").visual))
    assert "_get_lr_called_within_step False\n" in text
    assert f"{'eta':<26} 1" in text


@pytest.mark.parametrize(
    ("contents", "said"),
    [("hello", "This checkpoint is one value: 'hello'"), (7, "one value: 7"), ({}, "is empty."), ([], "is empty.")],
    ids=str,
)
def test_a_file_that_has_no_rows(contents, said, tmp_path):
    """What it holds is shown, as the command line does; it is only called empty where it is."""
    torch.save(contents, tmp_path / "one.pt")
    assert said in browse(tmp_path / "one.pt")


def test_enter_on_a_value_that_is_all_there(tmp_path):
    """The focus stays where arrows move; it goes to the details of a value that is longer than they are high."""
    torch.save({"short": "one line", "text": "line\n" * 200}, tmp_path / "values.pt")
    focused = walk(tmp_path / "values.pt", ("home", "enter"), ("down", "enter"), look=lambda app: type(app.focused))
    assert focused == [TreeView, Detail]
