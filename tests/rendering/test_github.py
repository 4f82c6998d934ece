"""Findings as workflow commands of GitHub."""

from urllib.parse import unquote

import pytest

from ckptdoctor.rules.examples import Obj, T
from tests import builders
from tests.cli.files import HOSTILE, healthy, printable
from tests.commands import run_here

WEIGHTS = {"module.fc.weight": T((2, 3), device="cuda:0"), "module.fc.bias": T((2,), device="cuda:0")}


@pytest.fixture
def log(tmp_path):
    """What a job logs of files in the folder: the lines of the findings, and those that end the log."""

    def logged(*names):
        output = run_here("check", "--format", "github", "--", *names, cwd=tmp_path).stdout
        assert printable(output)
        lines = output.decode().removesuffix("\n").split("\n")
        end = next(number for number, line in enumerate(lines) if not line.startswith("::"))
        return lines[:end], lines[end:]

    return logged


def read(line):
    """What GitHub's runner makes of a command: its name, properties and message."""
    head, _, message = line.removeprefix("::").partition("::")
    name, _, rest = head.partition(" ")
    properties = dict(each.split("=", 1) for each in rest.split(","))
    assert set(properties) == {"file", "title"}
    return name, {key: unquote(value) for key, value in properties.items()}, unquote(message)


def test_each_finding_is_a_command(tmp_path, log):
    """Errors, warnings and remarks at their file, under code and name, with cause and repair on lines of their own."""
    builders.save({"state_dict": WEIGHTS}, tmp_path / "model.pt")
    names, properties, messages = zip(*map(read, log("./model.pt")[0]), strict=True)
    assert names == ("error", "warning", "notice")
    assert properties[0] == {"file": "model.pt", "title": "N401 module-prefix"}
    assert [each["title"][:4] for each in properties[1:]] == ["D601", "W301"]
    first = messages[0].split("\n")
    assert (first[0], len(first)) == ('both keys of state_dict begin with "module."', 3)
    assert first[2] == "Repair, safe: ckptdoctor fix ./model.pt --strip-module"
    assert messages[2].endswith('Load them with torch.load(path)["state_dict"].')


@pytest.mark.parametrize("path", ["a,b:c=d%.pt", "./a\nb.pt", "::error::x.pt", HOSTILE.replace("\0", "")])
def test_nothing_leaves_its_place(tmp_path, log, path):
    """Neither paths nor messages end a property, a command or a line."""
    key = f"100 % :: {path}\r\n::error::gotcha"
    builders.save({"w": T((2,)), key: Obj("argparse.Namespace", {"lr": 0.1})}, tmp_path / "m.pt")
    (tmp_path / "m.pt").rename(tmp_path / path)
    ((name, properties, message),) = map(read, log(path)[0])
    assert (name, properties["title"]) == ("error", "P201 weights-only-blocked-global")
    assert message.startswith("100 % :: ") and "gotcha is an argparse.Namespace\n" in message
    if path.startswith("a,"):
        assert properties["file"] == path


def test_files_that_cannot_be_read(tmp_path, log):
    """They are errors too."""
    healthy(tmp_path)
    ((name, properties, message),) = map(read, log("missing.pt", "healthy.pt")[0])
    assert (name, properties["file"], properties["title"]) == ("error", "missing.pt", "cannot be examined")
    assert "missing.pt" in message
    assert log("healthy.pt")[0] == []


def test_the_end(tmp_path, log):
    """The log says how many there were, and what was not examined."""
    healthy(tmp_path)
    builders.save(WEIGHTS, tmp_path / "model.pt")
    assert log("model.pt", "healthy.pt")[1] == [
        "2 files: 1 error, 1 warning, 0 notice",
        "Not examined: checksums and values (--deep) of 2 files; fit to a model (--model, --like) of 2 files",
    ]
