import os
import subprocess

import pytest

from ckptdoctor.edits import Fix, Safety
from ckptdoctor.report.escape import escape
from ckptdoctor.report.shell import fix_command, quote, with_path


@pytest.mark.parametrize(
    "name",
    [
        *("model.pt", "epoch=9 best.ckpt", "it's.pt", 'a"b$c`d.pt', "new\nline.pt", "\x1b[31m.pt", "büro.pt", "-o.pt"),
        *("::", "::error::x.pt", "##vso[task.complete]x.pt", "\\##[group]x.pt", "###[error]x.pt"),
    ],
)
def test_a_quoted_path_is_one_word_for_the_shell(name):
    """bash gives back the very path, and the word holds nothing that a terminal would act on."""
    word = quote(name)
    assert word.isprintable()
    assert escape(word) == word, "nor does a build service"
    result = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert result.stdout.removeprefix(b"./") == os.fsencode(name)


def test_bytes_that_are_no_text_survive():
    """A file name that is not UTF-8 comes through the shell byte for byte."""
    name = os.fsdecode(b"caf\xe9.pt")
    result = subprocess.run(["bash", "-c", f"printf %s {quote(name)}"], capture_output=True, check=True)
    assert result.stdout == b"caf\xe9.pt"


def test_a_fix_with_its_own_option():
    """An option of its own is all that a fix needs, safe or unsafe."""
    fix = Fix("drop", (), Safety.UNSAFE, "--drop total_ops")
    assert fix_command("a b.pt", fix) == "ckptdoctor fix 'a b.pt' --drop total_ops"


@pytest.mark.parametrize("safety", [Safety.UNSAFE, Safety.CONFIRMED])
def test_an_unsafe_fix_chosen_by_code(safety):
    """A fix chosen by its rule's code says that unsafe ones are meant too: that command names no reference."""
    fix = Fix("drop", (), safety, "--select N420")
    assert fix_command("m.pt", fix) == "ckptdoctor fix m.pt --select N420 --unsafe-fixes"


def test_standard_input_has_no_path_to_repair():
    """For standard input the command speaks of FILE, which the reader has to put in."""
    assert fix_command("-") == "ckptdoctor fix FILE"
    assert with_path("ckptdoctor fix FILE --to-cpu", "-") == "ckptdoctor fix FILE --to-cpu"
