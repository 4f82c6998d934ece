"""What would be a mixture or a guess is refused, and what belongs together changes together."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.cli.main import run
from ckptdoctor.edits.grafts import Ground
from ckptdoctor.errors import NotACheckpointError, RefusedError, UsageError, WriteError
from ckptdoctor.grafting.heal import graft
from tests.grafting.copies import NAN, asked, flip, network, places, with_nan


def test_another_training_step_needs_consent(tmp_path):
    """The refusal says how many tensors differ; with consent the mixture is what was asked for."""
    torch.save(with_nan(network(), "layer1.weight"), tmp_path / "bad.pt")
    torch.save(network(seed=1), tmp_path / "good.pt")
    with pytest.raises(RefusedError, match=r"not a copy of that save: of the 6 other tensors .* 6 differ"):
        graft(asked(tmp_path))
    report = graft(asked(tmp_path, unsafe=True))
    assert report.mixture
    healed = torch.load(tmp_path / "out.pt")
    assert torch.equal(healed["layer1.weight"], network(seed=1)["layer1.weight"])
    assert torch.equal(healed["layer0.weight"], network()["layer0.weight"])


def test_bytes_that_do_not_fit_the_checksum_need_consent(tmp_path):
    """All other tensors agree, but what stands for the damaged one is not what was saved."""
    weights = network()
    torch.save(weights, tmp_path / "whole.pt")
    torch.save({**weights, "layer0.weight": weights["layer0.weight"] * 2}, tmp_path / "good.pt")
    bit = 8 * places(tmp_path / "whole.pt")["0"][0]
    flip(tmp_path / "whole.pt", tmp_path / "bad.pt", bit, bit + 9)
    with pytest.raises(RefusedError, match=r"layer0.weight do not match the checksum"):
        graft(asked(tmp_path))
    assert graft(asked(tmp_path, unsafe=True)).written
    with zipfile.ZipFile(tmp_path / "out.pt") as archive:
        assert archive.testzip() is None


def test_the_rest_of_another_step_does_not_matter_where_the_checksum_fits(tmp_path):
    """A frozen layer of a later epoch is what was saved in this one."""
    weights = network()
    torch.save(weights, tmp_path / "whole.pt")
    torch.save({**network(seed=5), "layer0.weight": weights["layer0.weight"]}, tmp_path / "good.pt")
    flip(tmp_path / "whole.pt", tmp_path / "bad.pt", 8 * places(tmp_path / "whole.pt")["0"][0])
    report = graft(asked(tmp_path))
    assert report.likeness.unlike and (tmp_path / "out.pt").read_bytes() == (tmp_path / "whole.pt").read_bytes()


def test_a_damaged_checksum_is_put_right(tmp_path):
    """The bit was flipped in the directory and not in the values, which the other copy shows."""
    torch.save(network(), tmp_path / "good.pt")
    data = (tmp_path / "good.pt").read_bytes()
    entry = data.rindex(b"/data/0", 0, data.rindex(b"/data/1"))
    at = data.rindex(b"PK\x01\x02", 0, entry) + 16
    flip(tmp_path / "good.pt", tmp_path / "bad.pt", 8 * at + 5)
    report = graft(asked(tmp_path))
    assert {each.ground for each in report.grafted} == {Ground.CHECKSUM}
    assert (tmp_path / "out.pt").read_bytes() == data


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tensor: tensor[:39].clone(), r"float32 \[39, 30\] there"),
        (lambda tensor: tensor.double(), r"float64 \[40, 30\] there"),
        (lambda tensor: tensor * NAN, r"1,200 NaN of 1,200 values there too"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, why, tmp_path):
    """Another shape, another dtype, and NaN there as well."""
    weights = network()
    torch.save(with_nan(weights, "layer1.weight"), tmp_path / "bad.pt")
    torch.save({**weights, "layer1.weight": change(weights["layer1.weight"])}, tmp_path / "good.pt")
    with pytest.raises(RefusedError, match=rf"layer1.weight has 40 NaN .*{why}"):
        graft(asked(tmp_path, unsafe=True))


def test_tied_tensors_stay_tied(tmp_path):
    """Naming one of two names of a tensor changes both, which is told; they still share their bytes."""
    weights = network()
    torch.save(weights, tmp_path / "good.pt")
    tied = torch.rand(50, 8)
    torch.save({**weights, "embed.weight": tied, "head.weight": tied}, tmp_path / "bad.pt")
    report = graft(asked(tmp_path, keys=("embed.weight",)))
    assert [each.path for each in report.grafted] == [("embed.weight",), ("head.weight",)]
    healed = torch.load(tmp_path / "out.pt")
    assert healed["embed.weight"].data_ptr() == healed["head.weight"].data_ptr()
    assert torch.equal(healed["head.weight"], weights["head.weight"])


def test_tensors_that_are_one_here_and_two_there_are_refused(tmp_path):
    """Which of the two values is meant cannot be known."""
    weights = network()
    both = with_nan(weights, "embed.weight")["embed.weight"]
    torch.save({**weights, "embed.weight": both, "head.weight": both}, tmp_path / "bad.pt")
    torch.save({**weights, "embed.weight": torch.rand(50, 8)}, tmp_path / "good.pt")
    with pytest.raises(RefusedError, match=r"embed.weight and head.weight are one tensor here"):
        graft(asked(tmp_path, unsafe=True))


def test_views_of_one_storage(tmp_path):
    """A damaged storage with several views comes back whole; of a sound one only what was named changes."""
    base = torch.rand(100)
    pieces = {"a": base[:40], "b": base[40:], "other": torch.rand(5)}
    torch.save(pieces, tmp_path / "whole.pt")
    save_file({key: tensor.clone() for key, tensor in pieces.items()}, tmp_path / "good.safetensors")
    flip(tmp_path / "whole.pt", tmp_path / "bad.pt", 8 * places(tmp_path / "whole.pt")["0"][0])
    report = graft(asked(tmp_path, donor="good.safetensors"))
    assert [each.path for each in report.grafted] == [("a",), ("b",)]
    assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "whole.pt").read_bytes()
    save_file({key: tensor + 1 for key, tensor in pieces.items()}, tmp_path / "later.safetensors")
    graft(asked(tmp_path, path="whole.pt", donor="later.safetensors", keys=("b",), output="mixed.pt", unsafe=True))
    mixed = torch.load(tmp_path / "mixed.pt")
    assert torch.equal(mixed["a"], pieces["a"]) and torch.equal(mixed["b"], pieces["b"] + 1)
    assert mixed["a"].untyped_storage().data_ptr() == mixed["b"].untyped_storage().data_ptr()


def test_bytes_that_no_tensor_shows_come_only_from_the_same_layout(tmp_path):
    """A slice was saved with its whole storage: a copy that has the slice alone cannot make the checksum right."""
    pieces = {"a": torch.rand(100)[10:40], "other": torch.rand(5)}
    torch.save(pieces, tmp_path / "good.pt")
    bit = 8 * places(tmp_path / "good.pt")["0"][0]
    flip(tmp_path / "good.pt", tmp_path / "bad.pt", bit + 9, bit + 900)
    save_file({key: tensor.clone() for key, tensor in pieces.items()}, tmp_path / "slices.safetensors")
    with pytest.raises(RefusedError, match="belong to no tensor"):
        graft(asked(tmp_path, donor="slices.safetensors"))
    assert graft(asked(tmp_path)).written
    assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "good.pt").read_bytes()


def test_the_average_beside_the_raw_weights_stands_for_them_with_consent(tmp_path):
    """One file is both copies: the parts are named, and the result is a mixture."""
    weights = network()
    del weights["head.weight"]
    raw = with_nan(weights, "layer1.weight")
    average = {key: tensor.float() * 0.5 for key, tensor in weights.items() if key != "small.bias"}
    torch.save({"model": raw, "model_ema": average}, tmp_path / "bad.pt")
    with pytest.raises(UsageError, match="--from-root"):
        graft(asked(tmp_path, donor="bad.pt"))
    parts = {"donor": "bad.pt", "root": "model", "from_root": "model_ema"}
    with pytest.raises(RefusedError, match="mixture"):
        graft(asked(tmp_path, **parts))
    assert graft(asked(tmp_path, unsafe=True, **parts)).written
    healed = torch.load(tmp_path / "out.pt")
    assert torch.equal(healed["model"]["layer1.weight"], average["layer1.weight"])
    assert torch.equal(healed["model_ema"]["layer1.weight"], average["layer1.weight"])
    assert torch.equal(healed["model"]["layer0.weight"], weights["layer0.weight"])


def test_a_file_that_is_cut_off_is_told_the_two_commands(tmp_path):
    """They do what is said of them: the file comes back complete."""
    weights = {f"w{i}": torch.full((500,), float(i)) for i in range(6)}
    torch.save(weights, tmp_path / "whole.pt")
    data = (tmp_path / "whole.pt").read_bytes()
    (tmp_path / "bad.pt").write_bytes(data[: len(data) // 2])
    save_file({key: weights[key] for key in ("w1", "w3", "w4", "w5")}, tmp_path / "good.safetensors")
    with pytest.raises(RefusedError) as refused:
        graft(asked(tmp_path, donor="good.safetensors"))
    commands = [shlex.split(line) for line in refused.value.message.splitlines() if line.startswith("  ckptdoctor ")]
    assert [command[1] for command in commands] == ["salvage", "merge"]
    assert [run(command[1:]) for command in commands] == [1, 0]
    merged = torch.load(tmp_path / "out.pt")
    assert merged.keys() == weights.keys() and all(torch.equal(merged[key], weights[key]) for key in weights)


def test_nothing_is_left_behind_where_writing_fails(tmp_path, monkeypatch):
    """The disk is full: the original stays, and no file is beside it; nor is one overwritten unasked."""
    torch.save(network(), tmp_path / "good.pt")
    flip(tmp_path / "good.pt", tmp_path / "bad.pt", 8 * places(tmp_path / "good.pt")["0"][0])
    (tmp_path / "out.pt").write_bytes(b"mine")
    with pytest.raises(WriteError, match="already exists"):
        graft(asked(tmp_path))
    with pytest.raises(WriteError, match="Not enough disk space for"):
        monkeypatch.setattr("ckptdoctor.writing.publishing.fill", full)
        graft(asked(tmp_path, output="new.pt"))
    assert sorted(os.listdir(tmp_path)) == ["bad.pt", "good.pt", "out.pt"]
    assert (tmp_path / "out.pt").read_bytes() == b"mine"


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_original_is_replaced_only_by_force(tmp_path):
    """In its place there is then the healed file."""
    torch.save(network(), tmp_path / "good.pt")
    flip(tmp_path / "good.pt", tmp_path / "bad.pt", 8 * places(tmp_path / "good.pt")["0"][0])
    with pytest.raises(WriteError):
        graft(asked(tmp_path, output="bad.pt"))
    assert graft(asked(tmp_path, output="bad.pt", force=True)).replaces_original
    assert (tmp_path / "bad.pt").read_bytes() == (tmp_path / "good.pt").read_bytes()


def test_a_shard_is_healed_by_the_folder_of_the_other_copy(tmp_path):
    """The damaged file is named; the other copy is found by its index."""
    weights = {f"w{i}": torch.rand(50) for i in range(4)}
    folder = tmp_path / "good"
    folder.mkdir()
    names = [f"pytorch_model-0000{i + 1}-of-00002.bin" for i in range(2)]
    for i, name in enumerate(names):
        torch.save({key: weights[key].clone() for key in list(weights)[2 * i : 2 * i + 2]}, folder / name)
    where = {key: names[i // 2] for i, key in enumerate(weights)}
    index = {"metadata": {"total_size": 800}, "weight_map": where}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    shutil.copytree(folder, tmp_path / "bad")
    flip(folder / names[1], tmp_path / "bad" / names[1], 8 * places(folder / names[1])["0"][0])
    with pytest.raises(UsageError, match="name the damaged file"):
        graft(asked(tmp_path, path="bad", donor="good"))
    assert graft(asked(tmp_path, path=f"bad/{names[1]}", donor="good", output="out.bin")).written
    assert (tmp_path / "out.bin").read_bytes() == (folder / names[1]).read_bytes()


def test_few_others_that_differ_may_be_damaged_too(tmp_path):
    """One of many is no sign of another training step: the refusal says what to do if it is damaged as well."""
    weights = {f"layer{number}.weight": torch.rand(4, 3) for number in range(12)}
    save_file({**weights, "layer1.weight": weights["layer1.weight"] + 1}, tmp_path / "good.safetensors")
    save_file({**weights, "layer0.weight": torch.full((4, 3), NAN)}, tmp_path / "bad.safetensors")
    with pytest.raises(RefusedError, match=r"1 differs \(layer1.weight\); if that is damage too, name it with --key"):
        graft(asked(tmp_path, path="bad.safetensors", donor="good.safetensors", output="out.safetensors"))


def test_what_no_tensor_can_be_taken_from_or_put_into_is_refused_with_what_to_name(tmp_path):
    """A file of llama.cpp is neither repaired nor a copy, and the sentence says which of both it was named for."""
    torch.save(network(), tmp_path / "good.pt")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    with pytest.raises(NotACheckpointError, match=r"Only PyTorch \.pt \(zip\), .* files can be repaired by graft\.$"):
        graft(asked(tmp_path, path="m.gguf"))
    with pytest.raises(NotACheckpointError, match=r"name another copy of .*good\.pt with --from\.$"):
        graft(asked(tmp_path, path="good.pt", donor="m.gguf"))


def test_an_output_named_for_another_format_is_refused(tmp_path):
    """A graft keeps the format of the damaged file."""
    torch.save(network(), tmp_path / "good.pt")
    torch.save(with_nan(network(), "layer1.weight"), tmp_path / "bad.pt")
    with pytest.raises(UsageError, match=r"graft keeps the format of .* ckptdoctor convert .*out\.safetensors$"):
        graft(asked(tmp_path, output="out.safetensors"))
