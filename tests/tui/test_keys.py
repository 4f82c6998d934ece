"""Keys of one's own, from the settings of a project."""

from __future__ import annotations

import pytest

from ckptdoctor import config
from ckptdoctor.cli.main import run as command
from ckptdoctor.errors import UsageError
from ckptdoctor.tui.keys import understood
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import browse, walk

SETTINGS = '[keys]\nfilter = "f"\nlist = ["z", "f2", "?"]\nhelp = "ctrl+e"\n'


@pytest.fixture
def keys(tmp_path):
    """Those of a ckptdoctor.toml."""
    (tmp_path / "ckptdoctor.toml").write_text(SETTINGS)
    return understood(config.load(str(tmp_path)).keys)


def is_list(app):
    """Whether all tensors are shown in one list, and not the tree."""
    return app.screen.query_one(ListView).display


def test_keys_of_the_settings_work(keys):
    """Any of those that are given, and not the one that was there before."""
    stages = {"z": True, "f2": False, "question_mark": True, "t": True}
    assert walk("resnet.pt", *[(key,) for key in stages], look=is_list, keymap=keys) == list(stages.values())


def test_the_filter_opens_by_another_key(keys):
    """What is typed behind it is typed."""
    filtered = browse("resnet.pt", "f", "text:fz", look=lambda app: app.screen.query_one(FilterBar).text, keymap=keys)
    assert filtered == "fz"


def test_help_and_footer_show_the_keys_that_work(keys):
    """Not those that were there before."""
    text = browse("resnet.pt", "ctrl+e", keymap=keys)
    assert "│    z f2 ?          Switch between the tree and a list" in text
    assert "│    f               Filter by name" in text
    assert "f filter" in text and "z list" in text and "/ filter" not in text


def test_a_key_can_change_hands():
    """What is given away works there; what had it has none, and the help does not list it."""
    given = understood({"list": "e"})
    assert browse("resnet.pt", "e", look=is_list, keymap=given)
    assert "Read every byte" not in browse("resnet.pt", "question_mark", keymap=given)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"filtr": "f"}, 'unknown name "filtr". Did you mean filter?'),
        ({"xyzzy": "f"}, 'unknown name "xyzzy". Use one of '),
        ({"filter": "questoin_mark"}, 'filter cannot have the key "questoin_mark". Keys are named z, Z, f5'),
        ({"filter": "pagup"}, 'filter cannot have the key "pagup". Did you mean pageup?'),
        ({"filter": "a,"}, 'filter cannot have the key "". Keys are named z, Z, f5'),
        ({"filter": "ctl+a"}, r'filter cannot have the key "ctl\+a". Did you mean ctrl\+a?'),
        ({"filter": "\x1b[2J"}, r'filter cannot have the key "\\x1b\[2J"'),
    ],
    ids=str,
)
def test_mistakes_are_explained(keys, said):
    """A name that nothing has and a key that no keyboard has are refused with what was probably meant."""
    with pytest.raises(UsageError, match=said):
        understood(keys)


@pytest.mark.parametrize(
    "key", ["a", "Z", "/", "+", "ctrl+a", "shift+f5", "f12", "pageup", "question_mark", "ctrl+slash"]
)
def test_keys_that_there_are(key):
    """Signs, names, and both with modifiers."""
    assert understood({"filter": key}) == {"filter": key}


def test_the_command_line_refuses_them(tmp_path, monkeypatch, capfd):
    """Before a terminal is touched, in a line."""
    (tmp_path / "ckptdoctor.toml").write_text('[keys]\nfiltr = "f"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    assert command(["browse", "x.pt"]) == 2
    assert capfd.readouterr().err == 'error: ckptdoctor.toml: [keys]: unknown name "filtr". Did you mean filter?\n'
