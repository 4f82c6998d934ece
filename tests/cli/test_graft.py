"""``ckptdoctor graft`` as people meet it."""

import json
import subprocess

import pytest
import torch

from ckptdoctor.cli import main
from tests import commands
from tests.cli.files import printable

LONG = torch.linspace(0, 1, 1000)


@pytest.fixture
def copies(tmp_path):
    """A file with one flipped bit, a copy of it that is whole, and one of a later step; one key clears a terminal."""
    weights = {f"w{i}" + ("\x1b[2J" if i == 2 else ""): LONG + i for i in range(4)}
    torch.save(weights, tmp_path / "whole.pt")
    torch.save({key: tensor + 0.5 for key, tensor in weights.items()}, tmp_path / "later.pt")
    data = bytearray((tmp_path / "whole.pt").read_bytes())
    data[data.index((LONG + 2).numpy().tobytes()) + 1000] ^= 16
    (tmp_path / "bad.pt").write_bytes(data)
    torch.save({**weights, "w1": LONG / 0}, tmp_path / "nan.pt")
    return tmp_path


@pytest.fixture
def run(copies, monkeypatch, capsysbinary):
    """Runs a command line in the directory of the copies, within this process."""
    monkeypatch.chdir(copies)

    def ask(*arguments):
        status = main.run(list(arguments))
        return subprocess.CompletedProcess(arguments, status, *capsysbinary.readouterr())

    return ask


def test_what_is_taken_and_why_is_said(copies):
    """The likeness comes before what was written, the key is escaped, and the file is the one that was saved."""
    done = commands.run("graft", "bad.pt", "--from", "whole.pt", cwd=copies)
    text = done.stdout.decode()
    assert done.returncode == 0 and not done.stderr
    assert text.startswith("bad.pt · PyTorch .pt (zip) · 1 of 4 tensors is damaged\n")
    assert text.index("the copies agree in all 3 other tensors that both have") < text.index("wrote bad.grafted.pt")
    assert "does not match its checksum" in text and "match the checksum of the original save" in text
    assert "every other byte as it was\n" in text
    assert printable(done.stdout)
    assert (copies / "bad.grafted.pt").read_bytes() == (copies / "whole.pt").read_bytes()


def test_the_finding_names_the_command(run):
    """Both rules that graft fixes say how, with the real path."""
    for path in ("bad.pt", "nan.pt"):
        text = run("check", "--deep", path).stdout.decode()
        assert f"ckptdoctor graft {path} --from OTHER" in text


def test_the_command_for_the_average_beside_the_weights_works(copies, run):
    """What the finding prints can be copied into a shell as it stands."""
    weights = {"a.weight": torch.rand(4, 4), "b.weight": torch.rand(4, 4)}
    torch.save(
        {"model": {**weights, "a.weight": torch.full((4, 4), torch.nan)}, "model_ema": weights}, copies / "two.pt"
    )
    text = run("check", "--deep", "two.pt").stdout.decode()
    command = text[text.index("ckptdoctor graft two.pt") :].split(",")[0].split()[1:]
    assert run(*command).returncode == 0
    assert torch.equal(torch.load(copies / "two.grafted.pt")["model"]["a.weight"], weights["a.weight"])


def test_another_step_is_refused(copies, run):
    """Status 1, what differs, and what can be done; nothing is written."""
    done = run("graft", "nan.pt", "--from", "later.pt")
    text = done.stdout.decode()
    assert done.returncode == 1 and printable(done.stdout)
    assert text.startswith(
        "refused · later.pt is not a copy of that save: of the 3 other tensors that both have, 3 differ"
    )
    assert "--unsafe-fixes" in text
    assert not (copies / "nan.grafted.pt").exists()
    consented = run("graft", "nan.pt", "--from", "later.pt", "--unsafe-fixes")
    assert consented.returncode == 0 and "a mixture" in consented.stdout.decode()


def test_json_says_it_all(run):
    """Programs get every tensor with its reason, and refusals as well."""
    document = json.loads(run("graft", "bad.pt", "--from", "whole.pt", "--format", "json").stdout)
    assert document["status"] == "grafted" and document["new_bytes"] == 4000
    assert [(each["key"], each["because"]) for each in document["grafted"]] == [("w2\x1b[2J", "checksum")]
    assert document["alike"]["compared"] == document["alike"]["equal"] == 3
    refused = run("graft", "nan.pt", "--from", "later.pt", "--format", "json")
    assert json.loads(refused.stdout)["status"] == "refused" and refused.stderr


def test_a_look_before_writing(copies, run):
    """--diff says what would be taken; a whole file has nothing to heal, but says what differs."""
    look = run("graft", "bad.pt", "--from", "whole.pt", "--diff")
    assert look.returncode == 0 and b"nothing was written" in look.stdout
    healthy = run("graft", "whole.pt", "--from", "later.pt")
    assert healthy.returncode == 0 and b"nothing to do" in healthy.stdout and b"--key" in healthy.stdout
    assert not list(copies.glob("*.grafted.pt"))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nothing.pt", "--from", "whole.pt"], "nothing.pt cannot be opened"),
        (["bad.pt", "--from", "nothing.pt"], "nothing.pt cannot be opened"),
        (["bad.pt", "--from", "./bad.pt"], "Both are the same file"),
        (["bad.pt", "--from", "whole.pt", "--root", "nowhere"], "The checkpoint has no"),
        (["https://example.com/bad.pt", "--from", "whole.pt"], "not on this machine"),
        ([".", "--from", "whole.pt"], "is a folder"),
    ],
)
def test_requests_that_make_no_sense(run, arguments, why):
    """Status 2, and one sentence."""
    done = run("graft", *arguments)
    assert done.returncode == 2 and why in done.stderr.decode()


def test_without_damage_there_is_nothing_to_do(copies, run):
    """Two equal files."""
    (copies / "same.pt").write_bytes((copies / "whole.pt").read_bytes())
    done = run("graft", "whole.pt", "--from", "same.pt")
    assert done.returncode == 0 and b"no tensor is damaged, and nothing was named" in done.stdout


def test_damage_that_was_not_named_is_not_forgotten(copies, run):
    """The status says that the output is not whole yet."""
    done = run("graft", "bad.pt", "--from", "whole.pt", "--key", "w0")
    assert done.returncode == 1 and b"1 other tensor is damaged and stays damaged" in done.stdout
    done = run("graft", "bad.grafted.pt", "--from", "whole.pt", "-o", "healed.pt")
    assert done.returncode == 0 and (copies / "healed.pt").read_bytes() == (copies / "whole.pt").read_bytes()
