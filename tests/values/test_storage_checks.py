"""What is seen of damage while values are read is what reading every byte for it shows."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from ckptdoctor import formats
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding
from ckptdoctor.values.damage import HOLE, PAGE
from ckptdoctor.values.examine import examine_values
from ckptdoctor.values.flat_chunks import CHUNK
from ckptdoctor.values.storage_checks import StorageChecks, _has_blank_page


def both(path: Path, threads: int) -> tuple[list[Finding], list[Finding], set[str]]:
    """What is found of damage where values are read, and where they are not; and the storages that are read once."""
    with formats.opened(str(path)) as (source, container):
        checkpoint = formats.read(source, container)
        checks = StorageChecks()
        examine_values(checkpoint, source, checks=checks, sums=False, threads=threads)
        sound = set(checks.sound(checkpoint, source))
    with mock.patch("os.sched_getaffinity", return_value=set(range(threads)), create=True):
        beside = check(str(path), Settings(deep=True, selection=Selection(select=("F", "V651"))))
        alone = check(str(path), Settings(deep=True, selection=Selection(select=("F",))))
    assert [each.what for each in beside.readings] == ["checksums", "values"]
    assert [each.what for each in alone.readings] == ["checksums"]
    return [each for each in beside.findings if each.code != "V651"], list(alone.findings), sound


def _tensors(source: torch.Generator) -> dict[str, torch.Tensor]:
    """Large and small ones, of several dtypes, views of one storage and zeros among them."""
    tensors = {f"w{number}": torch.randn(70_000 + number, generator=source) for number in range(3)}
    tensors["half"] = torch.randn(40_000, generator=source).half()
    tensors["whole"] = torch.arange(50_000)
    tensors["zeros"] = torch.zeros(60_000)
    tensors["small"] = torch.zeros(100)
    tensors["large"] = torch.randn(5_000_000, generator=source)
    return tensors


def _blank(path: Path, key: str, at: int, length: int) -> None:
    """Write zeros from the first page of the file on that a tensor has behind its byte ``at``."""
    with formats.opened(str(path)) as (source, container):
        (tensor,) = [each for each in formats.read(source, container).tensors if each.key == key]
    assert tensor.storage is not None and tensor.storage.extent is not None
    start = -(-(tensor.storage.extent.offset + at) // PAGE) * PAGE
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(length))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("holes", [False, True], ids=["sound", "holes"])
@pytest.mark.parametrize("save", [save_file, torch.save], ids=["safetensors", "torch"])
def test_the_same_is_found(tmp_path, save, holes, threads):
    """Checksums that do not fit, and holes where there are none; what is sound is not read again."""
    path = tmp_path / "m.pt"
    save(_tensors(torch.Generator().manual_seed(1)), path)
    if holes:
        _blank(path, "w1", 20_000, HOLE)
        _blank(path, "large", 16 * CHUNK * 4 - 2 * PAGE, HOLE + 3 * PAGE)  # where the work of two threads meets
    beside, alone, sound = both(path, threads)
    assert beside == alone
    assert {key for each in alone for key in each.keys} == ({("w1",), ("large",)} if holes else set())
    # integers without a checksum are never read; a tensor of zeros has one, or is looked at again
    assert len(sound) == (8 if save is torch.save else 6) - 2 * holes


def test_every_flipped_bit_is_seen(tmp_path):
    """Each storage whose checksum does not fit is read again, and no other."""
    path = tmp_path / "m.pt"
    torch.save(_tensors(torch.Generator().manual_seed(2)), path)
    data = path.read_bytes()
    with formats.opened(str(path)) as (source, container):
        storages = formats.read(source, container).storages
    random = np.random.default_rng(3)
    for storage in storages:
        assert storage.extent is not None
        damaged = bytearray(data)
        damaged[storage.extent.offset + int(random.integers(storage.extent.length))] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        beside, alone, sound = both(path, 2)
        assert beside == alone
        assert [each.location.offset for each in beside] == [storage.extent.offset]
        assert sound == {each.key for each in storages} - {storage.key}


@pytest.mark.parametrize(
    "view",
    [lambda base: base[1:], lambda base: base[::2], lambda base: base.t(), lambda base: base[:1].expand(400, 400)],
    ids=["part", "gaps", "transposed", "expanded"],
)
def test_storages_of_which_values_show_only_a_part_are_read(tmp_path, view):
    """A flipped bit in what no tensor shows is found as ever."""
    base = torch.randn(400, 400)
    path = tmp_path / "m.pt"
    torch.save({"w": view(base)}, path)
    with formats.opened(str(path)) as (source, container):
        (storage,) = formats.read(source, container).storages
    data = bytearray(path.read_bytes())
    data[storage.extent.offset] ^= 1
    path.write_bytes(data)
    beside, alone, _ = both(path, 2)
    assert beside == alone != []


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from([PAGE - 9, PAGE, HOLE - 1, HOLE, HOLE + 77, 5 * HOLE + 3, 1, 13]), min_size=1, max_size=6),
    st.integers(0, 6 * HOLE),
    st.integers(0, 2**31),
)
def test_no_hole_slips_through(pieces, start, seed):
    """A run of 64 KiB of zeros is noticed wherever it lies in pieces of any sizes."""
    data = np.random.default_rng(seed).integers(1, 256, sum(pieces) + HOLE, np.uint8)
    start = min(start, data.size - HOLE)
    data[start : start + HOLE] = 0
    at, seen = 0, []
    for size in (*pieces, data.size - sum(pieces)):
        seen.append(_has_blank_page(data[at : at + size].copy()))
        at += size
    assert any(seen)
