"""Any text at all, of any size, is read in a time that grows with its length only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.explaining.explanation import explain
from ckptdoctor.explaining.recognise import messages
from ckptdoctor.rendering.explain import as_json, as_text
from tests.explaining.wordings import WORDINGS
from tests.work import growth

SAYS = [says for message in messages() for says in message.says]
PIECES = st.one_of(
    st.sampled_from([text for text, _ in WORDINGS]),
    st.sampled_from(SAYS),
    st.text(max_size=40),
    st.sampled_from(
        ["\n", "\t", '"', "'", "{", "}", "[", "torch.load(", ".pth", "│", "\x1b[31m", "\x1b]0;", "[rank0]: "]
    ),
)


@given(st.lists(PIECES, max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_is_explained_or_not_but_never_fails(pieces):
    """Messages cut, joined and mixed with anything give a report that shows no control character."""
    explained = explain("".join(pieces))
    as_json(explained, ())
    if explained.hits:
        shown = as_text(explained, {"N401"})
        assert all(line.isprintable() for line in shown.split("\n"))


@given(st.sampled_from(WORDINGS), st.integers(0, 400))
@settings(max_examples=200, deadline=None)
def test_messages_may_be_cut_anywhere(wording, end):
    """Half a message is another message, or none."""
    explain(wording[0][:end])


MILLION = 1_000_000
REPEATED = [
    *(
        "a",
        "a\n",
        "\n",
        " ",
        '"',
        "\x1b[",
        "\x1b]",
        ".pt",
        "torch.load(",
        "load_model(a",
        "[",
        "{",
        "1",
        "│",
        "[rank0]: ",
    ),
    *("Missing key(s) in state_dict: ", '"a.b", ', "a|MISSING|\n", "size mismatch for a", "KeyError: '", "GLOBAL a."),
    *(
        "unexpected key in source state_dict: ",
        "No module named 'a",
        "because the shapes did not match:",
        "2026-05-01 ",
    ),
    *(
        "Some model parameters or buffers are not found in the checkpoint:\n",
        "The checkpoint state_dict contains keys that are not used by the model:",
        "a.{b, c}\n",
    ),
    *("were not used when initializing X: ['a'", "Traceback (most recent call last)", "LOAD REPORT a | MISMATCH | "),
]


@pytest.mark.parametrize("few", [500, pytest.param(MILLION // 10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("piece", REPEATED)
@pytest.mark.parametrize(
    "start", ["", "LOAD REPORT\n", "Missing key(s) in state_dict: ", "No such file or directory: '"]
)
def test_the_work_grows_with_the_length_of_a_text(start, piece, few):
    """Not with its square: of one thing over and over, ten times as many characters are about ten times the work."""

    def explained(size):
        explain(start + piece * (size // len(piece)))

    assert growth(explained, few, 10 * few, runs=1) < 50


@pytest.mark.slow
def test_a_huge_text_is_read_from_both_ends():
    """Of 40 million characters the beginning and the end are read, and the rest is said to be left out."""
    explained = explain(
        "x" * 20_000_000 + "\n" + "y" * 20_000_000 + "\nRuntimeError: Invalid magic number; corrupt file?"
    )
    assert explained.hits[0].code == "C104"
    assert explained.left_out > 20_000_000
    assert "were not read" in as_text(explained, ())


def test_commands_from_a_text_are_one_word_each():
    """What a text names is quoted for the shell."""
    text = 'torch.load("a; rm -rf $HOME.pth")\nRuntimeError: Invalid magic number; corrupt file?'
    assert "ckptdoctor check 'a; rm -rf $HOME.pth'" in as_text(explain(text), ())
