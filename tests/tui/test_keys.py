"""Keys of one's own, from the settings of a project."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ckptdoctor import config
from ckptdoctor.cli.main import run as command
from ckptdoctor.errors import UsageError
from ckptdoctor.tui.key_conflicts import _chains
from ckptdoctor.tui.keys import KNOWN, understood
from ckptdoctor.tui.screens.help import _OTHER_KEYS
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.list_view import ListView
from tests.tui import browse, text_of, walk

SETTINGS = '[keys]\nfilter = "F"\nlist = ["T", "f2", "?"]\nhelp = "ctrl+e"\n'


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
    stages = {"T": True, "f2": False, "question_mark": True, "t": True}
    assert walk("resnet.pt", *[(key,) for key in stages], look=is_list, keymap=keys) == list(stages.values())


def test_the_filter_opens_by_another_key(keys):
    """What is typed behind it is typed."""
    filtered = browse("resnet.pt", "F", "text:fz", look=lambda app: app.screen.query_one(FilterBar).text, keymap=keys)
    assert filtered == "fz"


def test_help_and_footer_show_the_keys_that_work(keys):
    """Not those that were there before."""
    text = browse("resnet.pt", "ctrl+e", keymap=keys)
    assert "│    T f2 ?          Switch between the tree and a list" in text
    assert "│    F               Filter by name" in text
    assert "F filter" in text and "T list" in text and "/ filter" not in text


def test_a_key_can_change_hands():
    """What is given away works there, where what had it gets another one."""
    given = understood({"list": "e", "deep": "E"})
    found = walk("resnet.pt", ("e",), ("E",), look=lambda app: (is_list(app), text_of(app)), keymap=given)
    assert found[0][0] and "every byte was read" not in found[0][1] and "every byte was read" in found[1][1]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"filter": "f", "list": "z,f2"}, '"f" would be the key of both filter and fix.'),
        ({"quit": "e"}, '"e" would be the key of both quit and deep.'),
        ({"filter": "?"}, '"?" would be the key of both filter and help.'),
        ({"deep": "q,ctrl+q"}, " would be the key of both deep and quit."),
        ({"quit": "Q", "deep": "ctrl+q"}, '"ctrl+q" would be the key of both quit and deep.'),
        ({"filter": "W", "list": "W"}, '"W" would be the key of both filter and list.'),
        ({"deep": "o"}, '"o" would be the key of both deep and order.'),
        ({"jump": "v"}, '"v" would be the key of both jump and values.'),
    ],
    ids=str,
)
def test_no_key_does_two_things(keys, said):
    """A key of something else on the same screen, in one of its panes or everywhere is refused, with both names."""
    with pytest.raises(UsageError) as refused:
        understood(keys)
    assert said in refused.value.message


def test_the_usual_keys_can_be_written_down():
    """Every key that an action has everywhere can be given to it: what shares it does so anyway."""
    understood({"filter": "slash"})  # imports all screens
    chains = list(_chains())
    usual = {name: {chain[name] for chain in chains if name in chain} for name in KNOWN}
    same = {name: ",".join(sorted(*keys)) for name, keys in usual.items() if len(keys) == 1}
    assert len(same) > 60
    for name, keys in same.items():
        assert understood({name: keys}) == {name: keys}


def test_quitting_always_has_a_key(several_to_choose_from):
    """Where letters are typed, too: the key that is given would be typed there."""
    given = understood({"quit": "Q"})
    found = walk(several_to_choose_from, ("Q",), ("ctrl+q",), look=lambda app: app._exit, keymap=given)
    assert found == [False, True]
    assert browse("resnet.pt", "Q", look=lambda app: app._exit, keymap=given)


@pytest.fixture
def several_to_choose_from(library, tmp_path):
    """A folder of two checkpoints."""
    for name in ("one.pt", "two.pt"):
        shutil.copy(library / "resnet.pt", tmp_path / name)
    return tmp_path


def test_the_keys_that_the_help_and_the_documentation_show():
    """They work as they are written there."""
    shown = re.search(r'filter = "(.+?)", list = \[(.+?)\]', _OTHER_KEYS)
    keys = {"filter": shown[1], "list": shown[2].replace('"', "").replace(" ", "")}
    assert understood(keys) == keys
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    assert understood({"filter": re.search(r'^filter = "(.+)"$', page, re.M)[1]})


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
    "key", ["a", "Z", "/", "+", "ctrl+a", "shift+f5", "f12", "insert", "percent_sign", "ctrl+slash"]
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
