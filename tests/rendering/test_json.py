"""The report as JSON."""

import json

import pytest
import torch

import ckptdoctor
from ckptdoctor.rules.examples import Obj, T
from tests import builders
from tests.cli.files import sick, training
from tests.commands import run_here


@pytest.fixture
def rendered(tmp_path):
    """The document that a command prints of files in the folder, as text."""

    def printed(*arguments, command="check"):
        return run_here(command, *arguments, "--format", "json", cwd=tmp_path).stdout.decode()

    return printed


def test_the_schema(tmp_path, rendered):
    """The document has every field that the schema promises."""
    path = sick(tmp_path)
    builders.save({"fc.weight": T((2, 3)), "fc.bias": T((2,))}, tmp_path / "like.pt")
    document = json.loads(rendered("sick.pt", "--like", "like.pt"))
    (file,) = document["files"]
    assert (document["schema"], document["version"]) == ("ckptdoctor/1", ckptdoctor.__version__)
    assert document["summary"] == {"error": 1, "warning": 0, "info": 0}
    assert (document["interrupted"], document["not_begun"], document["leftovers"]) == (False, [], [])
    assert (file["path"], file["format"], file["error"]) == ("sick.pt", "torch zip", None)
    assert file["summary"] == {
        "tensors": 2,
        "parameters": 8,
        "bytes": path.stat().st_size,
        "dtypes": {"float32": 2},
        "devices": {"cpu": 2},
        "globals": ["torch._utils._rebuild_tensor_v2", "torch.FloatStorage", "collections.OrderedDict"],
    }
    (first,) = file["findings"]
    assert {"code", "name", "severity", "message", "keys", "location", "fix"} <= set(first)
    assert first["keys"] == ["module.fc.weight", "module.fc.bias"]
    assert first["fix"]["safety"] == "safe"
    assert first["fix"]["command"] == "ckptdoctor fix sick.pt --strip-module"
    assert file["skipped"][0] == {"what": "checksums and values", "why": "--deep"}
    assert (file["coverage"]["keys"], file["coverage"]["total_keys"]) == (0, 2)
    assert [(step["code"], step["keys"]) for step in file["coverage"]["steps"]] == [("N401", 2)]


def test_a_file_that_could_not_be_examined(rendered):
    """An unreadable file is in the document, with its error and without a summary."""
    (file,) = json.loads(rendered("missing.pt"))["files"]
    assert (file["summary"], file["format"], file["findings"]) == (None, None, [])
    assert file["error"] == "missing.pt cannot be opened: No such file or directory."


def test_true_text_in_ascii(tmp_path, rendered):
    """Keys are the true text after parsing; the document itself is printable ASCII, whatever the keys hold."""
    key = "a\x1b[31m\u202e\n\x00\udc80ß"
    contents = {"w": torch.ones(2), key: {3: {(1, 2): Obj("argparse.Namespace", {"lr": 0.1})}}}
    builders.save(contents, tmp_path / "odd.pt")
    text = rendered("odd.pt", "--select", "P201")
    assert all(line.isascii() and line.isprintable() for line in text.split("\n"))
    (finding,) = json.loads(text)["files"][0]["findings"]
    assert finding["keys"] == [f"{key}/3/(1, 2)"]


def test_integers_too_long_to_print_are_text(tmp_path, rendered):
    """An integer that no reader could hold is given by its order of magnitude."""
    torch.save({"w": torch.ones(2), "long": 1 << 300_000, "shorter": 1 << 1000}, tmp_path / "m.pt")
    contents = json.loads(rendered("m.pt", command="show"))["contents"]
    assert (contents["long"], contents["shorter"]) == ("2^300000", 1 << 1000)


def test_statistics_count_codes(tmp_path, rendered):
    """With statistics the document counts the findings of each rule over all files."""
    sick(tmp_path)
    training(tmp_path)
    document = json.loads(rendered("sick.pt", "training.pt", "--select", "D602,N401", "--statistics"))
    assert document["statistics"] == {"D602": 1, "N401": 2}
