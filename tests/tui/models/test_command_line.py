"""The command lines that do what is on the screen: held against the commands themselves."""

from __future__ import annotations

import shlex
import subprocess

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.cli.main import cli
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.shell import word
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.tui.models import command_line


def printed_as_it_is(text):
    """Whether shlex reads the word for it as bash does: a command to a build service stands in ``$'…'``."""
    return escape(text) == text


PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).filter(printed_as_it_is)
ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def parsed(name, line):
    """What the command of this name makes of a line."""
    program, called, *words = shlex.split(line)
    assert (program, called) == ("ckptdoctor", name)
    return cli.get_command(click.Context(cli), name).make_context(name, words).params


@pytest.mark.parametrize(
    ("request_", "settings", "usual", "line"),
    [
        (FixRequest("a b.pt"), None, None, "ckptdoctor fix 'a b.pt'"),
        (FixRequest("m.pt", "m.fixed.pt"), None, "m.fixed.pt", "ckptdoctor fix m.pt"),
        (FixRequest("m.pt", "out.pt"), None, "m.fixed.pt", "ckptdoctor fix m.pt -o out.pt"),
        (
            FixRequest("m.pt", selection=Selection(("N401", "W301")), unsafe=True),
            None,
            None,
            "ckptdoctor fix m.pt --select N401,W301 --unsafe-fixes",
        ),
        (
            FixRequest("m.pt", auto=True, drop=("fc.*",)),
            Settings(model="nets:Net(num_classes=10)"),
            None,
            "ckptdoctor fix m.pt --drop 'fc.*' --auto --model 'nets:Net(num_classes=10)'",
        ),
    ],
)
def test_fix(request_, settings, usual, line):
    """Only what differs from what is usual is named."""
    assert command_line.fix(request_, settings, usual) == line


@given(path=PLAIN, output=PLAIN, patterns=st.lists(PLAIN), unsafe=st.booleans())
def test_fix_asks_for_the_same(path, output, patterns, unsafe):
    """The command understands exactly what was chosen."""
    line = command_line.fix(FixRequest(path, output, drop=tuple(patterns), unsafe=unsafe))
    got = parsed("fix", line)
    assert got["path"] == (f"./{path}" if path.startswith("-") else path)
    assert (got["output"], got["drop"], got["unsafe"]) == (output, tuple(patterns), unsafe)


def test_check():
    """As deep, with the same rules and the same target."""
    settings = Settings(Selection(("N",), ("N402",)), deep=True, like="other.pt", root="state_dict")
    got = parsed("check", command_line.check("m.pt", settings))
    assert (got["deep"], got["like"], got["root"]) == (True, "other.pt", "state_dict")
    assert (got["select"], got["ignore"]) == (("N",), ("N402",))


def test_show_and_diff():
    """Places and the other file arrive as they are."""
    assert parsed("show", command_line.show("m.pt", ("a b", 0)))["root"] == "a b/0"
    assert parsed("show", command_line.show("m.pt", keys=True))["what"] == "keys"
    assert parsed("show", command_line.statistics("m.pt", "*.weight"))["only"] == ("*.weight",)
    assert parsed("diff", command_line.diff("-a.pt", "b.pt", values=True))["values"]


@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=126)).filter(printed_as_it_is))
def test_a_filter_arrives_as_it_is(text):
    """Whatever was typed, and however it begins."""
    assert parsed("show", command_line.show("m.pt", keys=True, text=text))["filters"] == ((text,) if text else ())


def test_a_filter_that_looks_like_an_option():
    """It is one word with its own option, in tree and list."""
    assert command_line.show("m.pt", ("a",), text="-h") == "ckptdoctor show m.pt --root a --filter=-h"
    assert command_line.show("m.pt", keys=True, text="*.w !b") == "ckptdoctor show m.pt --keys --filter '*.w !b'"


def test_a_filter_that_no_command_line_can_hold():
    """The words that can be said are said: what is shown has all that was wanted."""
    assert command_line.show("m.pt", text='fc a\0b "c d"') == "ckptdoctor show m.pt --filter 'fc \"c d\"'"
    assert command_line.show("m.pt", text="\0") == "ckptdoctor show m.pt"


def test_a_place_that_no_command_line_can_hold():
    """The nearest one above it is shown instead."""
    assert command_line.show("m.pt", ("a", "b\0c")) == "ckptdoctor show m.pt --root a"
    assert command_line.show("m.pt", ("a", "", "b")) == "ckptdoctor show m.pt --root a"
    assert command_line.show("m.pt", ("",)) == "ckptdoctor show m.pt"


@given(st.lists(ANY, max_size=4))
def test_bash_gets_what_was_meant(texts):
    """Whatever a word is, a shell passes it on unchanged, and the line that is shown has nothing invisible."""
    line = " ".join(map(word, texts))
    assert line.isprintable()
    output = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert output.split(b"\0")[:-1] == ([text.encode() for text in texts] or [b""])


def test_half_a_character_is_no_crash():
    """Lone surrogates come from hostile files."""
    assert command_line.show("m.pt", ("\ud800",)).isprintable()
