"""Keys of one's own, from the settings of a project."""

from __future__ import annotations

import asyncio

import pytest

from ckptdoctor import config
from ckptdoctor.cli.main import run as command
from ckptdoctor.errors import UsageError
from ckptdoctor.tui import keymap
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import NORMAL, press, settled, text_of

SETTINGS = '[keys]\nfilter = "f"\nlist = ["z", "f2", "?"]\nhelp = "ctrl+e"\n'


def browsed(keys, *presses, look):
    """What can be seen after these presses, with keys of one's own."""

    async def run():
        app = BrowserApp("resnet.pt", keymap=keymap.understood(keys))
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await press(pilot, *presses)
            return look(app)

    return asyncio.run(run())


@pytest.fixture
def keys(tmp_path):
    """Those of a ckptdoctor.toml."""
    (tmp_path / "ckptdoctor.toml").write_text(SETTINGS)
    return config.load(str(tmp_path)).keys


@pytest.mark.parametrize("pressed", ["z", "f2", "question_mark"])
def test_keys_of_the_settings_work(keys, pressed):
    """Any of those that are given, and not the one that was there before."""
    assert browsed(keys, pressed, look=lambda app: app.screen.query_one(ListView).display)
    assert not browsed(keys, "t", look=lambda app: app.screen.query_one(ListView).display)


def test_the_filter_opens_by_another_key(keys):
    """What is typed behind it is typed."""
    assert browsed(keys, "f", "text:fz", look=lambda app: app.screen.query_one(FilterBar).text) == "fz"


def test_help_and_footer_show_the_keys_that_work(keys):
    """Not those that were there before."""
    text = browsed(keys, "ctrl+e", look=text_of)
    assert "│    z f2 ?          All tensors in one list" in text
    assert "│    f               Show only what fits" in text
    assert "f filter" in text and "z list" in text and "/ filter" not in text


def test_a_key_can_change_hands():
    """What is given away works there; what had it has none, and the help does not list it."""
    assert browsed({"list": "e"}, "e", look=lambda app: app.screen.query_one(ListView).display)
    assert "Read every byte" not in browsed({"list": "e"}, "question_mark", look=text_of)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"filtr": "f"}, "nothing is called “filtr”: did you mean filter?"),
        ({"xyzzy": "f"}, "nothing is called “xyzzy”. There are "),
        ({"filter": "questoin_mark"}, "filter cannot have the key “questoin_mark”: keys are called z, Z, f5"),
        ({"filter": "pagup"}, "filter cannot have the key “pagup”: did you mean pageup?"),
        ({"filter": "a,"}, "filter cannot have the key “”: keys are called z, Z, f5"),
        ({"filter": "ctl+a"}, r"filter cannot have the key “ctl\+a”: did you mean ctrl\+a?"),
        ({"filter": "\x1b[2J"}, r"filter cannot have the key “\\x1b\[2J”"),
    ],
    ids=str,
)
def test_mistakes_are_explained(keys, said):
    """A name that nothing has and a key that no keyboard has are refused with what was probably meant."""
    with pytest.raises(UsageError, match=said):
        keymap.understood(keys)


@pytest.mark.parametrize(
    "key", ["a", "Z", "/", "+", "ctrl+a", "shift+f5", "f12", "pageup", "question_mark", "ctrl+slash"]
)
def test_keys_that_there_are(key):
    """Signs, names, and both with modifiers."""
    assert keymap.understood({"filter": key}) == {"filter": key}


def test_the_command_line_refuses_them(tmp_path, monkeypatch, capfd):
    """Before a terminal is touched, in a line."""
    (tmp_path / "ckptdoctor.toml").write_text('[keys]\nfiltr = "f"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    assert command(["browse", "x.pt"]) == 2
    assert capfd.readouterr().err == "error: [keys]: nothing is called “filtr”: did you mean filter?\n"
