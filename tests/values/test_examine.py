"""Values of every layout are read, each byte once; those that are not are named."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor import formats
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import StoppedError
from ckptdoctor.values.distinct import bytes_to_read
from ckptdoctor.values.examine import examine_values
from ckptdoctor.values.flat_chunks import CHUNK
from ckptdoctor.values.storage_checks import StorageChecks
from tests.dtypes import needs_dtype
from tests.values.reading import one, saved, values_in
from tests.values.test_statistics import holds


@pytest.fixture(autouse=True)
def _quiet():
    """torch warns of every quantized and every compressed sparse tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base.t(),
        lambda base: base[::2, 1:],
        lambda base: base[3],
        lambda base: base.permute(1, 0)[5:],
        lambda base: base.view(-1)[7::3],
        lambda base: base[:1].expand(4, -1, -1) if base.dim() == 3 else base[:1].expand(5, -1),
    ],
    ids=["transposed", "gaps", "row", "part", "step", "expanded"],
)
def test_views(tmp_path, view):
    """The elements of the view, no others, however they lie."""
    tensor = view(torch.randn(50, 40))
    holds(one(tmp_path, tensor), tensor)


def test_a_large_view_with_gaps(tmp_path):
    """It is copied in blocks."""
    tensor = torch.randn(1_500, 1_000)[:, ::2]
    holds(one(tmp_path, tensor), tensor)


def test_expanded_tensors_are_read_once(tmp_path):
    """A number that is shown a billion times is read once and counted a billion times."""
    found = one(tmp_path, torch.tensor([[2.0]]).expand(1 << 15, 1 << 15))
    assert (found.count, found.mean, found.norm) == (1 << 30, 2.0, pytest.approx(2.0 * (1 << 15)))


def test_views_that_overlap_without_end_are_not_read(tmp_path):
    """More elements than bytes would take forever."""
    tensor = torch.as_strided(torch.randn(20_000), (10_000, 10_000), (1, 1))
    values = values_in(saved(tmp_path, {"w": tensor}))
    assert values.tensors == {}
    assert "more elements than" in values.skipped[0].reason


def test_tied_tensors_are_read_once(tmp_path):
    """They share their values, and the bytes are counted once."""
    tensor = torch.randn(1_000)
    path = saved(tmp_path, {"a": tensor, "b": tensor, "c": {"d": tensor}})
    values = values_in(path)
    assert values.read == 4_000
    assert values.tensors[("a",)] is values.tensors[("b",)] is values.tensors[("c", "d")]


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors_are_their_values(tmp_path, layout):
    """Only what is stored is counted."""
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    tensor = dense.to_sparse() if layout == "sparse_coo" else getattr(dense, f"to_{layout}")()
    found = one(tmp_path, tensor)
    assert (found.count, found.min, found.max) == (2, 2.0, 3.0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(6, 5), (700, 900)], ids=["small", "blocks"])
def test_quantized_tensors_are_what_they_stand_for(tmp_path, shape, axis):
    """Scales and zero points are applied."""
    real = torch.randn(shape)
    each = torch.quantize_per_tensor(real, 0.05, 3, torch.quint8)
    scales = torch.rand(shape[axis]) * 0.1 + 0.01
    by_channel = torch.quantize_per_channel(real, scales, torch.ones(shape[axis]).long(), axis, torch.qint8)
    for tensor in (each, by_channel):
        found, wanted = one(tmp_path, tensor), tensor.dequantize().double()
        assert found.max == pytest.approx(wanted.max().item(), rel=1e-5)
        assert found.mean == pytest.approx(wanted.mean().item(), abs=1e-6)
        assert found.norm == pytest.approx(wanted.norm().item(), rel=1e-6)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (70, 64, 9, 11)], ids=["small", "blocks"])
@pytest.mark.parametrize("view", ["channels_last", "permuted", "plain"])
def test_quantized_tensors_in_any_order_of_memory(tmp_path, view, shape):
    """Models for phones hold convolutions in channels_last, quantized by channel: a flat view of them there is not."""
    scales, zeros = torch.rand(shape[0]) + 0.1, torch.ones(shape[0])
    tensor = torch.quantize_per_channel(torch.randn(shape), scales, zeros.long(), 0, torch.qint8)
    if view == "channels_last":
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    elif view == "permuted":
        tensor = torch.quantize_per_tensor(torch.randn(shape), 0.1, 3, torch.quint8).permute(0, 2, 3, 1)
    found, wanted = one(tmp_path, tensor), tensor.dequantize().double()
    assert found.count == wanted.numel()
    assert (found.min, found.max) == pytest.approx((wanted.min().item(), wanted.max().item()))
    assert found.norm == pytest.approx(wanted.norm().item(), rel=1e-6)


def test_conjugates(tmp_path):
    """A conj bit that is saved changes the sign of imaginary parts."""
    tensor = torch.complex(torch.ones(50), torch.full((50,), 3.0)).conj()
    found = one(tmp_path, tensor)
    assert (found.min, found.max) == (-3.0, 1.0)


@needs_dtype("float4_e2m1fn_x2")
def test_packed_dtypes_are_said_to_be_left_out(tmp_path):
    """float4 is opaque."""
    tensor = torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    values = values_in(saved(tmp_path, {"w": tensor, "v": torch.ones(3)}))
    assert list(values.tensors) == [("v",)]
    assert [(each.path, each.reason) for each in values.skipped] == [(("w",), "float4_e2m1fn_x2 is a packed dtype")]


def test_tensors_without_values(tmp_path):
    """Meta tensors are left out; tensors without elements count nothing."""
    path = saved(tmp_path, {"meta": torch.empty(3, device="meta"), "empty": torch.empty(0, 5)})
    values = values_in(path)
    assert values.tensors[("empty",)].count == 0
    assert [each.path for each in values.skipped] == [("meta",)]


def test_big_endian_values_are_swapped(tmp_path):
    """The other byte order gives the same numbers, flat or with gaps."""
    tensor = torch.randn(1_000, 3)
    path = tmp_path / "model.pt"
    torch.save({"flat": tensor, "gaps": tensor[::2]}, tmp_path / "little.pt")
    with zipfile.ZipFile(tmp_path / "little.pt") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name:
                data = b"".join([data[at : at + 4][::-1] for at in range(0, len(data), 4)])
            new.writestr(name, data)
    values = values_in(path)
    holds(values.tensors[("flat",)], tensor)
    holds(values.tensors[("gaps",)], tensor[::2])


def test_compressed_records_are_unpacked_in_pieces(tmp_path):
    """A deflated record, from its middle on too."""
    tensor = torch.randn(2 * CHUNK + 9)
    path = tmp_path / "model.pt"
    torch.save({"all": tensor, "part": tensor[1_000:], "gaps": tensor[::5]}, tmp_path / "stored.pt")
    with (
        zipfile.ZipFile(tmp_path / "stored.pt") as old,
        zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=1) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    values = values_in(path)
    assert values.skipped == ()
    holds(values.tensors[("all",)], tensor)
    holds(values.tensors[("part",)], tensor[1_000:])
    holds(values.tensors[("gaps",)], tensor[::5])


def test_unaligned_bytes(tmp_path):
    """A safetensors header of an odd length leaves values anywhere."""
    path = tmp_path / "model.safetensors"
    tensor = torch.randn(5_000)
    save_file({"w": tensor}, path)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + length].rstrip() + b" "
    header += b" " * (len(header) % 2 == 0)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
    holds(values_in(path).tensors[("w",)], tensor)


def test_missing_bytes_are_a_reason(tmp_path):
    """What is cut off is left out, and the rest is read."""
    path = tmp_path / "model.pt"
    torch.save({"a": torch.ones(100), "b": torch.ones(1_000)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-100])
    values = values_in(path)
    assert {each.path for each in values.skipped} | set(values.tensors) == {("a",), ("b",)}
    assert "not all in the file" in values.skipped[0].reason
    assert len(values.tensors) == 1


@pytest.mark.parametrize("sums", [True, False])
def test_large_tensors_are_shared_between_threads(tmp_path, sums):
    """Whatever the number of threads, the numbers are the same."""
    tensor = torch.randn(140 * CHUNK).bfloat16()
    tensor[90 * CHUNK] = float("nan")
    path = saved(tmp_path, {"w": tensor})
    alone, *together = (values_in(path, threads=count, sums=sums).tensors[("w",)] for count in (1, 2, 3, 8))
    assert alone.nan == 1
    assert together == [alone] * 3  # to the last digit


def test_only_what_is_not_finite(tmp_path):
    """The quick look counts NaN and infinities and nothing else."""
    tensor = torch.randn(5_000)
    tensor[17] = float("inf")
    found = one(tmp_path, tensor, only_finite=True)
    assert (found.count, found.positive_inf, found.histogram, found.fits) == (5_000, 1, None, ())


def test_it_can_be_stopped(tmp_path):
    """What was complete by then is given back, and that it is not all."""
    path = saved(tmp_path, {f"w{number}": torch.ones(CHUNK) for number in range(8)})
    done = []

    def listener(progress):
        done.append(progress.done)
        if len(done) == 3:
            raise StoppedError

    values = values_in(path, work=Work(listener=listener), threads=1)
    assert not values.complete
    assert 0 < len(values.tensors) < 8


def test_progress_ends_at_the_total(tmp_path):
    """The bytes of tensors that are one count once."""
    tensor = torch.ones(CHUNK + 1)
    path = saved(tmp_path, {"a": tensor, "b": tensor, "c": torch.ones(3)})
    done = []
    values = values_in(path, work=Work(listener=lambda progress: done.append(progress.done)))
    assert max(done) == values.read == 4 * (CHUNK + 4)
    assert values.complete
    with formats.opened(str(path)) as (source, container):
        assert bytes_to_read(formats.read(source, container)) == values.read


@pytest.mark.parametrize("sums", [False, True])
def test_memory_does_not_grow_with_the_file(sums, tmp_path):
    """A few chunks for each thread, NumPy's memory among what is counted, whether there are 3 tensors or 8."""
    peaks = []
    for count in (3, 8):
        path = tmp_path / f"{count}.safetensors"
        save_file({f"w{number}": torch.randn(16 * CHUNK) for number in range(count)}, path)
        with formats.opened(str(path)) as (source, container):
            checkpoint = formats.read(source, container)
            tracemalloc.start()
            try:
                for _ in range(4):  # of which the most counts: both threads need not need most at once
                    examine_values(checkpoint, source, threads=2, sums=sums, checks=StorageChecks())
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert max(peaks) < 2 * (10 << 20)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what a process uses of a mapped file is counted otherwise")
@pytest.mark.parametrize("blanks", [0, 1], ids=["mapped", "copied"])
def test_a_tensor_takes_less_memory_than_it_has_bytes(blanks, tmp_path):
    """One of 1.2 GB takes a fraction of that, whether it is mapped or its place in the file does not let it be."""
    size = 1_200_000_000
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8 + blanks)
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    code = (
        "import resource, ckptdoctor, torch\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "report = ckptdoctor.check('model.safetensors', deep=True)\n"
        f"assert report.readings[1].complete and report.readings[1].done == {size}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 600_000  # kB


@pytest.mark.parametrize(("times", "elements"), [(1, 10_000_000), pytest.param(6, 50_000_000, marks=pytest.mark.slow)])
def test_python_ends_in_peace_after_values_were_read(times, elements, tmp_path):
    """No thread still lets go of tensors of torch when the interpreter ends right after an examination."""
    save_file({"w": torch.zeros(elements)}, tmp_path / "model.safetensors", {"format": "pt"})
    for _ in range(times):
        code = "import ckptdoctor, torch; ckptdoctor.check('model.safetensors', deep=True)"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
