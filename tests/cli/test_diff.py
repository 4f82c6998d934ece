"""``ckptdoctor diff`` as people meet it."""

import json
from time import sleep

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor import errors
from tests.cli.files import hostile, printable
from tests.commands import run_here


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Weights, the same under other names, with another head, and in a training checkpoint."""
    folder = tmp_path_factory.mktemp("diff")
    torch.manual_seed(0)
    state = {f"layer{i}.weight": torch.randn(64, 64) for i in range(4)} | {"fc.weight": torch.randn(10, 64)}
    torch.save(state, folder / "a.pt")
    save_file(state, folder / "same.safetensors")
    torch.save({f"module.{key}": value for key, value in state.items()}, folder / "wrapped.pt")
    torch.save(state | {"fc.weight": state["fc.weight"] + 0.5}, folder / "head.pt")
    torch.save({"state_dict": state, "epoch": 3}, folder / "training.pt")
    (folder / "page.pt").write_text("<!DOCTYPE html><html></html>")
    hostile(folder)
    return folder


@pytest.mark.parametrize(
    ("other", "options", "status"),
    [
        ("same.safetensors", (), 0),
        ("same.safetensors", ("--values",), 0),
        ("head.pt", (), 0),
        ("head.pt", ("--values",), 1),
        ("head.pt", ("--atol", "0.6"), 0),
        ("wrapped.pt", (), 1),
        ("training.pt", (), 1),
        ("training.pt", ("--root-b", "state_dict", "--values"), 0),
        ("page.pt", (), 2),
        ("missing.pt", (), 2),
        ("same.safetensors", ("--root", "nowhere"), 2),
        ("same.safetensors", ("--rtol", "-1"), 2),
    ],
)
def test_the_status_says_whether_they_differ(shelf, other, options, status):
    """0 the same as far as was compared, 1 different, 2 trouble in one sentence."""
    done = run_here("diff", "a.pt", other, *options, cwd=shelf)
    assert done.returncode == status, done.stdout + done.stderr
    assert bool(done.stderr) == (status == 2) and b"Traceback" not in done.stderr


def test_the_screen(shelf):
    """The sentence comes first, then what is the same and what is not."""
    text = run_here("diff", "a.pt", "head.pt", "--values", cwd=shelf).stdout.decode()
    assert text.startswith("A  a.pt · PyTorch .pt (zip)") and "\nB  head.pt · PyTorch .pt (zip)" in text
    assert "\nidentical except for the head (fc)\n" in text
    assert "4 tensors  equal, bit for bit" in text and "1 tensor  fc.weight" in text
    assert "Compared headers and values" in text


@pytest.mark.parametrize("style", ["full", "concise", "markdown", "json"])
def test_every_style(shelf, style):
    """Each style prints, whatever the files hold."""
    for pair in (("a.pt", "wrapped.pt"), ("hostile.pt", "a.pt"), ("hostile.pt", "hostile.pt")):
        done = run_here("diff", *pair, "--values", "--all", "--format", style, cwd=shelf)
        assert done.returncode in (0, 1) and not done.stderr and printable(done.stdout)
        if style == "json":
            assert json.loads(done.stdout)["schema"] == "ckptdoctor/1"


def test_headers_need_no_numpy(shelf):
    """Without --values nothing heavy is loaded; with it NumPy only where bytes differ, and never torch."""
    import subprocess
    import sys

    for other, values, wanted in (("wrapped.pt", [], "False"), ("head.pt", ["--values"], "True")):
        code = (
            "import sys; from ckptdoctor.cli.main import run\n"
            f"run(['diff', 'a.pt', {other!r}, *{values!r}])\n"
            "print('numpy' in sys.modules, 'torch' in sys.modules, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=shelf, capture_output=True, text=True, check=True)
        assert done.stderr.split() == [wanted, "False"]


def test_progress_on_a_terminal(shelf, monkeypatch, capsys):
    """On a terminal a line tells how far reading is, and is gone before the report; elsewhere stderr stays empty."""
    from ckptdoctor.cli import main, progress
    from tests.cli.test_progress import Terminal

    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "_QUIET", 0)
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    monkeypatch.chdir(shelf)
    assert main.run(["diff", "a.pt", "head.pt", "--values"]) == 1
    drawn = terminal.getvalue()
    assert "values  [" in drawn and " of 136 kB" in drawn and drawn.endswith("\r\x1b[K")
    assert "identical except for the head" in capsys.readouterr().out
    assert main.run(["diff", "a.pt", "head.pt"]) == 0
    assert "[" not in terminal.getvalue()[len(drawn) :].replace("\x1b[K", "") and terminal.getvalue().endswith(
        "\r\x1b[K"
    )


def test_ctrl_c_ends_it(shelf, monkeypatch, capsys):
    """Ctrl-C while values are read ends with its own status, what the headers say, and how far the values came."""
    from ckptdoctor.cli import main
    from ckptdoctor.cli.exit_status import ExitStatus
    from ckptdoctor.cli.progress import ProgressBar

    def hear(self, event):
        raise KeyboardInterrupt

    def endlessly(found, a, b, work, sofar):
        while True:
            work.reach(500)
            sleep(0.01)

    monkeypatch.setattr(ProgressBar, "hear", hear)
    monkeypatch.setattr("ckptdoctor.values.differences.compare_values", endlessly)
    monkeypatch.chdir(shelf)
    for style in ("full", "concise", "markdown", "json"):
        command = ["diff", "a.pt", "head.pt", "--values", "--format", style]
        assert main.run(command) == ExitStatus.INTERRUPTED
        out = capsys.readouterr().out
        if style == "json":
            found = json.loads(out)
            assert found["interrupted"] and not found["same"] and not found["compared_values"]
            assert [each["what"] for each in found["read"]] == ["values"] and not found["read"][0]["complete"]
        else:
            assert "Interrupted: headers done, values" in out and "No values differ so far." in out


def test_from_python(shelf):
    """ckptdoctor.diff gives the difference as data."""
    assert ckptdoctor.diff(shelf / "a.pt", shelf / "same.safetensors").same
    found = ckptdoctor.diff(shelf / "a.pt", str(shelf / "head.pt"), values=True)
    assert not found.same and found.summary == "identical except for the head (fc)"
    assert ckptdoctor.diff(shelf / "a.pt", shelf / "head.pt", atol=1).same
    with pytest.raises(errors.NotACheckpointError):
        ckptdoctor.diff(shelf / "a.pt", shelf / "page.pt")
