"""``show --stats``: the values of a checkpoint as a table."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from threading import Event
from time import sleep

import pytest
import torch

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.cli import main, show
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.rendering.value_table import ORDERS
from ckptdoctor.values.examine import examine_values
from tests.cli.files import printable, spelt
from tests.commands import run_here


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    """A small network with something wrong in it, and tensors of other kinds beside it."""
    torch.manual_seed(0)
    state = {}
    for n in range(6):
        state[f"layers.{n}.attn.weight"] = torch.randn(40, 30) * (0.02 if n != 3 else 1.0)
        state[f"layers.{n}.norm.bias"] = torch.zeros(30)
    state["layers.1.attn.weight"][2, 3] = float("nan")
    state |= {"half": torch.rand(300).bfloat16(), "f8": torch.randn(99).to(torch.float8_e4m3fn), "n": torch.tensor(41)}
    state |= {"packed\x1b[31m\u202e": torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}
    path = tmp_path_factory.mktemp("sick") / "model.pt"
    torch.save({"state_dict": state, "ema": {"w": torch.full((4,), 2.0)}}, path)
    return path


def asked(path, *options):
    """The exit status, what is printed, and what is said on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.run(["show", str(path), "--stats", *options])
    return status, out.getvalue(), err.getvalue()


def shown(path, *options):
    """What is printed."""
    status, out, err = asked(path, *options)
    assert (status, err) == (ExitStatus.CLEAN, "")
    return out


def test_what_sticks_out_comes_first(sick):
    """NaN, what is far from tensors of its kind, and what is zero throughout, in this order and before the table."""
    lines = shown(sick).split("\n")
    at = lines.index("look here first")
    assert lines[at + 1] == "  state_dict/layers.1.attn.weight · 1 NaN of 1,200 values"
    assert lines[at + 2].startswith("  state_dict/layers.3.attn.weight · absmax ")
    assert lines[at + 2].endswith("times the median of 6 such tensors")
    assert lines[at + 3] == "  state_dict/layers.{0..5}.norm.bias · all zero, 6 of 6 such tensors"
    assert lines[at + 5].split()[:3] == ["key", "shape", "dtype"]


def test_a_healthy_file_has_nothing_to_look_at(shelf):
    """Then the table is all there is."""
    assert "look here first" not in shown(shelf / "training.pt")


def test_one_line_a_tensor(sick):
    """Grouped by the block of layers, with a picture; what is packed has a reason instead."""
    text = shown(sick)
    assert "\nstate_dict/layers.0\n  attn.weight" in text
    assert "█" in text
    assert text.count("attn.weight") == 6 + 2
    assert "not read: float4_e2m1fn_x2 is a packed dtype" in text
    assert "float32: 13 tensors · 7.4 k values · 1 NaN, 0 infinite" in text
    assert "The values of 1 tensor were not read." in text


@pytest.mark.parametrize("options", [[], ["--format", "json"], ["--sort", "std"]], ids=spelt)
def test_keys_are_escaped(sick, options):
    """Nothing of a key reaches the terminal as it is."""
    assert printable(shown(sick, *options).encode())


def test_numbers_are_those_of_torch(sick):
    """JSON has every statistic."""
    document = json.loads(shown(sick, "--format", "json"))
    found = {each["path"]: each for each in document["tensors"]}
    tensor = torch.load(sick)["state_dict"]["layers.2.attn.weight"].double()
    one = found["state_dict/layers.2.attn.weight"]
    assert (one["count"], one["nan"], one["min"], one["max"]) == (1200, 0, tensor.min().item(), tensor.max().item())
    assert one["std"] == pytest.approx(tensor.std(correction=0).item(), rel=1e-4)
    assert one["norm"] == pytest.approx(tensor.norm().item(), rel=1e-4)
    assert sum(one["histogram"]["counts"]) == 1200
    assert found["state_dict/layers.1.attn.weight"]["nan"] == 1
    assert [each["why"] for each in document["skipped"]] == ["float4_e2m1fn_x2 is a packed dtype"]
    assert document["totals"]["float32"]["tensors"] == 13
    assert document["complete"] is True


def test_infinite_norms_are_json_too(tmp_path):
    """Squares that no float holds do not make the document invalid."""
    torch.save({"w": torch.full((40,), 1e200, dtype=torch.float64)}, tmp_path / "m.pt")
    document = json.loads(shown(tmp_path / "m.pt", "--format", "json"))
    assert document["tensors"][0]["norm"] == {"$float": "inf"}
    assert "inf" in shown(tmp_path / "m.pt")


def test_a_part(sick):
    """--root and --only choose; what matches nothing is said."""
    assert "half" not in shown(sick, "--root", "ema")
    text = shown(sick, "--only", "*layers.4*", "--only", "half")
    assert "layers.4" in text and "half" in text and "layers.5" not in text
    status, _, said = asked(sick, "--only", "nothing*")
    assert status == ExitStatus.TROUBLE and "--only nothing* matches no tensor" in said


@pytest.mark.parametrize("option", [["--only", "*"], ["--sort", "std"]], ids=spelt)
def test_only_and_sort_need_the_values(sick, option, capsys):
    """Elsewhere they are a mistake, not silently nothing."""
    assert main.run(["show", str(sick), *option]) == ExitStatus.TROUBLE
    assert "need --stats" in capsys.readouterr().err


SORTED = {
    "nan": ("most.broken", "little.broken", "blank", "heavy", "long", "low", "peak", "wide"),
    "absmax": ("peak", "wide", "low", "heavy", "most.broken", "little.broken", "long", "blank"),
    "norm": ("heavy", "peak", "low", "wide", "most.broken", "little.broken", "long", "blank"),
    "mean": ("low", "peak", "most.broken", "little.broken", "long", "blank", "heavy", "wide"),
    "std": ("wide", "peak", "heavy", "most.broken", "little.broken", "blank", "long", "low"),
    "zeros": ("blank", "little.broken", "peak", "heavy", "long", "low", "most.broken", "wide"),
    "size": ("long", "heavy", "peak", "most.broken", "blank", "little.broken", "low", "wide"),
}


@pytest.fixture(scope="module")
def sorted_out(tmp_path_factory):
    """Tensors of which another one comes first in every order; where two are level, the names are in their order."""
    nan, inf = float("nan"), float("inf")
    state = {
        "blank": [0.0] * 20,
        "heavy": [10.0, -10.0] * 2000,
        "little.broken": [-inf, 0.0, 1.0, 0.0, 3.0],
        "long": [0.001] * 5000,
        "low": [-50.0] * 3,
        "most.broken": [nan, inf, nan, -1.5, 7.5, 7.5] * 4,
        "peak": [200.0] + [0.5] * 20 + [0.0] * 10,
        "wide": [-60.0, 60.0],
    }
    path = tmp_path_factory.mktemp("sorted") / "model.pt"
    torch.save({key: torch.tensor(values) for key, values in state.items()}, path)
    return path


@pytest.mark.parametrize("order", show.ORDERS)
def test_orders(sorted_out, order):
    """The greatest comes first, of means the one farthest from zero; what is level keeps the order of the file."""
    lines = shown(sorted_out, "--sort", order).split("\n")
    first = next(at for at, line in enumerate(lines) if line.startswith("key")) + 1
    assert tuple(line.split()[0] for line in lines[first : lines.index("", first)]) == SORTED[order]


@pytest.mark.parametrize("order", show.ORDERS)
def test_what_was_not_read_comes_last(sick, order):
    """Whatever the order is."""
    lines = shown(sick, "--sort", order).split("\n")
    first = next(at for at, line in enumerate(lines) if line.startswith("key")) + 1
    assert "not read" in lines[lines.index("", first) - 1]


def test_the_names_of_orders():
    """The command line offers what the table knows."""
    assert set(show.ORDERS) == set(ORDERS)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def __init__(self, encoding):
        super().__init__()
        self._encoding = encoding

    encoding = property(lambda self: self._encoding)

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Runs a command as if on a terminal; gives what is printed."""

    def on(columns, *arguments, encoding="utf-8", **environment):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        stream = Terminal(encoding)
        monkeypatch.setattr("sys.stdout", stream)
        return main.run(arguments), stream.getvalue()

    return on


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("order", [[], ["--sort", "absmax"]], ids=spelt)
def test_it_fits(sick, terminal, columns, order):
    """Columns are left out where there is no room for them; NaN, extremes and keys stay."""
    status, text = terminal(columns, "show", str(sick), "--stats", "--color", "never", *order)
    assert status == ExitStatus.CLEAN
    table = text[text.index("look here first") :]
    assert max(map(len, table.split("\n"))) <= columns
    for name in ("key", "NaN/inf", "min", "max"):
        assert name in table


def test_colour(sick, terminal):
    """Red and yellow where something is wrong; NO_COLOR is obeyed."""
    assert "\x1b[1;31m" in terminal(100, "show", str(sick), "--stats")[1]
    assert "\x1b" not in terminal(100, "show", str(sick), "--stats", NO_COLOR="1")[1]


def test_a_terminal_without_blocks(sick, terminal):
    """Histograms are drawn with signs that it has."""
    text = terminal(120, "show", str(sick), "--stats", "--color", "never", encoding="ascii")[1]
    assert text.isascii()
    assert "@" in text and "\\u258" not in text


def test_ctrl_c_prints_what_was_found(sick, terminal, monkeypatch):
    """The table has what is known by then, says that it is not all, and the status is that of an interrupt."""
    pressed = Event()

    def press(bar, event):
        if not pressed.is_set():
            pressed.set()
            raise KeyboardInterrupt

    def slowly(checkpoint, source, work):
        def after_the_press(progress):
            pressed.wait(60)
            while True:  # the press is on its way
                work.reach(progress.done)
                sleep(0.01)

        return examine_values(checkpoint, source, Work(listener=after_the_press))

    monkeypatch.setattr("ckptdoctor.cli.progress.ProgressBar.hear", press)
    monkeypatch.setattr("ckptdoctor.values.examine.examine_values", slowly)
    status, text = terminal(100, "show", str(sick), "--stats", "--color", "never")
    assert pressed.is_set() and status == ExitStatus.INTERRUPTED
    assert "Interrupted:" in text


def test_nothing_to_measure(tmp_path):
    """A checkpoint without tensors has no table."""
    torch.save({"epoch": 3}, tmp_path / "m.pt")
    assert "no values" in shown(tmp_path / "m.pt")


def test_standard_input(sick):
    """A file can come through a pipe."""
    result = run_here("show", "-", "--stats", cwd=sick.parent, stdin=sick.read_bytes())
    assert b"layers.0" in result.stdout


def test_whose_figures_those_of_sparse_tensors_are(tmp_path):
    """They are of the stored values alone, and the last line says so; an empty tensor has none."""
    path = tmp_path / "a.pt"
    torch.save({"eye": torch.eye(6).to_sparse(), "empty": torch.empty(0, 3)}, path)
    out = shown(path)
    assert out.rstrip().endswith("The figures of 1 sparse tensor are those of its stored values.")
    torch.save({"eye": torch.eye(6).to_sparse(), "other": torch.eye(3).to_sparse()}, path)
    assert "The figures of 2 sparse tensors are those of their stored values." in shown(path)
    torch.save({"dense": torch.eye(6)}, path)
    assert "sparse" not in shown(path)
