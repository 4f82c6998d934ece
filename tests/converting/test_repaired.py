"""``fix -o`` into another container: one pass, and the bytes that repairing first and converting then would give."""

from __future__ import annotations

import json
import os
import shlex
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.casting import cast
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.checkpoint.progress import heard
from ckptdoctor.converting.conversion import convert
from ckptdoctor.converting.repaired import carry_out
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import TakeRoot
from ckptdoctor.errors import CkptDoctorError, DamagedError, WriteError
from ckptdoctor.examine.file import check
from ckptdoctor.formats.suffixes import asked_for
from ckptdoctor.repair.plan import Plan, plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.account.repairs import CASES
from tests.commands import run
from tests.repair.applying import planned


def in_one(made: Plan, output: Path) -> str:
    """What is said where the repaired contents are written into the other container; "" where it is done."""
    try:
        carry_out(replace(made, output=str(output), converts=asked_for(str(output), made.expected.format)))
    except CkptDoctorError as error:
        return error.message.splitlines()[0]
    return ""


def in_two(made: Plan, output: Path) -> str:
    """The same by way of a repaired file."""
    suffix = ".safetensors" if made.expected.format == "safetensors" else ".pt"
    between = output.parent / f"between{suffix}"
    try:
        repair(replace(made, output=str(between), converts=None))
        convert(ConvertRequest((str(between),), str(output)))
    except CkptDoctorError as error:
        return error.message.splitlines()[0]
    return ""


# what has no dict "model", or none after its repair: there the whole is all that can be asked for
WITHOUT_MODEL = {
    *("rename_of_safetensors", "rename_of_containers", "take_root", "take_root_and_more", "flatten_the_whole"),
    *("tie_in_safetensors", "set_metadata", "text_metadata", "truncate"),
}


@pytest.mark.parametrize(
    ("name", "rooted"),
    [
        pytest.param(name, rooted, id=f"{name}-{'the model' if rooted else 'all'}")
        for name in CASES
        for rooted in (False, True)
        if not (rooted and name in WITHOUT_MODEL)
    ],
)
def test_the_bytes_are_those_of_two_passes(name: str, rooted: bool, tmp_path: Path):
    """After repairs of every kind; what is refused is refused in the same words."""
    path, edits = CASES[name][1](tmp_path)
    made = planned(path, [*edits, *([TakeRoot(("model",))] if rooted else [])])
    suffix = ".pt" if made.expected.format == "safetensors" else ".safetensors"
    one, two = tmp_path / "one" / f"out{suffix}", tmp_path / "two" / f"out{suffix}"
    one.parent.mkdir()
    two.parent.mkdir()
    assert in_one(made, one) == in_two(made, two)
    assert one.exists() == two.exists()
    if one.exists():
        assert one.read_bytes() == two.read_bytes()


def weights() -> OrderedDict[str, torch.Tensor]:
    """Weights that lie plainly, turned, and two of them in parts of one storage."""
    torch.manual_seed(0)
    shared = torch.randn(48)
    return OrderedDict(
        plain=torch.randn(4, 6),
        turned=torch.randn(6, 4).t(),
        one=shared[:24].view(4, 6),
        two=shared[24:].view(6, 4).t(),
    )


def asked(folder: Path, **options: object) -> Plan:
    """The plan of a cast into safetensors."""
    return plan(FixRequest(str(folder / "x.pt"), str(folder / "y.safetensors"), dtype="bfloat16", **options))  # type: ignore[arg-type]


def test_each_byte_is_written_once(tmp_path: Path):
    """No repaired file lies between: all that is copied is the output."""
    torch.save(weights(), tmp_path / "x.pt")
    copied: dict[str, int] = {}
    seen: set[str] = set()

    def watch(progress) -> None:
        seen.update(os.listdir(tmp_path))
        if progress.what == "copying":
            copied["total"] = progress.total
            copied["times"] = copied.get("times", 0) + (progress.done == 0)

    with heard(watch):
        outcome = carry_out(asked(tmp_path, unsafe=True))
    assert copied == {"total": (tmp_path / "y.safetensors").stat().st_size, "times": 1}
    assert not any(name.startswith("repaired") for name in seen)
    assert outcome.conversion is not None
    assert (outcome.conversion.identical, outcome.conversion.computed) == (0, 4)
    assert all(
        torch.equal(value, weights()[key].bfloat16()) for key, value in load_file(tmp_path / "y.safetensors").items()
    )


def test_wrong_numbers_are_noticed(tmp_path: Path, monkeypatch):
    """What is computed while it is written is proven by other code, each tensor of it, and discarded otherwise."""
    torch.save(weights(), tmp_path / "x.pt")
    made = asked(tmp_path, unsafe=True)
    right = cast.cast
    monkeypatch.setattr(cast, "cast", lambda *given: bytes(len(right(*given))))
    with pytest.raises(WriteError, match="discarded"):
        carry_out(made)
    assert os.listdir(tmp_path) == ["x.pt"]


def test_a_tensor_that_is_cut_out_of_what_is_computed(tmp_path: Path, monkeypatch):
    """The whole is made in a temporary file, and proven there."""
    import ckptdoctor.formats.fresh.strided as strided

    monkeypatch.setattr(strided, "seen", lambda *_: None)
    torch.save(weights(), tmp_path / "x.pt")
    outcome = carry_out(asked(tmp_path, unsafe=True))
    assert outcome.conversion is not None and outcome.conversion.computed == 4
    assert all(
        torch.equal(value, weights()[key].bfloat16()) for key, value in load_file(tmp_path / "y.safetensors").items()
    )
    made = replace(asked(tmp_path, unsafe=True, force=True))
    right = cast.cast
    monkeypatch.setattr(cast, "cast", lambda *given: bytes(len(right(*given))))
    with pytest.raises(WriteError, match="discarded"):
        carry_out(made)


def test_a_damaged_storage_is_noticed(tmp_path: Path):
    """Also where nothing of it but its names changes: safetensors could not tell any more."""
    torch.save({f"module.{key}": value for key, value in weights().items()}, tmp_path / "x.pt")
    data = bytearray((tmp_path / "x.pt").read_bytes())
    at = data.index(weights()["plain"].numpy().tobytes())
    data[at] ^= 1
    (tmp_path / "x.pt").write_bytes(data)
    made = plan(FixRequest(str(tmp_path / "x.pt"), str(tmp_path / "y.safetensors"), strip_module=True))
    with pytest.raises(DamagedError, match="do not match their checksum"):
        carry_out(made)
    assert os.listdir(tmp_path) == ["x.pt"]


def test_the_file_beside_names_the_original(tmp_path: Path):
    """What torch has no place for is kept as of the file that was repaired."""
    save_file({"module.w": torch.ones(2)}, tmp_path / "x.safetensors", {"note": "mine"})
    carry_out(plan(FixRequest(str(tmp_path / "x.safetensors"), str(tmp_path / "y.pt"), strip_module=True)))
    assert '"source": "x.safetensors"' in (tmp_path / "y.extra.json").read_text()


def sharded(folder: Path, suffix: str) -> Path:
    """A folder of two shards with their index, whose storages have the same keys in both where they are torch's."""
    made = {f"module.{key}": value.contiguous().clone() for key, value in weights().items()}
    names = [f"model-0000{number}-of-00002{suffix}" for number in (1, 2)]
    path = folder / "shards"
    path.mkdir()
    for name, keys in zip(names, (list(made)[:2], list(made)[2:]), strict=True):
        save = save_file if suffix == ".safetensors" else torch.save
        save({key: made[key] for key in keys}, path / name)
    where = {key: names[number // 2] for number, key in enumerate(made)}
    index = "model.safetensors.index.json" if suffix == ".safetensors" else "pytorch_model.bin.index.json"
    (path / index).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path


@pytest.mark.parametrize("output", ["out/", "out.safetensors", "out.pt"])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_folder_of_shards_is_repaired(suffix: str, output: str, tmp_path: Path):
    """Into another folder, or into one file: from all of its files at once."""
    path = sharded(tmp_path, suffix)
    request = FixRequest(
        str(path), str(tmp_path / output) + ("/" if output.endswith("/") else ""), dtype="bfloat16", unsafe=True
    )
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    made = replace(request, strip_module=True)
    outcome = carry_out(plan(made))
    place = tmp_path / "out" / "model.safetensors" if output == "out/" else tmp_path / output
    got = torch.load(place) if output.endswith(".pt") else load_file(place)
    assert got.keys() == weights().keys()
    assert all(torch.equal(value, weights()[key].bfloat16()) for key, value in got.items())
    assert outcome.conversion is not None and outcome.conversion.computed == 4
    assert outcome.report.steps and outcome.proof is not None and not outcome.proof.findings
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before


def distributed(folder: Path) -> Path:
    """A folder of torch.distributed.checkpoint, in which the state dict lies in a dict."""
    made = {f"module.{key}": value.contiguous().clone() for key, value in weights().items()}
    torch.save({"model": made, "epoch": 3}, folder / "x.pt")
    convert(ConvertRequest((str(folder / "x.pt"),), str(folder / "step 7"), to="dcp"))
    return folder / "step 7"


@pytest.mark.parametrize("options", [["--strip-module"], ["--select", "N401"], []])
@pytest.mark.parametrize(
    ("made", "told", "output"),
    [(lambda folder: sharded(folder, ".bin"), "shards.fixed/", "shards.fixed"), (distributed, "'step 7.fixed.pt'", "")],
)
def test_a_refused_folder_is_told_the_command_that_repairs_it(
    made: Callable[[Path], Path], told: str, output: str, options: list[str], tmp_path: Path
):
    """With all that was asked for; it does what it says."""
    path = made(tmp_path)
    refused = run("fix", path.name, *options, cwd=tmp_path).stdout.decode()
    assert refused.startswith(f"refused · {path.name} is a ")
    command = refused.splitlines()[1]
    assert command.split("-o ")[-1] == told
    words = shlex.split(command)
    assert words[:3] == ["ckptdoctor", "fix", path.name] and words[3:-2] == options
    assert run(*words[1:], cwd=tmp_path).returncode == 0
    got = load_file(tmp_path / output / "model.safetensors") if output else torch.load(tmp_path / words[-1])["model"]
    assert got.keys() == weights().keys()
    assert all(torch.equal(value, weights()[key]) for key, value in got.items())


@pytest.mark.parametrize("output", ["out.pt", "out.safetensors"])
def test_a_plan_reads_no_values_for_checksums_of_what_is_not_written(output: str, tmp_path: Path, monkeypatch):
    """Each byte once, to know that it is sound; what the copy states is worked out when the copy is written."""
    torch.save({f"{number}.weight": torch.ones(50_000) for number in range(8)}, tmp_path / "x.pt")
    count, read = [], FileSource.read
    monkeypatch.setattr(FileSource, "read", lambda self, at, length: (count.append(length), read(self, at, length))[1])
    made = plan(FixRequest(str(tmp_path / "x.pt"), str(tmp_path / output), dtype="float64"))
    assert made.edits and 1 <= sum(count) / made.original.size < 1.1


@pytest.mark.parametrize("output", ["out.pt", "out.safetensors"])
def test_a_plan_reads_no_values_of_a_legacy_file_that_becomes_an_archive(output: str, tmp_path: Path, monkeypatch):
    """Its format states no checksums, and those that the archive states are worked out when that is written."""
    weights = {f"{number}.weight": torch.full((1_000_000,), float(number)) for number in range(4)}
    torch.save(weights, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    count, read = [], FileSource.read
    monkeypatch.setattr(FileSource, "read", lambda self, at, length: (count.append(length), read(self, at, length))[1])
    made = plan(FixRequest(str(tmp_path / "x.pt"), str(tmp_path / output), selection=Selection(("C105",))))
    assert made.edits and sum(count) / made.original.size < 0.2
    carry_out(made)
    got = load_file(tmp_path / output) if output.endswith(".safetensors") else torch.load(tmp_path / output)
    assert all(torch.equal(value, weights[key]) for key, value in got.items()) and got.keys() == weights.keys()
    assert not check(str(tmp_path / output), Settings(deep=True)).findings


def test_a_folder_that_lacks_a_shard_is_not_repaired(tmp_path: Path):
    """Nothing that is not whole passes for a repaired whole."""
    path = sharded(tmp_path, ".safetensors")
    (path / "model-00002-of-00002.safetensors").unlink()
    made = plan(FixRequest(str(path), str(tmp_path / "out.safetensors"), strip_module=True))
    with pytest.raises(DamagedError, match=r"model-00002-of-00002\.safetensors"):
        carry_out(made)
    assert os.listdir(tmp_path) == ["shards"]


def test_a_tensor_that_an_index_names_in_vain_is_said_to_be_lacking(tmp_path: Path):
    """As a conversion says it: nobody takes the output for all that there should be."""
    path = sharded(tmp_path, ".safetensors")
    index = path / "model.safetensors.index.json"
    said = json.loads(index.read_text())
    said["weight_map"]["module.head"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(said))
    outcome = carry_out(plan(FixRequest(str(path), str(tmp_path / "out.safetensors"), strip_module=True)))
    assert outcome.conversion is not None
    assert [clause.partition(" names ")[2] for clause in outcome.conversion.absent] == [
        "module.head, which is in none of the files"
    ]


def test_what_is_only_read_is_repaired_on_the_way(tmp_path: Path):
    """Deflated arrays of NumPy, one of them turned, under other names and in another dtype."""
    arrays = {
        "module.a": np.arange(12.0, dtype="f4").reshape(3, 4),
        "module.b": np.arange(6.0, dtype="f4").reshape(2, 3).T,
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    request = FixRequest(str(tmp_path / "x.npz"), str(tmp_path / "y.safetensors"), strip_module=True, dtype="bfloat16")
    outcome = carry_out(plan(request))
    assert [step.changes[-1].counts for step in outcome.plan.steps][-1] == ((18, "value"), (0, "value rounded"))
    got = load_file(tmp_path / "y.safetensors")
    assert {key: value.float().tolist() for key, value in got.items()} == {
        key.removeprefix("module."): value.tolist() for key, value in arrays.items()
    }
