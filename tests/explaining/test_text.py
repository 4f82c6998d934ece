"""What terminals, loggers and ranks put around a text is taken off."""

from __future__ import annotations

import codecs
import io

import pytest

from ckptdoctor.explaining.reading import read_pasted, read_text
from ckptdoctor.explaining.text import cleaned

PREFIXES = [
    "[rank0]: ",
    "[default3]:",
    "[1,0]<stderr>:",
    "0: ",
    "2026-05-01 12:00:00,123 ",
    "2026-05-01T12:00:00.1234567Z ",
    "[2026-05-01 12:00:00] ",
    "[12:00:00] ",
    "ERROR: ",
    "(RayTrainWorker pid=123, ip=10.0.0.1) ",
    "trainer-1  | ",
    "> ",
    "2026-05-01 12:00:00 ERROR: [rank0]: ",
    "\x1b[31m",
    "\x1b]0;title\x07",
    "^[[31m",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_are_taken_off(prefix):
    """A line is what the program printed."""
    assert cleaned(f"{prefix}Missing key").lines == ("Missing key",)


@pytest.mark.parametrize("line", ["a.weight | MISSING |", "[64, 3, 7, 7] in the file", "12 apples", "3.5: x"])
def test_other_lines_stay(line):
    """What only looks a little like a prefix is kept."""
    assert cleaned(line).lines == (line,)


def test_squeezed_text_remembers_its_lines():
    """An offset leads back to the line and its words."""
    text = cleaned("one two\nthree\tfour\n")
    assert text.squeezed == "onetwothreefour"
    assert [text.line_at(offset) for offset in (0, 5, 6, 14)] == [0, 0, 1, 1]
    assert text.original(3, 9) == "two thr"
    assert text.original(0, 15) == "one two three four"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (b"", "utf-8")],
)
def test_encodings(mark, encoding):
    """What PowerShell writes is read too."""
    assert read_pasted(io.BytesIO(mark + "é ok".encode(encoding))) == "é ok"


def test_bytes_that_are_no_text_do_not_fail():
    """Broken bytes become marks."""
    assert "ok" in read_pasted(io.BytesIO(b"\xff\xfe\xfa ok"[2:]))


def test_standard_input_is_read_once_and_another_one_anew(monkeypatch):
    """Twice the same: it is empty after the first time. What a process was given before is not what it has now."""
    for text in ("one", "other"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert [read_text("-"), read_text("-")] == [text, text]
