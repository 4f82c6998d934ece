"""Plain weights that are computed of quantised ones, in real files, and held against torch in double precision."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch

from ckptdoctor.edits import Dequantize
from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.formats.elements.quantization import numbers
from ckptdoctor.prove.quantization import require_dequantized
from tests.dtypes import known
from tests.repair.applying import repaired
from tests.repair.arranging import FORMATS, edited, loaded, written

TARGETS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]
SCALED = ("w", "s")


def name(dtype: torch.dtype) -> str:
    """Without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def ulps(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest distance in units in the last place, of a weight and of what it should be, where that is finite."""
    wide = other.double()
    assert torch.equal(one.isnan(), wide.to(one.dtype).isnan())
    fine = wide.to(one.dtype).isfinite()
    assert torch.equal(one[~fine].nan_to_num(), wide.to(one.dtype)[~fine].nan_to_num())
    if not fine.any():
        return 0.0
    unit = torch.finfo(one.dtype).eps * 2.0 ** wide.abs().clamp_min(torch.finfo(one.dtype).tiny).log2().floor()
    return ((one.double() - wide).abs() / unit)[fine].max().item()


def spread(scale: torch.Tensor, shape: tuple[int, ...], block: tuple[int, int]) -> torch.Tensor:
    """A scale for each number, as torch's own ``repeat_interleave`` gives it."""
    if scale.numel() == 1:
        return scale.reshape(()).expand(shape)
    rows, columns = block[0] or shape[-2], block[1] or shape[-1]
    wide = scale.reshape(*shape[:-2], math.ceil(shape[-2] / rows), math.ceil(shape[-1] / columns))
    return wide.repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., : shape[-2], : shape[-1]]


@pytest.mark.parametrize("dtype", [*FLOAT8, *known("float8_e8m0fnu", "int8", "uint8")], ids=str)
def test_every_code_is_the_number_that_torch_says(dtype: torch.dtype) -> None:
    """All 256 of them, not a number included."""
    theirs = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    ours = torch.tensor(numbers(name(dtype)), dtype=torch.float64)
    assert torch.equal(ours.nan_to_num(nan=-1.0), theirs.nan_to_num(nan=-1.0))
    assert torch.equal(ours.isnan(), theirs.isnan())


@FORMATS
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(
    ("shape", "scale", "block"),
    [
        ((256, 384), (2, 3), (128, 128)),
        ((300, 200), (3, 2), (128, 128)),
        ((60, 70), (60, 1), (1, 0)),
        ((60, 700), (60,), (1, 0)),
        ((60, 70), (), (0, 0)),
        ((60, 70), (1,), (0, 0)),
        ((64, 96), (64, 3), (1, 32)),
        ((3, 128, 256), (3, 1, 2), (0, 128)),
        ((3, 128, 64), (3, 128, 1), (1, 0)),
        ((0, 4), (0, 1), (1, 0)),
    ],
    ids=str,
)
def test_scales_of_blocks_rows_and_tensors(tmp_path: Path, suffix: str, target, shape, scale, block):
    """Rounded once from double precision, in both containers, with everything around it unchanged."""
    torch.manual_seed(1)
    weight = torch.randn(shape).to(torch.float8_e4m3fn)
    scales = torch.rand(scale) * 3e-3 + 1e-4
    contents = {"a": torch.ones(3, dtype=torch.bfloat16), "w": weight, "s": scales, "z": torch.ones(5).half()}
    edit = Dequantize((("w",), ("s",)), "w", "scaled", name(target), block=block)
    result = edited(contents, tmp_path, suffix, edit)
    assert set(result) == {"a", "w", "z"}
    assert (result["w"].dtype, tuple(result["w"].shape)) == (target, shape)
    assert torch.equal(result["a"], contents["a"]) and torch.equal(result["z"], contents["z"])
    exact = weight.double() * spread(scales.double(), shape, block)
    assert not exact.numel() or ulps(result["w"], exact) <= 0.5001
    if exact.numel() and target is torch.float32:  # as DeepSeek's weight_dequant multiplies
        assert torch.equal(result["w"], weight.float() * spread(scales, shape, block))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_float8(tmp_path: Path, dtype: torch.dtype):
    """All codes of each format, infinite ones and those that are no number included."""
    weight = torch.arange(256, dtype=torch.uint8).repeat(4, 4).view(dtype)
    scales = torch.tensor([1.0, 3.1e-3, 7e5, -2.0])
    edit = Dequantize((("w",), ("s",)), "w", "scaled", "bfloat16", block=(1, 0))
    result = edited({"w": weight, "s": scales}, tmp_path, ".safetensors", edit)["w"]
    assert ulps(result, weight.double() * scales.double()[:, None]) <= 0.5001


@FORMATS
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (70, 1000), (3, 70000)], ids=str)
def test_int8_of_bitsandbytes(tmp_path: Path, suffix: str, target, shape):
    """``weight * SCB / 127``, as ``int8_vectorwise_dequant`` has it."""
    torch.manual_seed(2)
    plain = torch.randn(shape)
    scb = plain.abs().amax(1)
    weight = (plain * 127 / scb[:, None]).round().to(torch.int8)
    contents = {"fc.weight": weight, "fc.SCB": scb, "fc.weight_format": torch.tensor(0, dtype=torch.uint8)}
    edit = Dequantize(tuple([(key,) for key in contents]), "fc.weight", "int8", name(target), block=(1, 0))
    result = edited({**contents, "fc.bias": torch.ones(3).half()}, tmp_path, suffix, edit)
    assert list(result) == ["fc.weight", "fc.bias"] or suffix == ".safetensors"
    assert ulps(result["fc.weight"], weight.double() * scb.double()[:, None] / 127) <= 0.5001
    assert torch.allclose(result["fc.weight"].float(), plain, atol=float(scb.max() / 127))


def test_rows_in_another_order_are_refused(tmp_path: Path):
    """``weight_format`` 2 is col_turing, which is no matrix in C order; nothing is written."""
    contents = {"w": torch.ones(4, 4, dtype=torch.int8), "s": torch.ones(4), "f": torch.tensor(2, dtype=torch.uint8)}
    path = written(contents, tmp_path, ".pt")
    with pytest.raises(RefusedError, match="weight_format"):
        repaired(path, [Dequantize((("w",), ("s",), ("f",)), "w", "int8", "float16", block=(1, 0))])
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


def four(shape: tuple[int, ...], nested: bool, blocksize: int = 64, seed: int = 0) -> dict[str, torch.Tensor]:
    """A weight as ``Linear4bit`` of bitsandbytes saves it (``QuantState.as_dict(packed=True)``), of random values."""
    torch.manual_seed(seed)
    count = math.prod(shape)
    blocks = math.ceil(count / blocksize)
    said = {"quant_type": "nf4", "blocksize": blocksize, "dtype": "bfloat16", "shape": list(shape)}
    made = {
        "w": torch.randint(0, 256, ((count + 1) // 2, 1), dtype=torch.uint8),
        "w.absmax": torch.rand(blocks),
        "w.quant_map": torch.tensor(NF4),
    }
    if nested:
        made["w.absmax"] = torch.randint(0, 256, (blocks,), dtype=torch.uint8)
        made["w.nested_absmax"] = torch.rand(math.ceil(blocks / 256))
        made["w.nested_quant_map"] = torch.rand(256) - 0.5
        said |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0371}
    state = torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)
    return {**made, "w.quant_state.bitsandbytes__nf4": state}


def plain_of_four(state: dict[str, torch.Tensor], shape: tuple[int, ...], blocksize: int = 64) -> torch.Tensor:
    """The weight in double precision: the upper four bits of a byte come first."""
    packed = state["w"].flatten().long()
    codes = torch.stack([packed >> 4, packed & 15], 1).flatten()[: math.prod(shape)]
    absmax = state["w.absmax"].double()
    if "w.nested_absmax" in state:
        outer = state["w.nested_absmax"].double().repeat_interleave(256)[: len(absmax)]
        absmax = state["w.nested_quant_map"].double()[state["w.absmax"].long()] * outer + 0.0371
    scales = absmax.repeat_interleave(blocksize)[: len(codes)]
    return (state["w.quant_map"].double()[codes] * scales).reshape(shape)


def edit_of_four(state: dict[str, torch.Tensor], shape: tuple[int, ...], target: str) -> Dequantize:
    """The edit for a weight called ``w``."""
    order = ["w", "w.absmax", "w.quant_map", "w.quant_state.bitsandbytes__nf4", "w.nested_absmax", "w.nested_quant_map"]
    return Dequantize(tuple([(key,) for key in order if key in state]), "w", "four-bit", target, shape=shape)


@pytest.mark.parametrize("suffix", [".pt", pytest.param(".safetensors", marks=pytest.mark.slow)])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("shape", [(64, 96), (33, 7), (500, 700)], ids=str)
def test_four_bits_of_bitsandbytes(tmp_path: Path, suffix: str, nested: bool, shape):
    """Single and double quantisation, with blocks that end inside a row."""
    state = four(shape, nested)
    for target in TARGETS[1:]:
        result = edited(state, tmp_path, suffix, edit_of_four(state, shape, name(target)))
        assert list(result) == ["w"]
        assert ulps(result["w"], plain_of_four(state, shape)) <= 0.5001


def test_the_upper_half_of_a_byte_comes_first(tmp_path: Path):
    """Bytes 6e 5a … are the values number 6, 14, 5 and 10, times absmax."""
    state = four((1, 16), False)
    codes = "6e5a582ce4a30919"
    state["w"] = torch.tensor(list(bytes.fromhex(codes)), dtype=torch.uint8)[:, None]
    state["w.absmax"] = torch.tensor([0.03125])
    result = edited(state, tmp_path, ".safetensors", edit_of_four(state, (1, 16), "float32"))["w"]
    assert torch.equal(result[0], torch.tensor([NF4[int(code, 16)] for code in codes]) * 0.03125)


def test_a_quant_state_of_another_weight_is_refused(tmp_path: Path):
    """What the JSON says has to be what the tensors are."""
    state = four((64, 96), False)
    for broken in (b"{", b"[]", b'{"blocksize": 64, "shape": [96, 64]}', b'{"blocksize": 32, "shape": [64, 96]}'):
        state["w.quant_state.bitsandbytes__nf4"] = torch.tensor(list(broken), dtype=torch.uint8)
        path = written(state, tmp_path, ".pt")
        with pytest.raises(RefusedError, match="quant_state"):
            repaired(path, [edit_of_four(state, (64, 96), "float32")])


@pytest.mark.parametrize(
    ("contents", "edit", "words"),
    [
        ({"w": torch.ones(4, 4), "s": torch.ones(4)}, {}, "cannot be computed"),
        ({"w": torch.ones(4, 4).to(torch.int8), "s": torch.ones(3)}, {"block": (1, 0)}, "its scales are"),
        ({"w": torch.ones(4, 4).to(torch.int8), "s": torch.ones(4).int()}, {"block": (1, 0)}, "has scales of int32"),
        (
            {"w": torch.ones(4, 4).to(torch.int8), "s": torch.ones(4)},
            {"dtype": "int8"},
            "is not part of a computable weight",
        ),
        (
            {"w": torch.ones(4, 4).to(torch.int8), "s": torch.ones(4)},
            {"scheme": "other"},
            "is not part of a computable weight",
        ),
    ],
)
def test_what_is_not_quantised_so_is_refused(tmp_path: Path, contents, edit, words):
    """In a sentence."""
    asked = {"scheme": "scaled", "dtype": "float16", **edit}
    with pytest.raises(RefusedError, match=words):
        repaired(written(contents, tmp_path, ".pt"), [Dequantize((("w",), ("s",)), "w", **asked)])


@pytest.mark.parametrize("kind", ["scaled", "int8", "four-bit"])
def test_the_proof_sees_a_wrong_weight(tmp_path: Path, kind: str):
    """One number that is two units off is enough, in any place."""
    if kind == "four-bit":
        state = four((6, 50), True)
        edit = edit_of_four(state, (6, 50), "float32")
    else:
        torch.manual_seed(3)
        values = torch.randn(6, 50) * 20
        state = {"w": values.to(torch.int8 if kind == "int8" else torch.float8_e5m2), "s": torch.rand(6) + 0.1}
        edit = Dequantize((("w",), ("s",)), "w", kind, "float32", block=(1, 0))
    outcome = repaired(written(state, tmp_path, ".pt"), [edit])
    (weights,) = outcome.plan.wanted.remade.values()
    tensors = [state[str(path[-1])] for path in edit.paths]
    given = {part: each.view(torch.uint8).numpy().tobytes() for part, each in zip(weights.parts, tensors, strict=True)}
    good = loaded(outcome.plan.output)["w"]

    def judge(tensor: torch.Tensor) -> None:
        data = tensor.contiguous().numpy().tobytes()
        require_dequantized(weights, lambda part: iter([given[part]]), lambda at, length: data[at : at + length])

    judge(good)
    nonzero = [index for index in range(good.numel()) if good.view(-1)[index]]
    for index in random.Random(1).sample(nonzero, 60):
        bad = good.clone()
        bad.view(-1)[index] *= 1 + 4e-7
        with pytest.raises(WriteError, match="does not match its scale"):
            judge(bad)
