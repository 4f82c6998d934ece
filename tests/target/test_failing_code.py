"""The user's own code that fails while it is imported: one sentence, and their own traceback."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import textwrap

import pytest
import torch

from ckptdoctor.errors import UsageError
from tests.commands import run
from tests.target.asked import of_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, from which nothing stays imported."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("code", "sentence", "trace"),
    [
        (
            "x = 1\ny = 1 / 0\n",
            r"bad\.py, line 2: ZeroDivisionError: division by zero\. The error is in your own code: fix it there, or",
            ['  File "bad.py", line 2, in <module>', "    y = 1 / 0", "ZeroDivisionError: division by zero"],
        ),
        (
            "x = 1\ndef f(:\n",
            r"bad\.py, line 2: SyntaxError: invalid syntax\. The error is in your own",
            ['  File "bad.py", line 2', "    def f(:", "          ^", "SyntaxError: invalid syntax"],
        ),
        (
            "import nothing_there\n",
            r"'nothing_there'\. Install it in ckptdoctor's environment \(pip install nothing_there\), or start",
            [
                '  File "bad.py", line 1, in <module>',
                "    import nothing_there",
                "ModuleNotFoundError: No module named 'nothing_there'",
            ],
        ),
        (
            "import sys\nsys.exit(3)\nNet = 1\n",
            r'bad\.py, line 2: SystemExit: .* belongs under if __name__ == "__main__"\.$',
            ['  File "bad.py", line 2, in <module>', "    sys.exit(3)", "SystemExit: the code ends the program"],
        ),
        (
            "def f(x):\n    int(x)\nf('a')\nNet = 1\n",
            r"bad\.py, line 2 \(from bad\.py, line 3\): ValueError: invalid literal for int\(\)",
            [
                '  File "bad.py", line 3, in <module>',
                "    f('a')",
                '  File "bad.py", line 2, in f',
                "    int(x)",
                "ValueError: invalid literal for int() with base 10: 'a'",
            ],
        ),
        (
            "raise ValueError('a\\n\\x1b[2Jb')\nNet = 1\n",
            r"bad\.py, line 1: ValueError: a \x1b\[2Jb\. The error is",
            ['  File "bad.py", line 1, in <module>', "    raise ValueError('a\\n\\x1b[2Jb')", "ValueError: a \x1b[2Jb"],
        ),
    ],
)
@pytest.mark.parametrize("name", ["bad:Net", "bad.py:Net"])
def test_import_errors_show_the_users_own_lines(folder, name, code, sentence, trace):
    """A sentence that says what to do, then the traceback as Python prints it, of their files alone."""
    (folder / "bad.py").write_text(code)
    with pytest.raises(UsageError) as caught:
        of_model(name)
    first, *shown = caught.value.message.split("\n")
    assert first.startswith(f"{name.partition(':')[0]} cannot be imported: bad.py, line ")

    assert re.search(sentence, first)
    assert shown == ["Traceback (most recent call last):", *trace]
    assert "bad" not in sys.modules


def test_a_long_traceback_is_cut_in_the_middle(folder):
    """Neither deep recursion nor an endless text fills more than a screen."""
    code = "def f(n):\n    if not n:\n        raise ValueError('x' * 100000)\n    f(n - 1)\nf(500)\nNet = 1\n"
    (folder / "bad.py").write_text(code)
    with pytest.raises(UsageError) as caught:
        of_model("bad:Net")
    lines = caught.value.message.split("\n")
    assert len(lines) < 24
    assert "  … 494 more …" in lines
    assert max(map(len, lines)) < 1000
    assert "    raise ValueError('x' * 100000)" in lines


def test_a_part_that_is_imported_when_it_is_asked_for_fails_in_the_same_way(folder):
    """Lazy modules raise from __getattr__, and whatever comes is told as the user's own error."""
    (folder / "lazy.py").write_text("def __getattr__(name):\n    raise RuntimeError(f'no backend for {name}')\n")
    torch.save({"w": torch.ones(2)}, "m.pt")
    done = run("check", "m.pt", "--model", "lazy:Net", cwd=folder)
    assert done.returncode == 2
    assert (
        b"lazy cannot be imported: lazy.py, line 2: RuntimeError: no backend for Net. The error is in your own"
        in done.stderr
    )
    assert b"\n    raise RuntimeError(f'no backend for {name}')\n" in done.stderr
    assert b"itself failed" not in done.stderr


def test_a_script_that_changes_the_directory_leaves_ours_alone(folder):
    """Paths that were given before mean the same afterwards."""
    code = """
        import os
        from torch import nn

        os.chdir(os.path.dirname(os.path.abspath(__file__)))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 3)
    """
    os.mkdir("deep")
    (folder / "deep" / "nets.py").write_text(textwrap.dedent(code))
    torch.save(torch.nn.ModuleDict({"fc": torch.nn.Linear(2, 3)}).state_dict(), "m.pt")
    done = run("check", "m.pt", "--model", "deep/nets.py:Net", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert b"2 of 2 keys as it is" in done.stdout


def test_printed_commands_end_with_the_arguments_of_the_code(folder):
    """What a script reads from its command line stands behind --, also in the commands that are to be copied."""
    code = """
        import argparse
        from torch import nn

        parser = argparse.ArgumentParser()
        parser.add_argument("--width", type=int, required=True)
        args = parser.parse_args()

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(args.width, 2)
    """
    (folder / "script.py").write_text(textwrap.dedent(code))
    torch.save({"net.fc.weight": torch.ones(2, 5), "net.fc.bias": torch.ones(2)}, folder / "m.pt")
    said = run("check", "m.pt", "--model", "script.py:Net", "--", "--width", "5", cwd=folder).stdout.decode()
    commands = [line.partition(":   ")[2] for line in said.splitlines() if "--model" in line]
    assert commands and all(each.endswith(" -- --width 5") for each in commands), said
    for each in dict.fromkeys(commands):
        done = run(*shlex.split(each)[1:], cwd=folder)
        assert done.returncode == 0, (each, done)
        os.unlink("m.fixed.pt")


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_a_library_of_models_that_is_not_there_is_one_command_away(folder, monkeypatch, name):
    """Its name is no module of theirs that is misspelt."""
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, name)
    finds = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: finds(name) if name == "torch" else None)
    with pytest.raises(UsageError, match=f"^{name} is not installed in ckptdoctor's environment: pip install {name}$"):
        of_model(f"{name}:resnet50")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import torch\ntorch.cuda.set_device(0)\nNet = 1\n", "This machine has no GPU, and none is needed"),
        (
            "class Skipped(BaseException): pass\nraise Skipped('no')\nNet = 1\n",
            "Skipped: no. The error is in your own code: fix",
        ),
        ("if __name__ == '__main__':\n    class Net: pass\n", "It is defined only when the file is run, under if __na"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_whatever_a_file_does_is_told(folder, code, said):
    """GPUs, exceptions that are no Exception, and classes below a main guard."""
    (folder / "odd.py").write_text(code)
    torch.save({"w": torch.ones(2)}, "m.pt")
    done = run("check", "m.pt", "--model", "odd.py:Net", cwd=folder)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said.encode() in done.stderr
    assert b"ckptdoctor/" not in done.stderr
