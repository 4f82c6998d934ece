from __future__ import annotations

import random
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Extent, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.formats.fresh.strided import refusal, segments
from ckptdoctor.writing import Copy
from ckptdoctor.writing.checksums import Bytes

F32 = BY_NAME["float32"]


def bytes_of(tensor: Tensor, swapped: bool = False) -> bytes:
    with Bytes() as files:
        return b"".join(files.of(segments(tensor, swapped)))


def stored(path: Path, data: bytes, packed: bool = False) -> Storage:
    """A storage of float32 in a file of its own, behind some other bytes."""
    held = data
    if packed:
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        held = deflate.compress(data) + deflate.flush()
    path.write_bytes(b"before" + held + b"behind")
    return Storage("0", len(data), F32, "cpu", Extent(str(path), 6, len(held)), zlib.crc32(data), packed)


def view(storage: Storage, like: torch.Tensor) -> Tensor:
    return Tensor(("w",), F32, tuple(like.shape), tuple(like.stride()), storage, like.storage_offset())


VIEWS = (
    lambda x: x,
    lambda x: x.reshape(6, 8).t(),
    lambda x: x.reshape(6, 8)[1:4, 2:7:2],
    lambda x: x[5:9],
    lambda x: x[3:4].expand(4, 5),
    lambda x: x.reshape(2, 3, 8).permute(2, 0, 1),
    lambda x: x[:0],
)


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("make", VIEWS)
def test_elements_come_in_c_order(tmp_path: Path, make, packed: bool):
    """Of every view, stored or deflated, as torch's ``contiguous`` has them."""
    whole = torch.arange(48.0)
    seen = make(whole)
    tensor = view(stored(tmp_path / "f", whole.numpy().tobytes(), packed), seen)
    assert refusal(tensor) is None
    assert bytes_of(tensor) == seen.contiguous().numpy().tobytes()


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "deflated"])
def test_big_endian_values_are_turned(tmp_path: Path, packed: bool):
    """In C order or not."""
    whole = torch.arange(48.0)
    storage = stored(tmp_path / "f", whole.numpy().astype(">f4").tobytes(), packed)
    for make in VIEWS:
        assert bytes_of(view(storage, make(whole)), swapped=True) == make(whole).contiguous().numpy().tobytes()


def test_a_deflated_storage_that_lies_is_damage(tmp_path: Path):
    """It inflates to fewer bytes than it claims, or to nothing at all."""
    storage = stored(tmp_path / "f", bytes(400), packed=True)
    longer = Storage("0", 800, F32, "cpu", storage.extent, compressed=True)
    with pytest.raises(DamagedError):
        bytes_of(view(longer, torch.zeros(200)))
    (tmp_path / "f").write_bytes(b"\xff" * 100)
    with pytest.raises(DamagedError):
        bytes_of(
            view(Storage("0", 400, F32, "cpu", Extent(str(tmp_path / "f"), 0, 100), compressed=True), torch.zeros(100))
        )


def pieces(tmp_path: Path, whole: torch.Tensor, cuts: list[list[int]]) -> Tensor:
    """The tensor in a grid of pieces, each in a file of its own, in no particular order."""
    found = []
    edges = [[0, *cut, size] for cut, size in zip(cuts, whole.shape, strict=True)]
    grid = [()]
    for edge in edges:
        grid = [(*at, pair) for at in grid for pair in pairwise(edge)]
    for number, place in enumerate(grid):
        part = whole[tuple(slice(*pair) for pair in place)].clone(memory_format=torch.contiguous_format)
        found.append(
            (tuple(first for first, _ in place), view(stored(tmp_path / f"p{number}", part.numpy().tobytes()), part))
        )
    random.Random(3).shuffle(found)
    shape = tuple(whole.shape)
    return Tensor(("w",), F32, shape, contiguous_stride(shape), None, chunks=tuple(found))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=3))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tensors_in_pieces_are_put_together(tmp_path: Path, sizes: list[tuple[int, int]]):
    """Whatever grid they were cut in."""
    shape = [size for size, _ in sizes]
    whole = torch.rand(shape)
    cuts = [sorted({(at + 1) * size // (count + 1) for at in range(count)} - {0, size}) for size, count in sizes]
    tensor = pieces(tmp_path, whole, cuts)
    assert refusal(tensor) is None
    assert bytes_of(tensor) == whole.numpy().tobytes()


def test_pieces_one_behind_the_other_are_copied(tmp_path: Path):
    """As sharding along the first dimension leaves them: nothing is made, ranges of the files are taken."""
    whole = torch.rand(6, 4)
    tensor = pieces(tmp_path, whole, [[2, 4], []])
    assert [type(each) for each in segments(tensor)] == [Copy, Copy, Copy]
    assert bytes_of(tensor) == whole.numpy().tobytes()


def test_pieces_with_gaps_or_overlaps_are_refused(tmp_path: Path):
    """With how much of the tensor there is."""
    tensor = pieces(tmp_path, torch.rand(4, 6), [[2], [3]])
    for chunks in (tensor.chunks[1:], (*tensor.chunks, tensor.chunks[0])):
        broken = Tensor(("w",), F32, (4, 6), (6, 1), None, chunks=chunks)
        with pytest.raises(RefusedError, match="do not fit together"):
            segments(broken)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layout": "sparse_coo"}, "sparse"),
        ({"dtype": BY_NAME["qint8"]}, "quantized"),
        ({"subclass": "torchao.X"}, "torchao.X"),
        ({"details": (("conj", True),)}, "resolve_conj"),
        ({"storage": None}, "meta"),
        ({"rebuild": "torch.FloatStorage"}, "storage that was saved on its own"),
        ({"offset": 40}, "not complete"),
        ({"stride": (-1,)}, "an invalid shape"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_plain_run_of_elements_is_refused(tmp_path: Path, change: dict, reason: str):
    """With the reason, and what to do about it."""
    from dataclasses import replace

    tensor = view(stored(tmp_path / "f", bytes(192)), torch.zeros(48)[:40])
    found = refusal(replace(tensor, **change))
    assert found is not None
    assert reason in found
