from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests import commands
from tests.cli import files
from tests.commands import run_here


def run(*arguments: object, cwd: Path):
    done = commands.run(*arguments, cwd=cwd)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_conversion_says_what_was_written_proven_and_is_next(tmp_path: Path):
    """And what was left out of it."""
    model = torch.nn.Linear(2, 3)
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "model.pt")
    status, out, _ = run("convert", "model.pt", "model.safetensors", cwd=tmp_path)
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "model.pt · PyTorch .pt (zip) → safetensors · 2 tensors, 36 bytes"
    assert lines[1].split() == ["took", "state_dict"]
    assert lines[2].split() == ["kept", "epoch", "in", "model.extra.json"]
    assert lines[3].split() == ["left", "out", "_metadata", "(the", "versions", "of", "modules)"]
    assert lines[4].startswith("wrote model.safetensors in ")
    assert lines[5:] == [
        "verified · 2 of 2 tensors byte-identical",
        'next · safetensors.torch.load_file("model.safetensors")',
    ]


def test_a_refusal_is_a_list_and_status_one(tmp_path: Path):
    """As text and as JSON."""
    torch.save({"a": {"w": torch.ones(2)}, "b": {"v": torch.ones(2)}}, tmp_path / "model.pt")
    status, out, _ = run("convert", "model.pt", "model.safetensors", cwd=tmp_path)
    assert status == 1
    assert out.startswith("refused · safetensors files hold one flat set of tensors")
    assert "choose: --root a, or --root b, or --flatten" in out
    status, out, err = run("convert", "model.pt", "model.safetensors", "--format", "json", cwd=tmp_path)
    assert status == 1
    assert json.loads(out)["status"] == "refused"
    assert err.startswith("error: ")


def test_what_makes_no_sense_is_status_two(tmp_path: Path):
    """A missing file, an unknown suffix, a root that is not there."""
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    for arguments in (("gone.pt", "a.pt"), ("model.pt", "a.xyz"), ("model.pt", "a.pt", "--root", "x")):
        status, out, err = run("convert", *arguments, cwd=tmp_path)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")


def test_shards_merge_by_folder_and_by_pattern(tmp_path: Path):
    """And JSON says the same as the text."""
    wanted = {f"w.{at}": torch.randn(100) for at in range(4)}
    torch.save(wanted, tmp_path / "model.pt")
    assert run("convert", "model.pt", "out", "--shard-size", "1KB", cwd=tmp_path)[0] == 0
    status, out, _ = run("merge", "out/*.safetensors", "-o", "one.pt", "--format", "json", cwd=tmp_path)
    assert status == 0
    told = json.loads(out)
    assert (told["status"], told["tensors"], told["proof"]) == ("converted", 4, {"identical": 4, "remade": 0})
    assert run("merge", "out", "-o", "two.pt", cwd=tmp_path)[0] == 0
    for name in ("one.pt", "two.pt"):
        loaded = torch.load(tmp_path / name)
        assert all(torch.equal(loaded[key], value) for key, value in wanted.items())
    assert run("merge", "nothing*", "-o", "x.pt", cwd=tmp_path)[0] == 2


def test_hostile_names_stay_text(tmp_path: Path):
    """Nothing from the file reaches the terminal as it is."""
    contents = {"sd": {files.HOSTILE: torch.ones(2)}, files.HOSTILE: files.HOSTILE, "l" * 500: torch.ones(1)}
    torch.save(contents, tmp_path / "model.pt")
    for arguments in (("--flatten",), ("--root", "sd"), ()):
        done = commands.run("convert", "model.pt", "got.safetensors", "--force", *arguments, cwd=tmp_path)
        assert done.returncode in (0, 1)
        assert files.printable(done.stdout)
        assert files.printable(done.stderr)


def test_a_folder_for_many_processes(tmp_path: Path):
    """--to says what the name of a folder does not; other kinds may be asked for too, whatever the suffix."""
    torch.save({"a": torch.ones(2), "step": 3}, tmp_path / "model.pt")
    status, out, _ = run("convert", "model.pt", "out", "--to", "dcp", cwd=tmp_path)
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "model.pt · PyTorch .pt (zip) → torch distributed checkpoint · 1 tensor, 8 bytes"
    assert lines[-1] == 'next · torch.distributed.checkpoint.load(state_dict, checkpoint_id="out")'
    assert run("convert", "out", "weights.model", "--to", "safetensors", cwd=tmp_path)[0] == 0
    assert run("convert", "out", "weights.old", "--to", "torch", cwd=tmp_path)[0] == 0
    assert torch.load(tmp_path / "weights.old")["step"] == 3
    status, _, error = run("convert", "model.pt", "out.pt", "--to", "dcp", cwd=tmp_path)
    assert (status, "--to dcp" in error) == (2, True)
    status, _, error = run("convert", "model.pt", "out", "--to", "torch", cwd=tmp_path)
    assert (status, "--to torch" in error) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["m.gguf"],
            "ckptdoctor cannot write GGUF. It writes .pt .pth .ckpt .bin .safetensors or a folder. "
            "For GGUF use llama.cpp's convert_hf_to_gguf.py.",
        ),
        (
            ["m.safetensor"],
            "m.safetensor: ckptdoctor cannot write .safetensor files. It writes .pt .pth .ckpt .bin .safetensors or a "
            'folder. Did you mean ".safetensors"?',
        ),
        (
            ["m"],
            "m: an output without a suffix. ckptdoctor writes .pt .pth .ckpt .bin .safetensors or a folder: "
            "m.safetensors, or m/",
        ),
        (["m/", "--shard-size", "5XB"], '--shard-size: "5XB" is not a size. Use 5GB or 500MB.'),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_is_not_written(tmp_path, options, said):
    """An output of another kind is refused with what is written, and who writes the other."""
    torch.save({"weight": torch.ones(2)}, tmp_path / "base.pt")
    done = run_here("convert", "base.pt", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (2, f"error: {said}\n")
    if options == ["m.gguf"]:
        done = run_here("fix", "base.pt", "--add-prefix", "net.", "-o", "m.gguf", cwd=tmp_path)
        assert (done.returncode, done.stderr.decode()) == (2, f"error: {said}\n")
    assert [each.name for each in tmp_path.iterdir()] == ["base.pt"]
