"""Findings of damage name the command that rebuilds the file from its parity, where that works, or verifies it."""

from __future__ import annotations

import json
import shlex

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from tests.commands import run_here

WEIGHTS = {f"layer{number}": torch.arange(40_000.0) + number for number in range(6)}


@pytest.fixture
def path(tmp_path):
    """A torch zip of 960 kB."""
    torch.save(WEIGHTS, tmp_path / "m.pt")
    return tmp_path / "m.pt"


def sealed(path, parity="2%"):
    """The bytes of a file that was sealed with parity."""
    pytest.importorskip("zfec")
    ckptdoctor.seal(path, parity=parity)
    return path.read_bytes()


def damage(path, kind):
    """Two flipped bits in a tensor, or a cut end."""
    raw = bytearray(path.read_bytes())
    if kind == "flipped":
        at = raw.index(WEIGHTS["layer2"].numpy().tobytes())
        raw[at + 500] ^= 3
    elif kind == "zeros":
        at = (raw.index(WEIGHTS["layer2"].numpy().tobytes()) + 4095) // 4096 * 4096
        raw[at : at + 81920] = bytes(81920)
    elif kind == "cut":
        del raw[-5000:]
    else:
        raw += b"more"
    path.write_bytes(raw)


def findings(path, *options, cwd=None):
    """The errors of ``check``, by their codes."""
    done = run_here("check", path.name, "--format", "json", *options, cwd=cwd or path.parent)
    found = json.loads(done.stdout)["files"][0]["findings"]
    return {each["code"]: each for each in found if each["severity"] == "error"}


@pytest.mark.parametrize(
    ("kind", "code", "options"),
    [
        ("flipped", "F009", ["--deep"]),
        ("flipped", "F012", ["--deep"]),
        ("zeros", "F010", ["--deep"]),
        ("cut", "F005", []),
    ],
)
def test_the_command_that_is_printed_rebuilds_the_file(path, kind, code, options):
    """To the last bit, and it is the only one that is printed."""
    before = sealed(path, "20%")
    damage(path, kind)
    found = findings(path, *options)[code]
    assert "what is lost from its parity." in found["advice"]
    assert found["commands"] == ["ckptdoctor rebuild m.pt"]
    done = run_here(*shlex.split(found["commands"][0])[1:], cwd=path.parent)
    assert done.returncode == 0
    assert path.with_name("m.rebuilt.pt").read_bytes() == before


def test_where_too_much_is_lost_everything_is_said_as_without_parity(path):
    """And verify says what changed."""
    sealed(path)
    path.write_bytes(path.read_bytes()[:500_000])
    found = findings(path)["F005"]
    assert "ckptdoctor verify m.pt shows what changed since it was sealed." in found["advice"]
    assert not any("rebuild" in each for each in found["commands"])
    assert any("salvage" in each for each in found["commands"]) or "salvage" in found["advice"]


def test_what_was_damaged_when_it_was_sealed_is_not_rebuilt(path):
    """Its parity would give the same file."""
    damage(path, "flipped")
    sealed(path)
    found = findings(path, "--deep")["F009"]
    assert "rebuild" not in found["advice"]
    assert "verify" not in found["advice"]
    assert "graft" in found["advice"]


def test_of_a_large_file_nothing_is_read_that_nobody_asked_for(path, monkeypatch):
    """Its parity is named next to all else; with --deep it is known whether there is enough."""
    sealed(path)
    damage(path, "cut")
    without = findings(path)["F005"]
    assert without["commands"] == ["ckptdoctor rebuild m.pt"]
    monkeypatch.setattr("ckptdoctor.examine.printable._READ", 1)
    found = findings(path)["F005"]
    assert "Its parity may rebuild what is lost. Otherwise: " in found["advice"]
    assert found["commands"][0] == "ckptdoctor rebuild m.pt"
    assert findings(path, "--deep")["F005"]["advice"] == without["advice"]


def test_with_a_seal_alone_the_command_that_names_what_changed_is_printed(path, tmp_path):
    """Of the file, or of the folder that was sealed; it works as it is printed."""
    folder = tmp_path / "sealed folder"
    folder.mkdir()
    intact, path = path.read_bytes(), path.rename(folder / "m.pt")
    for named, place in ((path, "m.pt"), (folder, "'sealed folder'")):
        ckptdoctor.seal(named)
        damage(path, "flipped")
        cwd = tmp_path if named is folder else folder
        done = run_here("check", str(path.relative_to(cwd)), "--deep", "--format", "json", cwd=cwd)
        found = {each["code"]: each for each in json.loads(done.stdout)["files"][0]["findings"]}["F009"]
        command = f"ckptdoctor verify {place}"
        assert f"{command} shows what changed since it was sealed." in found["advice"]
        printed = run_here(*shlex.split(command)[1:], cwd=cwd)
        assert printed.returncode == 1
        assert b"changed   layer2" in printed.stdout
        path.write_bytes(intact)
        (folder / "m.pt.seal.json").unlink(missing_ok=True)


def test_a_folder_of_shards_is_rebuilt_as_one(tmp_path):
    """A shard that is cut off, and an index that names it."""
    pytest.importorskip("zfec")
    folder = tmp_path / "m"
    folder.mkdir()
    table = {}
    for number, (key, tensor) in enumerate(WEIGHTS.items(), 1):
        name = f"model-{number:05}-of-00006.safetensors"
        save_file({key: tensor}, folder / name)
        table[key] = name
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    ckptdoctor.seal(folder, parity="5%")
    shard = folder / "model-00003-of-00006.safetensors"
    before = shard.read_bytes()
    shard.write_bytes(before[:-4000])
    (found,) = findings(folder).values()
    assert found["commands"] == ["ckptdoctor rebuild m"]
    assert run_here("rebuild", "m", cwd=tmp_path).returncode == 0
    assert (tmp_path / "m.rebuilt" / shard.name).read_bytes() == before


def test_what_is_not_installed_is_named_with_the_command_that_installs_it(path, monkeypatch):
    """Parity needs zfec."""
    sealed(path)
    damage(path, "cut")
    monkeypatch.setattr("ckptdoctor.sealing.parity.code.find_spec", lambda name: None)
    assert "pip install 'ckptdoctor[parity]'" in findings(path)["F005"]["advice"].replace("uv pip", "pip")
