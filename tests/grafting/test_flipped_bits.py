"""A single flipped bit is flipped back where the other copy does not have the bytes, and without another copy."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.errors import RefusedError, UsageError
from tests.commands import run_here
from tests.grafting.copies import flip, places, training

SMALL, LARGE = torch.rand(500, generator=torch.Generator().manual_seed(0)), torch.arange(100_000.0)
WEIGHTS = {"small": SMALL, "large": LARGE, "other": SMALL[:50].clone()}  # the checksum of a large one is not believed


@pytest.fixture
def whole(tmp_path):
    """The file as it was saved."""
    torch.save(WEIGHTS, tmp_path / "whole.pt")
    return tmp_path / "whole.pt"


def damaged(whole, *bits):
    """A copy of it with these bits of these tensors flipped: (tensor, bit)."""
    where = places(whole)
    flip(whole, whole.with_name("bad.pt"), *[8 * where[str(list(WEIGHTS).index(key))][0] + bit for key, bit in bits])
    return whole.with_name("bad.pt")


@pytest.mark.parametrize(
    "other",
    [
        {key: tensor for key, tensor in WEIGHTS.items() if key != "small"},
        {**WEIGHTS, "small": SMALL * 2},
        {key: tensor + 1 for key, tensor in WEIGHTS.items()},
        {**WEIGHTS, "small": SMALL[:90]},
    ],
    ids=["lacks it", "differs in it", "another step", "another shape"],
)
def test_what_the_other_copy_does_not_have_is_flipped_back(whole, other):
    """The output is the file as it was saved, and nothing counts as taken from the other copy."""
    torch.save(other, whole.with_name("other.pt"))
    report = ckptdoctor.graft(damaged(whole, ("small", 8002)), whole.with_name("other.pt"), whole.with_name("out.pt"))
    (healed,) = report.healed
    assert (healed.path, healed.bit, healed.vouched) == (("small",), 2, "") and healed.chance < 1e-4
    assert not report.grafted and not report.left and report.written and report.new_bytes == 1
    assert whole.with_name("out.pt").read_bytes() == whole.read_bytes()


def test_headers_that_stay_damaged_are_said_with_what_recovers_the_rest(whole):
    """The bit is flipped back, the header stays as it is; the command printed as the next one then saves everything."""
    data = bytearray(damaged(whole, ("small", 8002)).read_bytes())
    header = data.index(b"PK\x03\x04", places(whole)["1"][0] - 200)
    data[header : header + 4] = bytes(4)
    whole.with_name("bad.pt").write_bytes(data)
    done = run_here("graft", "bad.pt", cwd=whole.parent)
    assert done.returncode == 1
    told = done.stdout.decode()
    assert "note · stays damaged: the record whole/data/1 " in told.replace("\n  ", " ")
    command = told.partition("next · ckptdoctor ")[2].split()
    assert command[0] == "salvage" and run_here(*command, cwd=whole.parent).returncode == 0
    saved = torch.load(whole.with_name(command[1]).with_suffix(".salvaged.pt"))
    assert all(torch.equal(saved[key], tensor) for key, tensor in WEIGHTS.items())


def test_each_tensor_is_healed_by_what_can_heal_it(whole):
    """Two bits of one are healed by the other copy, one bit of another without it."""
    save_file({key: tensor for key, tensor in WEIGHTS.items() if key != "other"}, whole.with_name("copy.safetensors"))
    bad = damaged(whole, ("small", 9), ("small", 700), ("other", 33))
    done = run_here("graft", "bad.pt", "--from", "copy.safetensors", "-o", "out.pt", cwd=whole.parent)
    text = done.stdout.decode()
    assert done.returncode == 0 and whole.with_name("out.pt").read_bytes() == whole.read_bytes() != bad.read_bytes()
    assert "2 of 3 tensors are damaged" in text and "grafted   1 tensor" in text and "healed    1 tensor" in text
    assert "1 tensor equal in out.pt and copy.safetensors, 1 healed tensor" in " ".join(text.split())


def test_without_another_copy_flipped_bits_alone_are_healed(whole):
    """Said in text and JSON, as salvage says it; --diff writes nothing."""
    damaged(whole, ("small", 8002))
    look = run_here("graft", "bad.pt", "--diff", cwd=whole.parent)
    assert look.returncode == 0 and b"nothing was written" in look.stdout and b"alike" not in look.stdout
    done = run_here("graft", "bad.pt", cwd=whole.parent)
    assert done.returncode == 0 and b"bit 2 of byte" in done.stdout and b"in 1 of 268,435 cases" in done.stdout
    assert whole.with_name("bad.grafted.pt").read_bytes() == whole.read_bytes()
    done = run_here("graft", "bad.pt", "--force", "--format", "json", cwd=whole.parent)
    document = json.loads(done.stdout)
    assert (document["from"], document["status"], document["grafted"]) == (None, "grafted", [])
    salvaged = run_here("salvage", "bad.pt", "--format", "json", cwd=whole.parent)
    assert document["healed"] == json.loads(salvaged.stdout)["healed"] != []
    assert b"nothing to do" in run_here("graft", "whole.pt", cwd=whole.parent).stdout
    done = run_here("graft", "bad.pt", "--root", "other", "--force", cwd=whole.parent)
    assert done.returncode == 1 and b"no tensor that was requested is known to be damaged" in done.stdout


def test_what_is_not_certain_stays_damaged(whole):
    """The status is 1, and why it stays is said; what is certain is healed."""
    damaged(whole, ("small", 8002), ("large", 8002))
    done = run_here("graft", "bad.pt", "-o", "out.pt", cwd=whole.parent)
    assert done.returncode == 1 and b"only a seal or a SHA-256 proves it" in done.stdout
    saved = torch.load(whole.with_name("out.pt"))
    assert torch.equal(saved["small"], SMALL) and not torch.equal(saved["large"], LARGE)


@pytest.mark.parametrize("by", ["seal", "sha256"])
def test_a_seal_or_a_published_checksum_decides(whole, by):
    """The published one also where the other copy heals one of the two."""
    bad = damaged(whole, ("small", 8002), ("large", 8002))
    kept = bad.read_bytes()
    if by == "seal":
        bad.write_bytes(whole.read_bytes())
        ckptdoctor.seal(bad)
        bad.write_bytes(kept)
    else:
        bad.with_name("bad.pt.sha256").write_text(hashlib.sha256(whole.read_bytes()).hexdigest())
    torch.save({"small": SMALL, "other": WEIGHTS["other"]}, whole.with_name("copy.pt"))
    for donor, healed in ((None, ["small", "large"]), (whole.with_name("copy.pt"), ["large"])):
        report = ckptdoctor.graft(bad, donor, whole.with_name("out.pt"), force=True)
        assert [each.path[0] for each in report.healed] == healed and all(by in each.vouched for each in report.healed)
        assert whole.with_name("out.pt").read_bytes() == whole.read_bytes()


def test_nothing_to_heal_is_refused_with_what_to_do(whole):
    """Two flipped bits, NaN, and a file without checksums; salvage is named."""
    torch.save({**WEIGHTS, "small": SMALL / 0}, whole.with_name("nan.pt"))
    save_file({**WEIGHTS, "small": SMALL / 0}, whole.with_name("nan.safetensors"))
    for path in (damaged(whole, ("small", 9), ("small", 700)), *whole.parent.glob("nan.*")):
        with pytest.raises(RefusedError, match=r"small .*\n(.*\n)*  ckptdoctor graft .*\n  ckptdoctor salvage "):
            ckptdoctor.graft(path)
    whole.with_name("cut.pt").write_bytes(whole.read_bytes()[:3000])
    with pytest.raises(RefusedError, match=r"recover what is intact:\n  ckptdoctor salvage \S+cut.pt$"):
        ckptdoctor.graft(whole.with_name("cut.pt"))


def test_a_pattern_asks_for_the_other_copy(whole):
    """What is named is never flipped back: it is to become what it is there. So a pattern needs another copy."""
    torch.save({**WEIGHTS, "small": SMALL * 2}, whole.with_name("other.pt"))
    bad = damaged(whole, ("small", 8002))
    with pytest.raises(RefusedError, match="mixture"):
        ckptdoctor.graft(bad, whole.with_name("other.pt"), key="small")
    with pytest.raises(UsageError, match="key= is about the other copy"):
        ckptdoctor.graft(bad, key="small")


def test_a_mixture_is_refused_with_what_needs_none(whole):
    """The other copy is of another step: one tensor needs it, another can be healed without it."""
    torch.save({key: tensor + 1 for key, tensor in WEIGHTS.items()}, whole.with_name("other.pt"))
    bad = damaged(whole, ("small", 9), ("small", 700), ("other", 33))
    with pytest.raises(RefusedError, match=r"would be a mixture.*\n.* 1 tensor can be healed"):
        ckptdoctor.graft(bad, whole.with_name("other.pt"))
    assert [each.path for each in ckptdoctor.graft(bad).healed] == [("other",)]


@pytest.mark.parametrize("flips", [40, pytest.param(2_000, marks=pytest.mark.slow)])
def test_bits_flipped_anywhere(flips, tmp_path):
    """One in a storage gives the file as it was saved; two or three are never taken for one."""
    whole, bad, out = (tmp_path / name for name in ("whole.pt", "bad.pt", "out.pt"))
    torch.save(training(), whole)
    before, chosen = whole.read_bytes(), random.Random(5)
    where = [each for each in places(whole).values() if each[1]]
    for number in range(flips):
        start, length = chosen.choice(where)
        flip(whole, bad, *[8 * start + bit for bit in chosen.sample(range(8 * length), 1 + number % 3)])
        if number % 3:
            with pytest.raises(RefusedError):
                ckptdoctor.graft(bad, None, out, force=True)
        else:
            assert ckptdoctor.graft(bad, None, out, force=True).written and out.read_bytes() == before


def test_a_tensor_of_several_storages_is_healed_whole(tmp_path):
    """A part of a sparse tensor has the flipped bit; the others stay as they are, whatever the other copy has."""
    sparse = torch.eye(40).to_sparse()
    torch.save({"w": sparse, "other": SMALL}, tmp_path / "whole.pt")
    torch.save({"w": sparse * 2, "other": SMALL}, tmp_path / "other.pt")
    for start, _ in places(tmp_path / "whole.pt").values():
        flip(tmp_path / "whole.pt", tmp_path / "bad.pt", 8 * start + 2)
        for donor in (None, tmp_path / "other.pt"):
            ckptdoctor.graft(tmp_path / "bad.pt", donor, tmp_path / "out.pt", force=True)
            assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "whole.pt").read_bytes()
