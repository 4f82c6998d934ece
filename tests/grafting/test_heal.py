"""Damaged tensors come back from another copy, and every other byte stays as it was."""

from __future__ import annotations

import gzip
import random
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.edits.grafts import Ground
from ckptdoctor.errors import CkptDoctorError, RefusedError
from ckptdoctor.grafting.heal import graft
from tests.grafting.copies import (
    NAN,
    SAVE,
    asked,
    equal,
    flip,
    network,
    places,
    save_flat,
    save_legacy,
    training,
    with_nan,
)
from tests.work import growth

# as many as there is time for, and more where it may take long
FLIPS = pytest.mark.parametrize("flips", [15, pytest.param(60, marks=pytest.mark.slow)])


@FLIPS
@pytest.mark.parametrize("make", [network, training])
def test_a_bit_flipped_anywhere_in_a_storage_comes_back(make, flips, tmp_path):
    """At each of many random places: the output is byte for byte the file that was saved, and no consent is needed."""
    good = tmp_path / "good.pt"
    torch.save(make(), good)
    chosen = random.Random(3)
    for _ in range(flips):
        start, length = chosen.choice([each for each in places(good).values() if each[1]])
        flip(good, tmp_path / "bad.pt", 8 * start + chosen.randrange(8 * length))
        damaged = (tmp_path / "bad.pt").read_bytes()
        report = graft(asked(tmp_path, force=True))
        assert (tmp_path / "out.pt").read_bytes() == good.read_bytes() != damaged
        assert (tmp_path / "bad.pt").read_bytes() == damaged
        assert report.written and {each.ground for each in report.grafted} == {Ground.CHECKSUM}


@FLIPS
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_a_bit_flipped_anywhere_in_a_file_gives_no_crash_and_no_wrong_file(suffix, flips, tmp_path):
    """Headers, pickles and directories too: what is written loads as the original, and everything else is refused."""
    weights = network()
    good = tmp_path / f"good{suffix}"
    SAVE[suffix](weights, good)
    chosen, size = random.Random(11), good.stat().st_size
    names = {"path": f"bad{suffix}", "donor": f"good{suffix}", "output": f"out{suffix}", "force": True}
    for number in range(flips):
        # every second flip hits the headers, which are at the beginning and at the end
        place = chosen.randrange(8 * size) if number % 2 else chosen.choice([1, -1]) * chosen.randrange(8 * 1500)
        flip(good, tmp_path / f"bad{suffix}", place % (8 * size))
        try:
            report = graft(asked(tmp_path, **names))
        except CkptDoctorError as error:
            assert error.message
            continue
        if report.written and suffix == ".pt":
            assert equal(tmp_path / f"out{suffix}", weights)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(40, 30).to_sparse(),
        lambda: torch.quantize_per_tensor(torch.rand(30, 30), 0.1, 3, torch.qint8),
        lambda: torch.rand(2, 8, 5, 5).contiguous(memory_format=torch.channels_last),
        lambda: torch.rand(100).to(torch.float8_e4m3fn),
        lambda: torch.nn.Parameter(torch.rand(50)),
        lambda: torch.rand(30).to(torch.complex64),
        lambda: torch.tensor(7),
        lambda: torch.rand(5).expand(3, 5),
    ],
    ids=["sparse", "quantized", "channels-last", "float8", "parameter", "complex", "scalar", "expanded"],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_every_kind_of_tensor_comes_back(make, tmp_path):
    """A flipped bit in any storage of tensors of other layouts and dtypes."""
    torch.save({"w": make(), "other": torch.rand(9)}, tmp_path / "good.pt")
    for start, length in places(tmp_path / "good.pt").values():
        flip(tmp_path / "good.pt", tmp_path / "bad.pt", 8 * (start + length - 1))
        assert graft(asked(tmp_path, force=True)).written
        assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "good.pt").read_bytes()


def test_holes_of_zero_bytes_are_filled(tmp_path):
    """What a download left out: known by the checksum, or by the likeness of both; zeros that both have are meant."""
    weights = {"w": torch.rand(100_000) + 1, "kept": torch.rand(50), "padded": torch.rand(100_000) + 1}
    weights["padded"][10_000:60_000] = 0
    for suffix, save in ((".pt", torch.save), (".safetensors", save_file)):
        good, bad = tmp_path / f"good{suffix}", tmp_path / f"bad{suffix}"
        save(weights, good)
        data = bytearray(good.read_bytes())
        begin = -(-data.index(weights["w"].numpy().tobytes()) // 4096) * 4096 + 4096
        data[begin : begin + 131072] = bytes(131072)
        bad.write_bytes(data)
        report = graft(asked(tmp_path, path=bad.name, donor=good.name, output=f"out{suffix}"))
        assert [each.path for each in report.grafted] == [("w",)] and not report.left
        assert (tmp_path / f"out{suffix}").read_bytes() == good.read_bytes()


@pytest.mark.slow
def test_many_keys(tmp_path):
    """The work grows with the number of tensors, not with its square."""
    for number in (600, 6_000):
        weights = {f"layers.{i}.w": torch.full((2,), float(i)) for i in range(number)}
        save_flat(weights, tmp_path / f"good{number}.safetensors")
        save_flat({**weights, "layers.77.w": torch.full((2,), NAN)}, tmp_path / f"bad{number}.safetensors")

    def grafted(number):
        names = {"path": f"bad{number}", "donor": f"good{number}", "output": f"out{number}"}
        asking = asked(tmp_path, **{name: f"{file}.safetensors" for name, file in names.items()})
        assert graft(asking).likeness.equal == number - 1

    assert growth(grafted, 600, 6_000, runs=1) < 40
    for number in (600, 6_000):
        good, out = (tmp_path / f"{name}{number}.safetensors" for name in ("good", "out"))
        assert out.read_bytes() == good.read_bytes()


def test_a_compressed_copy_will_do(tmp_path):
    """The other copy is packed by gzip, and the archive in it deflated."""
    torch.save(network(), tmp_path / "good.pt")
    with (
        zipfile.ZipFile(tmp_path / "good.pt") as old,
        zipfile.ZipFile(tmp_path / "d.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    (tmp_path / "d.pt.gz").write_bytes(gzip.compress((tmp_path / "d.pt").read_bytes()))
    for start, _ in places(tmp_path / "good.pt").values():
        flip(tmp_path / "good.pt", tmp_path / "bad.pt", 8 * start + 3)
        assert graft(asked(tmp_path, donor="d.pt.gz", force=True)).written
        assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "good.pt").read_bytes()


def test_the_other_copy_may_be_in_another_container(tmp_path):
    """Values from a safetensors file that was written of the same weights give the very bytes that torch.save wrote."""
    good, other = tmp_path / "good.pt", tmp_path / "good.safetensors"
    weights = network()
    torch.save(weights, good)
    save_file({key: tensor.contiguous().clone() for key, tensor in weights.items()}, other)
    for start, length in places(good).values():
        flip(good, tmp_path / "bad.pt", 8 * (start + length // 2))
        report = graft(asked(tmp_path, donor="good.safetensors", force=True))
        assert (tmp_path / "out.pt").read_bytes() == good.read_bytes()
        assert report.likeness.alike and not report.likeness.unlike


def test_weights_of_a_training_checkpoint_come_from_a_file_of_weights(tmp_path):
    """The state dict of the other copy lies elsewhere; what only the damaged file has cannot be compared."""
    whole = training()
    torch.save(whole, tmp_path / "good.pt")
    save_file(whole["state_dict"], tmp_path / "weights.safetensors")
    start, _ = places(tmp_path / "good.pt")["0"]
    flip(tmp_path / "good.pt", tmp_path / "bad.pt", 8 * start)
    report = graft(asked(tmp_path, donor="weights.safetensors"))
    assert [each.path for each in report.grafted] == [("state_dict", "0.weight")]
    assert report.grafted[0].came_from == ("0.weight",)
    assert report.likeness.equal == 3 and report.likeness.alone > 0
    assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "good.pt").read_bytes()


def test_two_copies_that_are_damaged_in_different_places_heal_each_other(tmp_path):
    """What is damaged in the other copy does not count against it, as long as it is not what is wanted."""
    torch.save(network(), tmp_path / "whole.pt")
    where = places(tmp_path / "whole.pt")
    flip(tmp_path / "whole.pt", tmp_path / "bad.pt", 8 * where["0"][0])
    flip(tmp_path / "whole.pt", tmp_path / "good.pt", 8 * where["1"][0])
    report = graft(asked(tmp_path))
    assert report.likeness.alike
    assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "whole.pt").read_bytes()
    back = graft(asked(tmp_path, path="good.pt", donor="bad.pt", output="back.pt"))
    assert back.written and (tmp_path / "back.pt").read_bytes() == (tmp_path / "whole.pt").read_bytes()


def test_a_tensor_that_is_damaged_in_both_is_refused_by_name(tmp_path):
    """Damaged bytes are never replaced by damaged ones."""
    torch.save(network(), tmp_path / "whole.pt")
    start, _ = places(tmp_path / "whole.pt")["0"]
    flip(tmp_path / "whole.pt", tmp_path / "bad.pt", 8 * start, 8 * start + 9)
    flip(tmp_path / "whole.pt", tmp_path / "good.pt", 8 * start + 70)
    with pytest.raises(RefusedError, match=r"layer0.weight does not match its checksum, and the other copy's own does"):
        graft(asked(tmp_path))
    assert not (tmp_path / "out.pt").exists()


def test_what_can_be_healed_is_healed_and_the_rest_is_told(tmp_path):
    """Two damaged tensors, of which the other copy has one."""
    weights = network()
    torch.save(weights, tmp_path / "whole.pt")
    torch.save({key: tensor for key, tensor in weights.items() if key != "layer1.weight"}, tmp_path / "good.pt")
    where = places(tmp_path / "whole.pt")
    flip(tmp_path / "whole.pt", tmp_path / "one.pt", 8 * where["0"][0])
    flip(tmp_path / "one.pt", tmp_path / "bad.pt", 8 * where["1"][0], 8 * where["1"][0] + 9)
    report = graft(asked(tmp_path))
    assert [each.path for each in report.left] == [("layer1.weight",)]
    assert torch.equal(torch.load(tmp_path / "out.pt")["layer0.weight"], weights["layer0.weight"])
    with pytest.raises(RefusedError, match=r"the named tensors:\n  layer1.weight .* no such tensor"):
        graft(asked(tmp_path, keys=("layer?.weight",), output="other.pt"))


def test_nan_comes_back_from_a_copy_that_agrees_in_the_rest(tmp_path):
    """The values and their checksum are new; all else is bit for bit what it was, and both files load."""
    weights = network()
    torch.save(weights, tmp_path / "good.pt")
    torch.save(with_nan(weights, "layer1.weight"), tmp_path / "bad.pt")
    report = graft(asked(tmp_path))
    assert [(each.path, each.ground) for each in report.grafted] == [(("layer1.weight",), Ground.COPIES)]
    healed = torch.load(tmp_path / "out.pt")
    assert all(torch.equal(healed[key], tensor) for key, tensor in weights.items())
    assert (tmp_path / "out.pt").stat().st_size == (tmp_path / "bad.pt").stat().st_size
    with zipfile.ZipFile(tmp_path / "out.pt") as archive:
        assert archive.testzip() is None
    assert not graft(asked(tmp_path, path="out.pt", output="again.pt")).grafted


@pytest.mark.parametrize(("suffix", "save"), [(".pth", save_legacy), (".safetensors", save_flat)])
def test_containers_without_checksums_are_healed_too(suffix, save, tmp_path):
    """NaN is seen without a checksum; a changed number is not, but --key names it."""
    weights = network()
    save(weights, tmp_path / f"good{suffix}")
    save(with_nan(weights, "layer2.weight"), tmp_path / f"bad{suffix}")
    names = {"path": f"bad{suffix}", "donor": f"good{suffix}", "output": f"out{suffix}", "force": True}
    assert graft(asked(tmp_path, **names)).written
    assert equal(tmp_path / f"out{suffix}", weights)
    save({**weights, "layer2.weight": weights["layer2.weight"] + 1}, tmp_path / f"bad{suffix}")
    report = graft(asked(tmp_path, **names))
    assert not report.grafted and report.unsummed and report.likeness.unlike == (("layer2.weight",),)
    assert graft(asked(tmp_path, keys=("layer2.*",), **names)).written
    assert equal(tmp_path / f"out{suffix}", weights)
