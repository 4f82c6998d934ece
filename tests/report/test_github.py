"""Findings as workflow commands of GitHub."""

from dataclasses import replace
from urllib.parse import unquote

import pytest

from ckptdoctor.findings import Report, Severity
from ckptdoctor.report import github
from tests.cli.files import HOSTILE, printable
from tests.report import samples


def read(line):
    """What GitHub's runner makes of a command: its name, properties and message."""
    head, _, message = line.removeprefix("::").partition("::")
    name, _, rest = head.partition(" ")
    properties = dict(each.split("=", 1) for each in rest.split(","))
    assert set(properties) == {"file", "title"}
    return name, {key: unquote(value) for key, value in properties.items()}, unquote(message)


def test_each_finding_is_a_command():
    """Errors, warnings and remarks at their file, under code and name, with cause and repair on lines of their own."""
    lines = github.file_report(samples.report(samples.MODULE_PREFIX, samples.CUDA_TAG, samples.SHARED)).split("\n")
    names, properties, messages = zip(*map(read, lines), strict=True)
    assert names == ("error", "warning", "notice")
    assert properties[0] == {"file": "runs/resnet50.pt", "title": "N401 module-prefix"}
    assert messages[0].split("\n")[0] == 'all 3 keys of state_dict begin with "module."'
    assert messages[0].endswith("Repair, safe: ckptdoctor fix runs/resnet50.pt --strip-module")
    assert messages[2].endswith("ckptdoctor fix runs/resnet50.pt --select A701 gives each its own.")


@pytest.mark.parametrize("path", ["a,b:c=d%.pt", "./a\nb.pt", "::error::x.pt", HOSTILE])
def test_nothing_leaves_its_place(path):
    """Neither paths nor messages end a property, a command or a line."""
    finding = replace(samples.MODULE_PREFIX, message=f"100 % :: {path}\r\n::error::gotcha", advice=path, fix=None)
    text = github.file_report(samples.report(finding, path=path))
    assert "\n" not in text and "\r" not in text and printable(text.encode())
    name, properties, message = read(text)
    assert name == "error" and "100 % :: " in message
    if path.startswith("a,"):
        assert properties["file"] == path


def test_files_that_cannot_be_read():
    """They are errors too."""
    name, properties, message = read(github.file_report(samples.damaged("it is a web page")))
    assert (name, properties["file"], message) == ("error", "web.pt", "it is a web page")
    assert github.file_report(samples.report()) == ""


def test_the_end():
    """The log says how many there were, and what was not examined."""
    text = github.total(Report((samples.report(samples.CUDA_TAG), samples.report())))
    assert text.split("\n") == [
        "2 files: 0 error, 1 warning, 0 notice",
        "Not examined: checksums and values (--deep) of 2 files; fit to a model (--like) of 2 files",
    ]
    assert set(github._COMMANDS) == set(Severity)
