"""``ckptdoctor report`` as people meet it."""

import os
import subprocess
import sys

import pytest

from tests.cli.files import healthy, hostile, sick
from tests.commands import run


@pytest.fixture
def shelf(tmp_path):
    """A healthy file, one with a finding, a hostile one, and a web page by the name of a checkpoint."""
    healthy(tmp_path)
    sick(tmp_path)
    hostile(tmp_path)
    (tmp_path / "text.pt").write_text("<!DOCTYPE html><html></html>")
    return tmp_path


def test_a_page_is_written(shelf):
    """Where it was asked for, and stderr says so; nothing else appears in the folder."""
    before = set(os.listdir(shelf))
    done = run("report", "sick.pt", "-o", "page.html", cwd=shelf)
    assert done.returncode == 0 and not done.stdout and done.stderr.startswith(b"wrote page.html, ")
    assert set(os.listdir(shelf)) - before == {"page.html"}
    text = (shelf / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "ckptdoctor fix sick.pt --strip-module" in text


def test_an_existing_page_is_replaced_only_with_force(shelf):
    """And anything but a page is never replaced, however hard one asks."""
    assert run("report", "healthy.pt", "--headers-only", cwd=shelf).returncode == 0
    done = run("report", "sick.pt", cwd=shelf)
    assert done.returncode == 2 and b"--force" in done.stderr
    assert run("report", "sick.pt", "--force", "--headers-only", cwd=shelf).returncode == 0
    assert "sick.pt" in (shelf / "report.html").read_text(encoding="utf-8")
    before = (shelf / "healthy.pt").read_bytes()
    done = run("report", "sick.pt", "-o", "healthy.pt", "--force", cwd=shelf)
    assert done.returncode == 2 and b"is never replaced" in done.stderr
    assert (shelf / "healthy.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.pt",), b"missing.pt"),
        ((".",), b"a page shows one"),
        (("healthy.pt", "missing.pt"), b"missing.pt"),
        (("healthy.pt", "-o", "nowhere/page.html"), b"no folder"),
        (("healthy.pt", "--root", "nowhere"), b"nowhere"),
        (("healthy.pt", "--like", "sick.pt", "--model", "a:b"), b"give one"),
        (("-", "healthy.pt"), b"standard input"),
    ],
)
def test_trouble_is_one_sentence_and_no_page(shelf, arguments, said):
    """Exit status 2, and nothing is left behind."""
    before = set(os.listdir(shelf))
    done = run("report", *arguments, "--headers-only", cwd=shelf, stdin=(shelf / "sick.pt").read_bytes())
    assert done.returncode == 2 and said in done.stderr and b"Traceback" not in done.stderr
    assert set(os.listdir(shelf)) == before


def test_headers_need_no_torch(shelf):
    """--headers-only is quick: nothing heavy is loaded, with one file or two."""
    for other in ([], ["healthy.pt"]):
        code = (
            "import sys; from ckptdoctor.cli.main import run\n"
            f"print(run(['report', 'sick.pt', *{other!r}, '--headers-only', '--force']), 'torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=shelf, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["0", "False"]


def test_a_target_and_another_file(shelf):
    """How much fits a reference, and how another file differs, are on the page."""
    done = run("report", "sick.pt", "healthy.pt", "--like", "healthy.pt", cwd=shelf)
    assert done.returncode == 0, done.stderr
    text = (shelf / "report.html").read_text(encoding="utf-8")
    assert "fit to healthy.pt" in text and ">Comparison</h2>" in text


def test_comparing_tells_how_far_it_is(shelf, monkeypatch):
    """As the examination does: whoever watches a terminal hears of the bytes of one file, and then of both."""
    from ckptdoctor.cli import main, progress
    from tests.cli.test_progress import Terminal

    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "_QUIET", 0)
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    monkeypatch.chdir(shelf)
    assert main.run(["report", "sick.pt", "healthy.pt"]) == 0
    drawn = terminal.getvalue()
    assert 0 < drawn.index("of 32 bytes") < drawn.index("of 64 bytes")


def test_hostile_files_have_a_page(shelf):
    """Nothing invisible of them reaches it."""
    done = run("report", "hostile.pt", "sick.pt", cwd=shelf)
    assert done.returncode == 0, done.stderr
    text = (shelf / "report.html").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.split("\n")) and len(text) < 400_000


def test_what_is_no_checkpoint_has_a_page_that_says_so(shelf):
    """A finding says what it is."""
    done = run("report", "text.pt", cwd=shelf)
    assert done.returncode == 0, done.stderr
    assert 'class="finding error"' in (shelf / "report.html").read_text(encoding="utf-8")


def test_standard_input(shelf):
    """A checkpoint that comes in through a pipe has a page as well."""
    done = run("report", "-", "--headers-only", cwd=shelf, stdin=(shelf / "sick.pt").read_bytes())
    assert done.returncode == 0 and "ckptdoctor fix FILE" in (shelf / "report.html").read_text(encoding="utf-8")
