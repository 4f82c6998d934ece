import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from tests.cli.files import printable, spelt
from tests.commands import run, run_here


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["healthy.pt"], 0),
        (["sick.pt"], 1),
        (["healthy.pt", "sick.pt"], 1),
        (["sick.pt", "--fail-on", "never"], 0),
        (["sick.pt", "--select", "D"], 0),
        (["sick.pt", "--ignore", "module-prefix"], 0),
        (["empty.pt"], 1),
        (["page.pt"], 1),
        (["missing.pt"], 2),
        (["sick.pt", "missing.pt"], 2),
        (["sick.pt", "--select", "Q999"], 2),
        (["sick.pt", "--like", "missing.pt"], 2),
        (["sick.pt", "--like", "healthy.pt"], 1),
        (["healthy.pt", "--like", "healthy.pt"], 0),
        (["training.pt", "--root", "state_dict", "--select", "N401"], 1),
        (["training.pt", "--root", "nowhere"], 2),
        (["--no-such-option", "sick.pt"], 2),
        ([], 2),
    ],
    ids=spelt,
)
def test_exit_status(shelf, arguments, status):
    """0 for nothing at or above --fail-on, 1 for findings (damage too), 2 for what could not be examined."""
    result = run("check", *arguments, cwd=shelf)
    assert result.returncode == status, result.stderr
    assert b"Traceback" not in result.stderr
    assert bool(result.stderr) == (status == 2)


def test_a_sick_file_names_cause_and_repair(shelf):
    """The report goes to stdout: the finding, torch's words, the command, and what was not examined."""
    text = run_here("check", "sick.pt", cwd=shelf).stdout.decode()
    assert "error N401 module-prefix" in text
    assert "Missing key(s) in state_dict" in text
    assert "ckptdoctor fix sick.pt --strip-module" in text
    assert "Not examined: checksums and values (--deep), fit to a model (--model, --like)." in text


def test_a_healthy_file_is_two_lines(shelf):
    """A healthy file is two lines."""
    assert len(run_here("check", "healthy.pt", cwd=shelf).stdout.decode().strip().split("\n")) == 2


def test_errors_go_to_stderr_and_the_others_are_still_examined(shelf):
    """A path that cannot be read is a line on stderr; the other files have their reports on stdout."""
    result = run_here("check", "missing.pt", "sick.pt", cwd=shelf)
    assert b"missing.pt" in result.stderr and b"missing.pt" not in result.stdout
    assert b"N401" in result.stdout
    assert len(result.stderr.strip().split(b"\n")) == 1


def test_concise_is_one_line_a_finding(shelf):
    """Every line of the concise format begins with the path and the code."""
    result = run_here("check", "--format", "concise", "sick.pt", "healthy.pt", cwd=shelf)
    (line,) = result.stdout.decode().strip().split("\n")
    assert line.startswith("sick.pt: N401 error module-prefix: ") and line.endswith("[fix: --strip-module]")


def test_json_is_one_document(shelf):
    """The JSON of several files is one document, errors included."""
    result = run_here("check", "--format", "json", "sick.pt", "healthy.pt", "missing.pt", cwd=shelf)
    document = json.loads(result.stdout)
    assert document["schema"] == "ckptdoctor/1"
    assert [file["path"] for file in document["files"]] == ["sick.pt", "healthy.pt", "missing.pt"]
    assert document["files"][0]["findings"][0]["code"] == "N401"
    assert "No such file" in document["files"][2]["error"]
    assert document["summary"]["error"] == 1


def test_statistics(shelf):
    """With --statistics the findings of each rule are counted."""
    result = run_here("check", "--format", "concise", "--statistics", "sick.pt", cwd=shelf)
    assert b"1  error  N401  module-prefix" in result.stdout


def test_standard_input(shelf):
    """A file can come through a pipe; the command to repair it speaks of FILE."""
    result = run("check", "-", cwd=shelf, stdin=(shelf / "sick.pt").read_bytes())
    assert result.returncode == 1
    assert result.stdout.startswith(b"- ") and b"ckptdoctor fix FILE --strip-module" in result.stdout


@pytest.mark.parametrize("command", ["check", "show"])
def test_an_error_about_standard_input_names_no_copy_of_it(command, tmp_path):
    """What came through the pipe is not a checkpoint."""
    result = run(command, "-", cwd=tmp_path, stdin=bytes(range(256)) * 20)
    assert result.returncode == 2 and result.stderr.startswith(b"error: standard input")
    assert b"ckptdoctor-" not in result.stdout + result.stderr


def test_what_is_told_of_standard_input_names_no_copy_of_it(tmp_path):
    """Arguments of a class that come from the file are said to be from standard input."""
    (tmp_path / "nets.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.fc = torch.nn.Linear(width, 2)\n"
    )
    weights = {"fc.weight": torch.zeros(2, 4), "fc.bias": torch.zeros(2)}
    saved = {"state_dict": weights, "hyper_parameters": {"width": 4}, "pytorch-lightning_version": "2.0"}
    torch.save(saved, tmp_path / "net.ckpt")
    result = run("check", "-", "--model", "nets:Net", cwd=tmp_path, stdin=(tmp_path / "net.ckpt").read_bytes())
    assert b"width of nets:Net is from hyper_parameters of standard input\n" in result.stdout
    assert b"ckptdoctor fix FILE --auto --model" in result.stdout


def test_directories_and_globs(shelf):
    """A directory is searched, a glob expanded, and the end says how many files there were."""
    everything = run_here("check", ".", cwd=shelf)
    assert b"6 files: " in everything.stdout
    assert run_here("check", "h*y.pt", cwd=shelf).returncode == 0


@pytest.mark.parametrize("style", ["full", "concise", "json"])
@pytest.mark.parametrize("options", [[], ["--like", "healthy.pt"], ["--deep"], ["--root", "state_dict"]], ids=spelt)
def test_hostile_text_never_reaches_the_terminal(shelf, style, options):
    """ANSI, bidi, zero-width characters, line breaks and NULs of a file come out escaped in every format."""
    result = run_here("check", "hostile.pt", "--format", style, *options, cwd=shelf)
    assert result.returncode in (0, 1)
    assert b"evil" in result.stdout or style == "concise"
    assert printable(result.stdout) and printable(result.stderr)
    assert len(result.stdout) < 100_000 or style == "json"


def test_a_hostile_path_is_escaped(shelf, tmp_path):
    """A file name cannot take over the terminal, and the command for it works in the shell."""
    name = "x\x1b[2J\n.pt"
    (tmp_path / name).write_bytes((shelf / "sick.pt").read_bytes())
    result = run("check", name, cwd=tmp_path)
    assert printable(result.stdout)
    assert rb"ckptdoctor fix $'x\x1b[2J\x0a.pt' --strip-module" in result.stdout
    assert printable(run("check", name + "?", cwd=tmp_path).stderr)
    assert printable(run(name, cwd=tmp_path).stderr)


@pytest.mark.parametrize(
    ("environment", "options", "coloured"),
    [
        ({}, [], False),
        ({}, ["--color", "always"], True),
        ({"NO_COLOR": "1"}, ["--color", "always"], True),
        ({}, ["--color", "never"], False),
    ],
)
def test_colour(shelf, environment, options, coloured):
    """A pipe gets no colour unless it is asked for."""
    result = run("check", "sick.pt", *options, cwd=shelf, env={**os.environ, **environment})
    assert (b"\x1b[" in result.stdout) == coloured


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_on_a_terminal(shelf, environment, coloured):
    """A terminal gets colour, unless NO_COLOR says otherwise; and lines that fit it."""
    master, slave = os.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    line = [sys.executable, "-m", "ckptdoctor", "check", "sick.pt"]
    env = {**kept, "TERM": "xterm", **environment}
    with subprocess.Popen(line, cwd=shelf, stdout=slave, env=env) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError:  # Linux says EIO when the other side is gone
                break
            if not chunk:
                break
            output += chunk
    os.close(master)
    assert process.returncode == 1
    assert (b"\x1b[" in output) == coloured


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(shelf, encoding):
    """Where the terminal cannot show a sign a plain one stands for it; nothing breaks."""
    result = run("check", "sick.pt", cwd=shelf, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert result.returncode == 1
    assert "N401 module-prefix" in result.stdout.decode(encoding)


def test_a_closed_pipe_ends_quietly(shelf):
    """When the reader goes away, as head does, nothing is said about it."""
    line = [sys.executable, "-m", "ckptdoctor", "show", "hostile.pt", "--format", "json"]
    with subprocess.Popen(line, cwd=shelf, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=10) != 0


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_quietly(shelf, tmp_path, monkeypatch):
    """Ctrl-C ends with status 130 and not a word."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "ckptdoctor", "check", "-"]
    with subprocess.Popen(
        command, cwd=shelf, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not list(tmp_path.glob("ckptdoctor-*")):  # what comes from standard input is kept there
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(timeout=10) == 130


NETS = """
import sys
from torch import nn
print("narration")
def make(out=2):
    print("more of it")
    return nn.ModuleDict({"fc": nn.Linear(3, out)})
def broken():
    raise ValueError("\\x1b[2Jevil\\n")
"""


@pytest.fixture
def work(shelf, tmp_path):
    """A directory with a model's code and checkpoints."""
    (tmp_path / "some_nets.py").write_text(NETS)
    for name in ("sick.pt", "healthy.pt"):
        (tmp_path / name).write_bytes((shelf / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["healthy.pt", "--model", "some_nets:make"], 0, b"fit to some_nets:make \xc2\xb7 2 of 2 keys as it is"),
        (["healthy.pt", "--model", "some_nets.py:make(out=3)"], 1, b"none of 2 keys of some_nets:make(out=3)"),
        (["sick.pt", "--model", "some_nets:make(2)"], 1, b"2 of 2 after 1 step (100 % of parameters)"),
        (
            ["sick.pt", "healthy.pt", "--model", "some_nets:make", "--format", "json"],
            1,
            b'"reference": "some_nets:make',
        ),
        (
            ["sick.pt", "--model", "some_nets:broken"],
            2,
            b"error: some_nets:broken cannot be built: some_nets.py, line 9: ",
        ),
        (["sick.pt", "--model", "some_nets"], 2, b"--model takes a module and a name in it"),
        (
            ["sick.pt", "--model", "some_nets:make", "--like", "healthy.pt"],
            2,
            b"--like and --model are different targets",
        ),
        (["sick.pt", "--config", "nowhere.json"], 2, b"error: nowhere.json cannot be read: No such file or directory."),
        (["sick.pt", "--config", "sick.pt"], 2, b"error: sick.pt is not JSON"),
    ],
    ids=spelt,
)
def test_a_model_from_code_and_configs(work, arguments, status, said):
    """A file is held against the user's own model; what their code prints is narration, and errors are told with it."""
    result = run("check", *arguments, cwd=work)
    assert result.returncode == status, result.stderr
    assert said in (result.stderr if status == 2 else result.stdout)
    assert b"narration" not in result.stdout and b"more of it" not in result.stdout
    assert (b"Traceback" in result.stderr) == (b"cannot be built" in result.stderr)  # of their own lines
    assert b"ckptdoctor/" not in result.stderr
    assert printable(result.stderr)
    if "json" in arguments:
        assert len(json.loads(result.stdout)["files"]) == 2


def test_configuration_applies_and_options_replace_it(shelf, tmp_path):
    """The settings of the project hold where the command line says nothing."""
    (tmp_path / "m.pt").write_bytes((shelf / "sick.pt").read_bytes())
    (tmp_path / "ckptdoctor.toml").write_text('ignore = ["N401"]\nformat = "concise"\n')
    assert run_here("check", "m.pt", cwd=tmp_path).returncode == 0
    assert run_here("check", "m.pt", "--ignore", "D601", cwd=tmp_path).stdout.startswith(b"m.pt: N401")
    (tmp_path / "ckptdoctor.toml").write_text("nonsense = 1\n")
    result = run_here("check", "m.pt", cwd=tmp_path)
    assert result.returncode == 2 and b"nonsense" in result.stderr


def test_a_bug_is_one_line_and_status_2(shelf):
    """What nobody foresaw is one line on stderr, and the environment can ask for the whole trace."""
    code = (
        "import ckptdoctor.examine.files as examine\n"
        "from ckptdoctor.cli.main import main\n"
        "def broken(*arguments): raise ZeroDivisionError('unforeseen')\n"
        "examine.diagnose = broken\n"
        "main(['check', 'sick.pt', 'healthy.pt'])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=shelf, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.count("ckptdoctor itself failed: ZeroDivisionError") == 2
    assert "Traceback" not in result.stderr
    environment = {**os.environ, "CKPTDOCTOR_TRACEBACK": "1"}
    result = subprocess.run([sys.executable, "-c", code], cwd=shelf, capture_output=True, text=True, env=environment)
    assert "Traceback" in result.stderr


def test_an_error_text_says_what_is_wanted(tmp_path):
    """--error takes the text of load_state_dict's error for the target: the prefix is found, and the other head."""
    import torch
    from torch import nn

    def net(classes):
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, classes))

    saved = {f"module.{key}": value for key, value in net(5).state_dict().items()}
    torch.save(saved, tmp_path / "model.pt")
    with pytest.raises(RuntimeError) as error:
        net(10).load_state_dict(saved)
    (tmp_path / "error.txt").write_text(f"Traceback (most recent call last):\n  …\nRuntimeError: {error.value}\n")
    found = run_here("check", "model.pt", "--error", "error.txt", "--format", "concise", cwd=tmp_path)
    assert found.returncode == 1
    assert [line.split()[1] for line in found.stdout.splitlines()] == [b"N401"]
    (tmp_path / "error.txt").write_text("nothing of the kind")
    nothing = run_here("check", "model.pt", "--error", "error.txt", cwd=tmp_path)
    assert nothing.returncode == 2
    assert b"error.txt does not contain an error of load_state_dict" in nothing.stdout + nothing.stderr


def test_a_deep_check_does_without_numpy(shelf, tmp_path):
    """torch's own warning that there is no NumPy is kept from people: nothing here needs it."""
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\")")
    done = run("check", "--deep", "healthy.pt", cwd=shelf, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"values" not in done.stdout.split(b"Not examined:")[1]
