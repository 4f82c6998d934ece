"""X801: shards that are not there, or cannot be read: which, why, what they held, and a command that works."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import torch

import ckptdoctor
from ckptdoctor.cli.main import run
from ckptdoctor.examine.file import check
from tests.broken_shards import DAMAGE, SECOND, folder, hurt, name, tensors
from tests.planted import PLACES, broken, cut, whole

SAID = {
    "beheaded": {"safetensors": "the file ends within its header", "bin": "the file ends after 200 bytes"},
    "cut": {"bin": "the file ends after"},
    "zeroed": "bytes are zero",
    "page": 'a web page called "404 Not Found" is here instead of the file',
    "pointer": f"a Git LFS pointer is here instead of the file of 4,976,698,672 bytes (sha256 {'ab' * 32})",
    "empty": "the file is empty",
}
EVERY = [(suffix, damage) for suffix in ("safetensors", "bin") for damage in DAMAGE]


@pytest.mark.parametrize(("suffix", "damage"), EVERY, ids="-".join)
def test_one_finding_says_all(suffix, damage, tmp_path):
    """The file, how many tensors the index puts there, why they are lost, and their keys: nothing else is reported."""
    folder(tmp_path / "m", suffix, damage)
    (finding,) = check(str(tmp_path / "m")).findings
    shard = name(2, suffix)
    assert (finding.severity.value, finding.location.member) == ("error", shard)
    if (suffix, damage) == ("safetensors", "cut"):  # its header is whole, so that its tensors are known
        assert (finding.code, finding.message.partition(":")[0]) == ("F014", shard)
        # those from the cut on, the one that lies across it among them
        assert [path[-1] for path in finding.keys] == sorted(SECOND)[3:]
        return
    assert (finding.code, [path[-1] for path in finding.keys]) == ("X801", SECOND)
    if damage == "missing":
        assert finding.message == f"{shard} is missing, with 8 tensors of the index"
        assert finding.torch_says == (f"does not appear to have files named ('{shard}',)",)
    else:
        said = SAID[damage]
        assert finding.message.startswith(f"{shard}, with 8 tensors of the index, cannot be read: ")
        assert (said if isinstance(said, str) else said[suffix]) in finding.message
        assert str(tmp_path) not in finding.message
        assert not finding.message.endswith(".")


@pytest.mark.parametrize(("suffix", "damage"), EVERY, ids="-".join)
def test_the_command_of_the_advice_works(suffix, damage, tmp_path, capsys):
    """What ``check`` prints can be copied: it saves every whole tensor of all shards, those in front of a cut too."""
    folder(tmp_path / "a model", suffix, damage)
    assert run(["check", str(tmp_path / "a model")]) == 1
    line = re.search(r"ckptdoctor (salvage .*)", capsys.readouterr().out)
    assert run([*shlex.split(line[1]), "-o", str(tmp_path / "out")]) == 1
    loaded, every = ckptdoctor.load(tmp_path / "out"), tensors()
    assert all(torch.equal(value, every[key]) for key, value in loaded.items())
    assert len(loaded) == 16 if damage != "cut" else 16 < len(loaded) < 24


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_nothing_is_said_of_a_whole_folder(suffix, tmp_path):
    """Every byte is there."""
    folder(tmp_path / "m", suffix)
    assert {"X801", "F014"}.isdisjoint([each.code for each in check(str(tmp_path / "m")).findings])


def test_keys_that_lie_elsewhere_are_not_lost(tmp_path):
    """A tensor that the index looks for in the missing shard, and that another shard has, is not named."""
    folder(tmp_path / "m", damage="missing")
    index = tmp_path / "m" / "model.safetensors.index.json"
    said = json.loads(index.read_text())
    said["weight_map"]["model.layers.0.a.weight"] = name(2)
    index.write_text(json.dumps(said))
    finding = next(each for each in check(str(tmp_path / "m")).findings if each.code == "X801")
    assert [path[-1] for path in finding.keys] == SECOND


def test_a_repository_without_its_large_files(tmp_path):
    """Where each shard is a pointer of Git LFS, each is fetched by its command; the weights were never empty."""
    folder(tmp_path / "m")
    for number in (1, 2, 3):
        hurt(str(tmp_path / "m" / name(number)), "pointer")
    findings = check(str(tmp_path / "m")).findings
    assert [each.code for each in findings] == ["X801"] * 3
    for number, finding in enumerate(findings, 1):
        assert finding.advice.endswith(f"git lfs pull -I {tmp_path / 'm' / name(number)}.")


def test_without_an_index_nobody_knows_the_keys(tmp_path):
    """The numbers in the names say that a shard is missing; what it held, nothing says."""
    folder(tmp_path / "m", damage="missing", index=False)
    (finding,) = check(str(tmp_path / "m")).findings
    assert (finding.message, finding.keys) == (f"{name(2)} is missing", ())


def test_of_many_missing_shards_the_last_finding_has_the_keys_of_the_rest(tmp_path):
    """Eight are told one by one."""
    (tmp_path / "m").mkdir()
    where = {f"layers.{number}.weight": f"model-{number:05}-of-00020.safetensors" for number in range(1, 21)}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    findings = check(str(tmp_path / "m")).findings
    assert [len(each.keys) for each in findings] == [1] * 8 + [12]
    assert findings[-1].message.startswith("12 more places of this kind, the first: model-00009-of-00020.safetensors")


def test_in_a_folder_that_is_not_salvaged_as_a_whole(tmp_path):
    """The advice names a command for the file itself, with its path."""
    torch.save({"module": {"w": torch.ones(9)}, "dp_world_size": 1}, tmp_path / "mp_rank_00_model_states.pt")
    states = {"optimizer_state_dict": {"zero_stage": 1, "partition_count": 1, "x": torch.ones(20_000)}}
    part = tmp_path / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    torch.save(states, part)
    hurt(str(part), "cut")
    finding = next(each for each in check(str(tmp_path)).findings if each.code == "X801")
    assert finding.message.startswith(f"{part.name} cannot be read: the file ends after")
    assert finding.advice.endswith(f" More: ckptdoctor check {part}")


@pytest.mark.parametrize("mend", [whole, broken, cut], ids=lambda mend: mend.__name__)
@pytest.mark.parametrize("place", [place for place in PLACES if place.startswith("shard")])
def test_a_hostile_shard_is_not_to_be_fetched_again(place, mend, tmp_path):
    """What runs commands would run them in another copy, too: no finding sends anybody for one."""
    made = PLACES[place](tmp_path, mend)
    damaged = [each for each in check(str(made)).findings if each.code == "X801"]
    assert all(each.advice.startswith("Do not load it") for each in damaged)
    assert damaged or mend is whole
