"""Casting is torch's, for every number of 16 bits and for any of 32 and 64; NaN keeps its sign and payload."""

from __future__ import annotations

import struct
import subprocess
import sys
from zipfile import ZipFile

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file, save_file

from ckptdoctor.casting.arrays import array_of, widened
from ckptdoctor.casting.cast import cast, cast_array, in_pieces
from ckptdoctor.casting.proof import is_cast
from ckptdoctor.cli.main import run

TARGETS = ("float64", "float32", "float16", "bfloat16")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
EIGHT_BITS = [each for each in (*FLOAT8, "float8_e8m0fnu") if hasattr(torch, each)]
EVERY = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)


def data_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).tolist())


def cast_by_torch(numbers: torch.Tensor, target: str) -> bytes:
    """Where there is no infinity, the largest number for what is too large: older torch made NaN of it."""
    if target == "float8_e4m3fn":
        limit = torch.tensor(torch.finfo(torch.float8_e4m3fn).max, dtype=numbers.dtype)
        numbers = torch.where(numbers.abs() > limit, limit.copysign(numbers), numbers)
    return data_of(numbers.to(getattr(torch, target)))


def insist_on_torchs(tensor: torch.Tensor, target: str) -> None:
    """Each number is what ``Tensor.to`` gives, NaN being NaN; and the proof agrees."""
    source = str(tensor.dtype).removeprefix("torch.")
    data = data_of(tensor)
    made = cast(data, source, target)
    wanted = tensor.to(getattr(torch, target))
    found = torch.frombuffer(bytearray(made), dtype=wanted.dtype)
    assert torch.equal(found.isnan(), wanted.isnan())
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[found.element_size()]
    sound = ~wanted.isnan()
    assert torch.equal(found.view(kind)[sound], wanted.view(kind)[sound])
    assert is_cast(data, made, source, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_every_number_of_16_bits(source, target):
    """All 65,536 of them."""
    insist_on_torchs(EVERY.view(getattr(torch, source)), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", FLOAT8)
def test_every_number_of_8_bits(source, target):
    """All 256 of them."""
    insist_on_torchs(torch.arange(256, dtype=torch.int32).to(torch.uint8).view(getattr(torch, source)), target)


@pytest.mark.parametrize("target", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_ties_and_their_neighbours(source, target):
    """Every number half way between two of 16 bits, and the ones just above and below it."""
    finite = EVERY[EVERY >= 0].view(getattr(torch, target)).double()
    finite = finite[finite.isfinite()].sort().values
    between = ((finite[1:] + finite[:-1]) / 2).to(getattr(torch, source))
    near = [torch.nextafter(between, torch.tensor(each, dtype=between.dtype)) for each in (float("inf"), 0.0)]
    for each in (between, *near):
        insist_on_torchs(torch.cat([each, -each]), target)


@pytest.mark.parametrize("source", FLOAT8)
def test_nan_of_8_bits_has_the_bits_that_torch_gives_it(source):
    """In float32, from which the others follow."""
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(getattr(torch, source))
    assert cast(data_of(every), source, "float32") == data_of(every.float())
    assert cast(data_of(every), source, "bfloat16") == data_of(every.bfloat16())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *EIGHT_BITS])
def test_widening_is_exact(dtype):
    """Every number of a narrow dtype as float32 is the one that torch makes of it."""
    bits = EVERY if dtype in ("float16", "bfloat16") else torch.arange(256, dtype=torch.int32).to(torch.uint8)
    wanted = bits.view(getattr(torch, dtype)).float()
    found = torch.from_numpy(widened(array_of(data_of(bits), dtype), dtype))
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.view(torch.int32)[~wanted.isnan()], wanted.view(torch.int32)[~wanted.isnan()])


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50))
def test_any_number_of_32_bits(bits):
    """Any bits, NaNs and subnormal numbers among them."""
    tensor = torch.frombuffer(bytearray(struct.pack(f"<{len(bits)}I", *bits) or b"\0" * 4), dtype=torch.float32)
    for target in ("float64", "float16", "bfloat16"):
        insist_on_torchs(tensor, target)


@given(st.lists(st.floats() | st.floats(width=32) | st.floats(width=16), min_size=1, max_size=50))
def test_any_number_of_64_bits(values):
    """float64 becomes a narrow dtype by way of float32, as in torch."""
    tensor = torch.tensor(values, dtype=torch.float64)
    for target in ("float32", "float16", "bfloat16"):
        insist_on_torchs(tensor, target)


@pytest.mark.parametrize("target", ["float16", "bfloat16"])
@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-7, 1e-5, 6e-5, 1e-4, 0.02, 1.0, 3e4]),
    odd=st.sampled_from([0.0, -0.0, 65519.996, -65520.0, 1e30, float("nan"), -float("inf"), 2.0**-14, 5.9e-8]),
)
def test_many_numbers_of_one_size(target, seed, scale, odd):
    """Those of a tensor, most of them normal in the narrow dtype, some not; and one that is unlike all others."""
    source = torch.Generator().manual_seed(seed)
    numbers = torch.randn(2_000, generator=source) * scale
    ties = (numbers.to(getattr(torch, target)).float() * (1 + 2.0**-11)).clamp(-3e38, 3e38)
    insist_on_torchs(torch.cat([numbers, ties, torch.tensor([odd])]), target)
    insist_on_torchs(torch.cat([numbers, -ties]), target)


@pytest.mark.parametrize(
    ("target", "wanted"), [("bfloat16", [0x7FC0, 0x7FE0, 0xFFFF]), ("float16", [0x7E00, 0x7F00, 0xFFFF])]
)
def test_nan_keeps_sign_and_payload(target, wanted):
    """Whatever processor it runs on, and however many numbers are cast at once."""
    given_ = struct.pack("<3I", 0x7F800001, 0x7FA00000, 0xFFFFFFFF)
    assert list(struct.unpack("<3H", cast(given_, "float32", target))) == wanted
    assert cast(given_ * 1000, "float32", target) == cast(given_, "float32", target) * 1000


def test_pieces_hold_whole_numbers():
    """However the bytes are cut."""
    data = bytes(range(24))
    assert b"".join(in_pieces([data[:3], data[3:9], data[9:]], 4)) == data
    assert all(len(each) % 4 == 0 for each in in_pieces([data[:3], data[3:9], data[9:]], 4))
    with pytest.raises(ValueError, match="left over"):
        list(in_pieces([data[:3]], 4))


def test_nothing_is_nothing():
    """No bytes give no bytes."""
    assert cast(b"", "float32", "bfloat16") == b""
    assert is_cast(b"", b"", "float32", "bfloat16")


@pytest.mark.parametrize("target", EIGHT_BITS)
@given(seed=st.integers(0, 2**31))
def test_to_8_bits(target, seed):
    """Numbers of every size near those that 8 bits have, ties among them; and any bits at all."""
    source = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**31), 2**31, (1000,), generator=source).to(torch.int32)
    coarse = (torch.randint(0, 1 << 13, (3000,), generator=source) << 19).to(torch.int32)
    every = torch.cat([bits, coarse, coarse + 1, coarse - 1, -coarse]).view(torch.float32)
    every = torch.cat([every, torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])])
    assert cast_array(every.numpy(), "float32", target).tobytes() == cast_by_torch(every, target)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how other systems return memory is not known here")
def test_memory_is_not_returned_between_pieces():
    """The arrays of one piece of numbers are made of the memory of those before: no page of it is new."""
    code = (
        "import resource\n"
        "import numpy as np\n"
        "from ckptdoctor.casting.arrays import widened\n"
        "from ckptdoctor.casting.cast import cast_array\n"
        "numbers = np.arange(1 << 17, dtype=np.float32)\n"
        "def new_pages(pieces):\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(pieces):\n"
        "        np.abs(widened(cast_array(numbers, 'float32', 'bfloat16'), 'bfloat16') - numbers)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "new_pages(5)\n"
        "print(new_pages(50))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000  # 50 pieces are 14,400 pages


def test_what_is_cast_is_made_to_be_written_and_to_be_compared(tmp_path, monkeypatch):
    """Not once more for the checksum, which is known when it has been written; and that is what torch reads."""
    made = []
    monkeypatch.setattr("ckptdoctor.casting.cast.cast", lambda *given: made.append(1) or cast(*given))
    torch.save({"w": torch.randn(999), "v": torch.randn(5)}, tmp_path / "m.pt")
    assert run(["fix", str(tmp_path / "m.pt"), "--dtype", "bf16", "-o", str(tmp_path / "o.pt")]) == 0
    assert len(made) == 2 * 2
    with ZipFile(tmp_path / "o.pt") as archive:
        assert archive.testzip() is None


LARGE = 3_000_001  # numbers of which a storage is worth a thread, in any dtype of 16 bits and more


def large() -> dict[str, torch.Tensor]:
    """Tensors that are cast in threads, with special numbers where pieces begin and end, and one that is small."""
    torch.manual_seed(7)
    found = {"w": torch.randn(LARGE), "v": torch.randn(LARGE, dtype=torch.float64), "turned": torch.randn(1500, 2001).T}
    for place in (0, 1, 131_071, 131_072, 524_287, 524_288, 1_048_575, 1_048_576, LARGE - 1):
        found["w"][place] = (3.3e38, -0.0, 1e-45, 65_519.9, 65_520.0, 2.0**-24, 1.00390625, -1e-8, 7.0)[place % 9]
    return {**found, "small": torch.randn(3)}


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_large_tensors_are_cast_as_small_ones(kind, name, dtype, tmp_path):
    """In threads, and as torch casts them; the checksums of the archive are right."""
    old = large()
    if kind == "pt":
        torch.save(old, tmp_path / "m.pt")
    else:
        save_file({key: value.contiguous() for key, value in old.items()}, tmp_path / "m.safetensors")
    words = ["fix", str(tmp_path / f"m.{kind}"), "--dtype", name, "--unsafe-fixes", "-o", str(tmp_path / f"o.{kind}")]
    assert run(words) == 0
    new = torch.load(tmp_path / "o.pt") if kind == "pt" else load_file(tmp_path / "o.safetensors")
    for key, value in old.items():
        wanted = value.float().to(dtype) if value.dtype is torch.float64 else value.to(dtype)
        assert torch.equal(new[key].contiguous().view(torch.int16), wanted.contiguous().view(torch.int16)), key
    if kind == "pt":
        with ZipFile(tmp_path / "o.pt") as archive:
            assert archive.testzip() is None


def test_a_wrong_number_deep_in_a_large_tensor_is_found(tmp_path, monkeypatch, capsys):
    """One bit of one number, made wrong in the same way each time, so that only the proof can tell."""
    torch.save(large(), tmp_path / "m.pt")
    place = large()["w"][2_000_000].to(torch.bfloat16).view(torch.int16).item().to_bytes(2, "little", signed=True)

    def wrongly(*given):
        made = cast(*given)
        at = made.find(place) if len(made) > 1000 else -1
        return made if at < 0 else made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]

    monkeypatch.setattr("ckptdoctor.casting.cast.cast", wrongly)
    assert run(["fix", str(tmp_path / "m.pt"), "--dtype", "bf16", "-o", str(tmp_path / "o.pt")]) == 1
    assert "is not the nearest one that bfloat16 has" in capsys.readouterr().out
    assert [each.name for each in tmp_path.iterdir()] == ["m.pt"]
