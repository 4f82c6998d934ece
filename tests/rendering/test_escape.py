import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.rendering.escape import escape


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layer1.0.conv1.weight", "layer1.0.conv1.weight"),
        ("größe/权重", "größe/权重"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nb\r\t\0", r"a\nb\r\t\x00"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("c1\x9b31m", r"c1\x9b31m"),
        ("lone\udc80", r"lone\udc80"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("filler\u3164\ufe0f", r"filler\u3164\ufe0f"),
        ("line\u2028break\x85", r"line\u2028break\x85"),
        ("::error file=x::no", r"\x3a:error file=x::no"),
        ("  ::stop-commands::x", r"  \x3a:stop-commands::x"),
        ("std::vector", "std::vector"),
        ("a ##vso[task.setvariable x]", r"a \x23#vso[task.setvariable x]"),
        ("##[group]", r"\x23#[group]"),
        ("## heading", "## heading"),
    ],
)
def test_what_could_harm_becomes_visible(text, shown):
    """Whatever could move the cursor, turn the line round, hide, or command a build service is shown as an escape."""
    assert escape(text) == shown


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet=st.characters(), max_size=50))
def test_the_result_is_always_printable(text):
    """No control, format, surrogate or separator character survives, whatever the text."""
    shown = escape(text)
    assert shown.isprintable()
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)
    assert escape(shown) == shown
