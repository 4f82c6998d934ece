"""Each byte is read once, whatever the layout, and values are those that the file means: other byte orders, scales."""

from __future__ import annotations

import json
import struct
import warnings
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.values.reading import one, saved, values_in
from tests.values.test_statistics import holds


@pytest.fixture(autouse=True)
def _quiet():
    """torch warns of every quantized and every compressed sparse tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize(
    ("make", "nbytes"),
    [
        (lambda: {"w": torch.randn(100, 30)}, 12_000),
        (lambda: {"w": torch.randn(100, 30).t()}, 12_000),
        (lambda: {"w": torch.randn(100, 30)[::2]}, 6_000),
        (lambda: {"w": torch.randn(1, 30).expand(100, 30)}, 120),
        (lambda: dict.fromkeys(("a", "b", "c"), torch.randn(100, 30)), 12_000),
        (lambda: {"w": torch.eye(40).to_sparse()}, 160),
        (lambda: {"w": torch.eye(40).to_sparse_csr()}, 160),
        (lambda: {"w": torch.zeros(7, dtype=torch.complex64)}, 56),
        (lambda: {"w": torch.quantize_per_tensor(torch.randn(50, 20), 0.1, 0, torch.qint8)}, 1_000),
    ],
    ids=["plain", "transposed", "strided", "expanded", "tied", "coo", "csr", "complex", "quantized"],
)
def test_bytes_that_are_looked_at(tmp_path, make, nbytes):
    """As many as there are numbers to look at: elements that are one count once, and zeros that are not there never.

    Quantized numbers are counted as the float64 that they stand for.
    """
    values = values_in(saved(tmp_path, make()))
    assert values.read == nbytes
    assert values.skipped == ()


BIG = ["<f8", ">f8", ">f4", ">f2", ">i8", ">i4", ">i2", ">u2", ">c8", ">c16"]


@pytest.mark.parametrize("dtype", BIG)
def test_numpy_files_of_the_other_byte_order(tmp_path, dtype):
    """Bytes are swapped before they are numbers."""
    np.random.seed(0)
    array = (np.random.randn(3_000) * 50).astype(dtype)
    np.save(tmp_path / "w.npy", array)
    (found,) = values_in(tmp_path / "w.npy").tensors.values()
    holds(found, torch.from_numpy(array.astype(np.dtype(dtype).newbyteorder("="))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float64], ids=str)
def test_torch_files_of_big_endian_machines(tmp_path, dtype):
    """The record that says so is believed."""
    tensor = (torch.randn(2_000) * 50).to(dtype)
    path = saved(tmp_path, {"w": tensor})
    swapped = tmp_path / "big.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(swapped, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name:
                data = np.frombuffer(data, f"V{tensor.element_size()}").tobytes()
                data = np.frombuffer(data, np.uint8).reshape(-1, tensor.element_size())[:, ::-1].tobytes()
            new.writestr(name, data)
    holds(values_in(swapped).tensors[("w",)], tensor)


@pytest.mark.parametrize("kind", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_quantized_numbers_are_those_of_float64(tmp_path_factory, kind):
    """Every scale and zero point, of the tensor or of each channel: (number - zero point) * scale in float64."""
    folder = tmp_path_factory.mktemp("quantized")

    @settings(deadline=None, max_examples=15)
    @given(st.integers(0, 2**31), st.floats(1e-4, 10.0), st.integers(0, 60), st.integers(0, 1), st.booleans())
    def holds(seed, scale, zero, axis, channels):
        torch.manual_seed(seed)
        real = torch.randn(12, 9) * 20 * scale
        if channels:
            scales = torch.rand(real.shape[axis], dtype=torch.float64) * scale + 1e-4
            zeros = torch.randint(0, 60, (real.shape[axis],))
            tensor = torch.quantize_per_channel(real, scales, zeros, axis, kind)
            shape = [-1 if at == axis else 1 for at in range(2)]
            exact = (tensor.int_repr().double() - zeros.double().view(shape)) * scales.view(shape)
        else:
            tensor = torch.quantize_per_tensor(real, scale, zero, kind)
            exact = (tensor.int_repr().double() - tensor.q_zero_point()) * tensor.q_scale()
        found = one(folder, tensor)
        assert (found.count, found.zeros) == (exact.numel(), int((exact == 0).sum()))
        assert (found.min, found.max) == (exact.min().item(), exact.max().item())
        assert found.mean == pytest.approx(exact.mean().item(), abs=1e-9 * found.absmax)
        assert found.norm == pytest.approx(exact.norm().item(), rel=1e-9)

    holds()


@pytest.mark.parametrize("name", ["F8_E8M0", "F4", "F6_E2M3", "F6_E3M2"])
def test_small_floats_of_safetensors(tmp_path, name):
    """Scales of 8 bits are read; what is packed is left out with a reason, and the rest is read."""
    data = bytes(range(1, 13)) + struct.pack("<3f", 1.0, float("nan"), 3.0)
    numbers = {"F8_E8M0": 12, "F4": 24, "F6_E2M3": 16, "F6_E3M2": 16}[name]
    header = json.dumps(
        {
            "packed": {"dtype": name, "shape": [numbers], "data_offsets": [0, 12]},
            "w": {"dtype": "F32", "shape": [3], "data_offsets": [12, 24]},
        }
    ).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    values = values_in(tmp_path / "m.safetensors")
    assert (values.tensors[("w",)].nan, values.tensors[("w",)].max) == (1, 3.0)
    if name == "F8_E8M0":
        assert values.tensors[("packed",)].max == 2.0 ** (12 - 127)
    else:
        assert [each.path for each in values.skipped] == [("packed",)]
        assert "packed" in values.skipped[0].reason
