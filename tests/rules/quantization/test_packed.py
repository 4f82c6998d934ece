"""Q951, Q952, Q953 and Q956: the names, dtypes and shapes that libraries write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.edits import Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import T
from ckptdoctor.target.mapping import as_reference
from tests.repair.test_dequantizing import four, plain_of_four
from tests.rules import nouns
from tests.work import growth

STATE = "quant_state.bitsandbytes__nf4"
LAYER = "model.layers.0.mlp.down_proj"


def packed(inputs: int, outputs: int, bits: int, group: int, *, awq: bool = False, g_idx: bool = True) -> dict[str, T]:
    """A layer as AutoGPTQ and GPTQModel pack it (``QuantLinear``), or AutoAWQ (``WQLinear_GEMM``)."""
    groups = inputs // group if group > 0 else 1
    made = {
        f"{LAYER}.qzeros": T((groups, outputs * bits // 32), "int32"),
        f"{LAYER}.scales": T((groups, outputs), "float16"),
    }
    if awq:
        return {f"{LAYER}.qweight": T((inputs, outputs * bits // 32), "int32"), **made}
    order = {f"{LAYER}.g_idx": T((inputs,), "int32")} if g_idx else {}
    return {f"{LAYER}.qweight": T((inputs * bits // 32, outputs), "int32"), **made, **order}


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (packed(11008, 4096, 4, 128), "1 layer is GPTQ, 4 bits, groups of 128, with g_idx"),
        (packed(11008, 4096, 4, 128, g_idx=False), "1 layer is GPTQ, 4 bits, groups of 128, without g_idx"),
        (packed(4096, 4096, 4, -1), "1 layer is GPTQ, 4 bits, one group for each output, with g_idx"),
        (packed(4096, 4096, 8, 32), "1 layer is GPTQ, 8 bits, groups of 32, with g_idx"),
        (packed(4096, 4096, 3, 128), "1 layer is GPTQ, 3 bits, groups of 128, with g_idx"),
        (packed(4096, 4096, 2, 64), "1 layer is GPTQ, 2 bits, groups of 64, with g_idx"),
        (packed(4096, 11008, 4, 128, awq=True), "1 layer is AWQ, 4 bits, groups of 128"),
        (packed(4096, 1024, 4, 64, awq=True), "1 layer is AWQ, 4 bits, groups of 64"),
    ],
)
def test_shapes_tell_bits_and_groups(layer: dict[str, object], said: str) -> None:
    """By itself the file is as it should be."""
    [found] = nouns.findings("Q953", layer)
    assert (found.message, found.severity, found.fix) == (said, Severity.INFO, None)


def test_layers_of_several_kinds_are_counted() -> None:
    """The most common kind comes first."""
    other = {key.replace("layers.0", f"layers.{number}"): each for number in (1, 2) for key, each in PACKED.items()}
    [found] = nouns.findings("Q953", {**packed(4096, 4096, 8, 32), **other})
    assert found.message == (
        "3 layers are quantised: 2 GPTQ, 4 bits, groups of 128, with g_idx and 1 GPTQ, 8 bits, groups of 32, with g_idx"
    )


PACKED = packed(4096, 4096, 4, 128)


def test_a_config_that_does_not_say_so(tmp_path: Path) -> None:
    """The finding gives the quantization_config that is missing."""
    save_file(
        {key: torch.zeros(each.shape, dtype=getattr(torch, each.dtype)) for key, each in packed(64, 32, 4, 32).items()},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    for config, severity in (({}, Severity.WARNING), ({"quantization_config": {}}, Severity.INFO)):
        (tmp_path / "config.json").write_text(json.dumps(config))
        report = check(str(tmp_path / "model.safetensors"))
        [found] = [each for each in report.findings if each.code == "Q953"]
        assert found.severity is severity
        wanted = '"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false}'
        assert (wanted in found.advice) == (severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("weight", "scale", "said"),
    [
        (T((7168, 2048), "float8_e4m3fn"), {"weight_scale_inv": T((56, 16))}, "a scale for each block of 128 × 128"),
        (T((576, 7168), "float8_e4m3fn"), {"weight_scale_inv": T((5, 56))}, "a scale for each block of 128 × 128"),
        (T((64, 32), "float8_e4m3fn"), {"weight_scale": T((64, 1), "bfloat16")}, "a scale for each row"),
        (T((64, 32), "float8_e4m3fn"), {"weight_scale": T(()), "input_scale": T(())}, "one scale for each weight"),
        (T((64, 32), "float8_e4m3fn"), {"scale_weight": T((1,)), "scale_input": T((1,))}, "one scale for each weight"),
    ],
)
def test_float8_says_its_block(weight: T, scale: dict[str, T], said: str) -> None:
    """DeepSeek, compressed-tensors, ModelOpt and ComfyUI, by the shape of the scale."""
    [found] = nouns.findings("Q956", {"fc.weight": weight, **{f"fc.{key}": each for key, each in scale.items()}})
    assert found.message == f"1 layer is float8_e4m3fn, {said}"
    assert found.severity is Severity.INFO


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        ({"weight": T((64, 32), "uint8"), "weight_scale": T((64, 4), "float8_e4m3fn"),
          "weight_scale_2": T(())}, "nvfp4"),
        ({"weight_packed": T((64, 32), "uint8"), "weight_scale": T((64, 4), "float8_e4m3fn"),
          "weight_global_scale": T((1,))}, "nvfp4"),
        ({"weight_packed": T((64, 8), "int32"), "weight_scale": T((64, 1), "bfloat16"),
          "weight_shape": T((2,), "int64")}, "packed integers"),
        ({"experts_blocks": T((4, 64, 2, 16), "uint8"), "experts_scales": T((4, 64, 2), "uint8")}, "mxfp4"),
    ],
)  # fmt: skip
def test_four_bits_are_named(layer: dict[str, T], kind: str) -> None:
    """NVFP4 of ModelOpt and compressed-tensors, packed integers, MXFP4 of gpt-oss."""
    [found] = nouns.findings("Q956", {f"fc.{key}": each for key, each in layer.items()})
    assert found.message == f"1 layer is {kind}"


def test_scales_of_something_else_are_no_quantisation() -> None:
    """A float weight with a scale, an int8 buffer, a block of a residual network."""
    healthy = {
        "fc.weight": T((4, 4)), "fc.weight_scale": T((4, 1)), "mask": T((4, 4), "int8"), "logit_scale": T(()),
        "down_blocks": T((4,)), "net.scales": T((4,)),
    }  # fmt: skip
    for rule in ("Q951", "Q952", "Q953", "Q956"):
        assert nouns.findings(rule, healthy) == []


def test_zero_points_are_left_to_their_library() -> None:
    """Nothing is computed of a weight that means something else."""
    layer = {
        "fc.weight": T((8, 4), "int8"), "fc.weight_scale": T((8, 1)), "fc.weight_zero_point": T((8, 1), "int8"),
    }  # fmt: skip
    [found] = nouns.findings("Q956", layer, {"fc.weight": T((8, 4))})
    assert found.fix is None
    assert "1 weight cannot be computed (fc.weight)" in found.advice


def test_bitsandbytes_says_its_blocks() -> None:
    """Single and double quantisation, as transformers saves it."""
    state = {f"{LAYER}.weight{key[1:]}": each for key, each in nouns.described(four((64, 96), True)).items()}
    [found] = nouns.findings("Q951", {"model": state})
    assert found.message == "1 layer is bitsandbytes nf4, blocks of 64, double quantised in model"
    assert found.severity is Severity.INFO


class Net(torch.nn.Module):
    """Two layers, of which one is quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.norm = torch.nn.Linear(96, 64, bias=False), torch.nn.LayerNorm(64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_four_bits_for_a_plain_model(tmp_path: Path, dtype: torch.dtype) -> None:
    """Torch's words, one finding for all keys, and weights that the plain model loads."""
    state = {f"w.weight{key[1:]}": each for key, each in four((64, 96), True).items()}
    model = Net().to(dtype)
    save_file({**state, **model.norm.state_dict(prefix="norm.")}, tmp_path / "q.safetensors", {"format": "pt"})
    reference = as_reference(model)
    report = check(str(tmp_path / "q.safetensors"), reference=reference)
    [found] = [each for each in report.findings if each.code == "Q951"]
    words = nouns.torch_error(model, load_file(tmp_path / "q.safetensors"))
    assert found.severity is Severity.ERROR
    assert found.torch_says[-1] in words
    assert found.fix is not None and found.fix.safety is Safety.UNSAFE
    request = FixRequest(str(tmp_path / "q.safetensors"), auto=True, reference=reference, unsafe=True)
    fixed = load_file(repair(plan(request)).plan.output)
    model.load_state_dict(fixed)
    exact = plain_of_four({key.replace("w.weight", "w"): each for key, each in state.items()}, (64, 96))
    assert torch.equal(fixed["w.weight"], exact.to(dtype))


def test_int8_for_a_plain_model(tmp_path: Path) -> None:
    """The weight has its shape, so that ``strict=False`` takes whole numbers for weights: an error."""
    plain = {"fc.weight": torch.randn(6, 4), "fc.bias": torch.zeros(6)}
    scb = plain["fc.weight"].abs().amax(1)
    numbers = (plain["fc.weight"] * 127 / scb[:, None]).round().to(torch.int8)
    state = {
        "fc.weight": numbers, "fc.SCB": scb, "fc.weight_format": torch.tensor(0, dtype=torch.uint8),
        "fc.bias": plain["fc.bias"],
    }  # fmt: skip
    [found] = nouns.findings("Q952", nouns.described(state), nouns.described(plain))
    assert found.severity is Severity.ERROR
    torch.save({"model": state}, tmp_path / "q.pt")
    torch.save({"model": plain}, tmp_path / "plain.pt")
    reference = as_reference(plain)
    request = FixRequest(str(tmp_path / "q.pt"), auto=True, reference=reference, unsafe=True)
    fixed = torch.load(repair(plan(request)).plan.output)
    fixed = fixed.get("model", fixed)
    assert list(fixed) == ["fc.weight", "fc.bias"]
    assert torch.allclose(fixed["fc.weight"], plain["fc.weight"], atol=float(scb.max()) / 127)
    assert torch.equal(fixed["fc.weight"], (numbers.double() * scb.double()[:, None] / 127).float())


@pytest.mark.slow
def test_many_layers_take_no_longer_than_they_have_to() -> None:
    """No loop of keys over keys."""

    def find(layers: int) -> None:
        state = {f"layers.{n}.{key}": each for n in range(layers) for key, each in DEEPSEEK.items()}
        plain = {key: T(each.shape) for key, each in state.items() if not key.endswith("scale_inv")}
        [found] = nouns.findings("Q956", state, plain)
        assert f"{layers:,} layers" in found.message

    assert growth(find, 400, 4_000) < 40


DEEPSEEK = {
    "weight": T((256, 128), "float8_e4m3fn"), "weight_scale_inv": T((2, 1)), "norm.weight": T((4,)), "bias": T((2,)),
}  # fmt: skip
