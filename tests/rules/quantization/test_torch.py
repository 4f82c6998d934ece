"""Q954 and Q955: what ``torch.ao.quantization`` itself writes, eager and FX."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.edits import Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import T
from ckptdoctor.target.mapping import as_reference
from tests.rules import nouns

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch.ao.quantization as quantization
    from torch.ao.quantization import quantize_fx


@pytest.fixture(autouse=True)
def deprecated() -> Iterator[None]:
    """Torch says that its quantisation moves to torchao; files of it stay."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Net(nn.Module):
    """A convolution and a linear layer, with the stubs of eager mode."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 6)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Means of channels."""
        return self.dequant(self.fc(torch.relu(self.conv(self.quant(images))).mean((2, 3))))


IMAGES = torch.randn(2, 1, 8, 8)


def prepared(training: bool = False) -> nn.Module:
    """With observers; when training with fake quantisation as well."""
    model = Net().train(training)
    choose = quantization.get_default_qat_qconfig if training else quantization.get_default_qconfig
    model.qconfig = choose("fbgemm")
    made = (quantization.prepare_qat if training else quantization.prepare)(model)
    made(IMAGES)
    return made


def eager() -> nn.Module:
    """Converted."""
    return quantization.convert(prepared())


def traced() -> nn.Module:
    """Converted by FX."""
    mapping = quantization.get_default_qconfig_mapping("fbgemm")
    made = quantize_fx.prepare_fx(Net().eval(), mapping, (IMAGES,))
    made(IMAGES)
    return quantize_fx.convert_fx(made)


def dynamic() -> nn.Module:
    """Only the linear layer."""
    return quantization.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.qint8)


def dequantized(model: nn.Module) -> dict[str, torch.Tensor]:
    """The plain weights, as torch makes them."""
    conv, fc = model.conv, model.fc
    fc_weight, fc_bias = fc._packed_params._weight_bias()
    conv_weight = conv.weight() if callable(conv.weight) else conv.weight
    bias = conv.bias() if callable(conv.bias) else conv.bias
    plain = conv_weight.dequantize() if conv_weight.is_quantized else conv_weight
    return {"conv.weight": plain, "conv.bias": bias, "fc.weight": fc_weight.dequantize(), "fc.bias": fc_bias}


@pytest.mark.parametrize("make", [eager, traced, dynamic])
def test_plain_weights_out_of_quantised_ones(tmp_path: Path, make) -> None:
    """One finding, an unsafe fix, and a file that the float model loads, with the values of ``dequantize()``."""
    model = make()
    path = tmp_path / "q.pt"
    torch.save(model.state_dict(), path)
    reference = as_reference(Net())
    [alone] = [each for each in check(str(path)).findings if each.code == "Q954"]
    assert (alone.severity, alone.fix) == (Severity.INFO, None)
    [found] = [each for each in check(str(path), reference=reference).findings if each.code == "Q954"]
    assert found.severity is Severity.ERROR
    assert found.fix is not None and found.fix.safety is Safety.UNSAFE
    outcome = repair(plan(FixRequest(str(path), auto=True, reference=reference, unsafe=True)))
    fixed = torch.load(outcome.plan.output, weights_only=True)
    Net().load_state_dict(fixed)
    for key, wanted in dequantized(model).items():
        assert torch.allclose(fixed[key], wanted, rtol=2e-7, atol=0), key


def test_scalars_of_one_scale(tmp_path: Path) -> None:
    """A tensor with one scale and a zero point, and an embedding's with float zero points."""
    values = torch.randn(6, 4)
    made = torch.quantize_per_tensor(values, 0.03, 7, torch.quint8)
    floats = torch.quantize_per_channel(values, torch.rand(6) + 0.1, torch.rand(6), 0, torch.quint8)
    torch.save({"fc.weight": made, "emb.weight": floats}, tmp_path / "q.pt")
    reference = as_reference({"fc.weight": values, "emb.weight": values})
    outcome = repair(plan(FixRequest(str(tmp_path / "q.pt"), auto=True, reference=reference, unsafe=True)))
    fixed = torch.load(outcome.plan.output, weights_only=True)
    assert torch.allclose(fixed["fc.weight"], made.dequantize(), rtol=2e-7)
    assert torch.allclose(fixed["emb.weight"], floats.dequantize(), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("training", [False, True])
def test_observers_go_where_the_target_has_none(tmp_path: Path, training: bool) -> None:
    """Confirmed by the target; weights stay bit for bit."""
    state = prepared(training).state_dict()
    path = tmp_path / "qat.pt"
    torch.save(state, path)
    reference = as_reference(Net())
    [alone] = [each for each in check(str(path)).findings if each.code == "Q955"]
    assert (alone.severity, alone.fix) == (Severity.INFO, None)
    [found] = [each for each in check(str(path), reference=reference).findings if each.code == "Q955"]
    assert found.fix is not None and found.fix.safety is Safety.CONFIRMED
    fixed = torch.load(repair(plan(FixRequest(str(path), auto=True, reference=reference))).plan.output)
    Net().load_state_dict(fixed)
    assert all(torch.equal(fixed[key], state[key]) for key in fixed)


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("conv.activation_post_process.min_val", True),
        ("activation_post_process_12.histogram", True),
        ("conv.weight_fake_quant.scale", True),
        ("layers.0.attn.q_proj.weight_fake_quantizer.scale", True),
        ("fake_quant_enabled", True),
        ("conv.scale", False),
        ("post_process.weight", False),
        ("my_activation_post_process.weight", False),
    ],
)
def test_what_is_called_like_an_observer(key: str, answer: bool) -> None:
    """Whole tokens only."""
    plain = {"conv.weight": T((2, 2)), "fc.weight": T((2, 2))}
    found = nouns.findings("Q955", {**plain, key: T((1,))}, plain)
    assert [each.keys for each in found] == ([((key,),)] if answer else [])
