"""The command line takes addresses."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.cli.main import cli
from ckptdoctor.cli.main import run as command_line
from ckptdoctor.errors import UsageError
from ckptdoctor.remote.addresses import is_address, shown
from ckptdoctor.remote.downloading import path_of
from tests.remote.server import serving


@pytest.fixture
def server(tmp_path):
    torch.save({"module.fc.weight": torch.ones(2, 3)}, tmp_path / "m.pt")
    torch.save({"fc.weight": torch.ones(2, 3)}, tmp_path / "want.pt")
    with serving(files={path.name: path.read_bytes() for path in tmp_path.iterdir()}) as server:
        yield server


def run(*arguments):
    return CliRunner().invoke(cli, arguments)


def test_check_and_show(server):
    """They take an address where a path can stand."""
    checked = run("check", server.url("m.pt"), "--format", "json")
    (file,) = json.loads(checked.stdout)["files"]
    assert file["path"] == server.url("m.pt") and [each["code"] for each in file["findings"]] == ["N401"]
    assert "module.fc.weight" in run("show", server.url("m.pt"), "--keys").stdout


@pytest.mark.parametrize("command", [["check"], ["check", "--format", "json"], ["show"], ["fix"], ["check", "--like"]])
@pytest.mark.parametrize("name", ["m.pt", "none.pt"])
def test_nothing_secret_reaches_the_screen(command, name, server, tmp_path, capfd):
    """Neither of what is read nor of what cannot be read."""
    address = f"{server.url(name)}?X-Signature=hunter2".replace("//", "//user:hunter2@")
    paths = [str(tmp_path / "want.pt")] if "--like" in command else []
    code = command_line([command[0], *paths, *command[1:], address])
    told = "".join(capfd.readouterr())
    assert code in (0, 1, 2) and told and "hunter2" not in told and (name in told or paths)


def test_a_target_may_be_far_away(server, tmp_path):
    """``--like URL`` reads its headers."""
    result = run("check", str(tmp_path / "m.pt"), "--like", server.url("want.pt"), "--format", "concise")
    assert "N401" in result.stdout
    fixed = run("fix", str(tmp_path / "m.pt"), "--auto", "--like", server.url("want.pt"))
    assert fixed.exit_code == 0 and list(torch.load(tmp_path / "m.fixed.pt")) == ["fc.weight"]


@pytest.fixture
def pair(tmp_path):
    """A server with two checkpoints of four megabytes whose last tensors differ, and the second one here as well."""
    torch.manual_seed(0)
    state = {f"layer{i}.weight": torch.randn(512, 512) for i in range(4)}
    torch.save(state, tmp_path / "a.pt")
    save_file({**state, "layer3.weight": state["layer3.weight"] + torch.rand(512, 512)}, tmp_path / "b.safetensors")
    with serving(files={path.name: path.read_bytes() for path in tmp_path.iterdir()}) as server:
        server.here = str(tmp_path / "b.safetensors")
        yield server


@pytest.mark.parametrize("both", [True, False], ids=["both far away", "one far away"])
def test_diff_of_addresses(pair, both):
    """Headers are compared by few requests, values are read once, and the figures are those of files that are here."""
    other = pair.url("b.safetensors") if both else pair.here
    headers = run("diff", pair.url("a.pt"), other)
    assert headers.exit_code == 0 and len(pair.requests) <= 12 and pair.sent < 400_000
    before = pair.sent
    values = run("diff", pair.url("a.pt"), other, "--values", "--format", "json")
    document = json.loads(values.stdout)
    assert not document["same"] and document["summary"] == "all of layer3 changed; the rest is bit-identical"
    (changed,) = document["tensors"]
    assert changed["values"]["numbers"]["max_abs"] == pytest.approx(1, rel=1e-3)
    assert document["a"]["path"] == pair.url("a.pt")
    assert pair.sent - before < (2 if both else 1) * 8_000_000


def test_diff_with_a_server_that_gives_up(pair):
    """An address that cannot be read is trouble in one sentence."""
    result = run("diff", pair.url("none.pt"), pair.here, "--values")
    assert "none.pt" in str(result.exception) and not result.stdout


def test_fix_wants_the_file_here(server):
    """The refusal names the command that downloads it, and nothing is asked for."""
    with pytest.raises(UsageError, match=r"download it first \(curl -fLO http"):
        ckptdoctor.fix(server.url("m.pt"))
    assert not server.requests


def test_a_file_address_is_a_path(tmp_path):
    """file:// is this machine; fix wants the path itself."""
    path = tmp_path / "a b.pt"
    torch.save({"w": torch.ones(2)}, path)
    assert ckptdoctor.check(path.as_uri()).error is None
    assert torch.equal(ckptdoctor.load(path.as_uri())["w"], torch.ones(2))
    with pytest.raises(UsageError, match="give its path"):
        ckptdoctor.fix(path.as_uri())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://h/a.pt", "https://h/a.pt"),
        ("https://me:pass@h/a.pt?sig=1#x", "https://h/a.pt"),
        ("https://token@h:80/p@th/a.pt", "https://h:80/p@th/a.pt"),
        ("https://h/a.pt?download=true", "https://h/a.pt?download=true"),
        ("https://h/a.pt?download=true&sig=1", "https://h/a.pt"),
        ("s3://key:secret@bucket/a.pt", "s3://bucket/a.pt"),
        ("hf://org/net@v1/a.pt", "hf://org/net@v1/a.pt"),
        ("models/a.pt", "models/a.pt"),
    ],
)
def test_addresses_are_shown_without_secrets(text, said):
    """Users, passwords, queries and fragments go; what only chooses a file stays."""
    assert shown(text) == said


def test_what_is_an_address():
    """A scheme of more than one letter, and two slashes."""
    assert all(map(is_address, ["https://h/a", "s3://b/k", "hf://o/n/f", "abfs+x://c"]))
    assert not any(map(is_address, ["a.pt", "/a/b.pt", "C://a.pt", "C:\\a.pt", "://a", "dir/https://x", "a:b"]))
    assert path_of("file:///a/b%20c.pt") == "/a/b c.pt" and path_of("https://h/a") is None
