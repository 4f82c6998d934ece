"""T551, T553, T556, T557, T558 and T559: dtypes that are worth a word, and many that are not."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from tests.libraries import real, transformers
from tests.rules.examined import found, loads

CODES = ("T551", "T553", "T556", "T557", "T558", "T559")


def net():
    """Two layers and a norm."""
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))


def test_half_of_a_model(tmp_path):
    """A head that was left alone: torch says the quoted line when it comes to it."""
    model = net().half()
    model[2].float()
    torch.save(model.state_dict(), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T551")
    assert finding.severity is Severity.INFO
    assert finding.keys == (("2.weight",),)
    with pytest.raises(RuntimeError) as caught:
        torch.nn.functional.linear(torch.ones(2, 32), torch.ones(4, 32).half(), torch.ones(4).half())
    assert finding.torch_says[0] in str(caught.value)


def test_norms_in_float32_are_meant(tmp_path):
    """What mixed precision keeps is no mixture."""
    model = net().bfloat16()
    model[1].float()
    torch.save(model.state_dict(), tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "T551") == []


def test_weights_of_numpy(tmp_path):
    """float64, with the line that a layer of float32 says."""
    torch.save(net().double().state_dict(), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T553")
    assert finding.severity is Severity.INFO
    assert finding.message.startswith("all 6 tensors are float64")


def test_float8_that_was_cast(tmp_path):
    """The line is torch's; a cast to bfloat16 is exact, as the advice says."""
    weights = {key: value.to(torch.float8_e4m3fn) for key, value in net().state_dict().items()}
    torch.save(weights, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T556")
    assert finding.severity is Severity.INFO
    with pytest.raises(RuntimeError) as caught:
        torch.nn.functional.linear(torch.ones(2, 16), weights["0.weight"], weights["0.bias"])
    assert finding.torch_says[0] in str(caught.value)
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert torch.equal(every.to(torch.bfloat16).float().nan_to_num(7), every.float().nan_to_num(7))


def test_each_kind_of_float8_is_named(tmp_path):
    """Of a file with several."""
    dtypes = {"a.weight": torch.float8_e4m3fn, "b.weight": torch.float8_e5m2}
    torch.save({key: torch.ones(4, 4).to(dtype) for key, dtype in dtypes.items()}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T556")
    assert finding.message == "2 of 2 tensors are float8_e4m3fn and float8_e5m2, without scales"


def test_integers_without_a_scale(tmp_path):
    """load_state_dict takes them without a word, and with assign=True says the quoted line."""
    layer = torch.nn.Linear(8, 8)
    state = {"weight": (layer.weight * 100).to(torch.int8), "bias": layer.bias.detach()}
    torch.save(state, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T557")
    assert finding.severity is Severity.WARNING
    layer.load_state_dict(loads(tmp_path / "a.pt"))
    with pytest.raises(RuntimeError) as caught:
        layer.load_state_dict(loads(tmp_path / "a.pt"), assign=True)
    assert finding.torch_says[0] in str(caught.value)


def test_a_mask_of_bytes(tmp_path):
    """torch refuses it with the quoted line."""
    mask = torch.ones(1, 1, 8, 8, dtype=torch.uint8).tril()
    torch.save({"h.0.attn.c_attn.weight": torch.ones(4, 12), "h.0.attn.bias": mask}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T558")
    with pytest.raises(RuntimeError) as caught:
        torch.ones(8, 8).masked_fill(mask, 1.0)
    assert finding.torch_says[0] in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex32, torch.bits8], ids=str)
def test_what_safetensors_does_not_take(tmp_path, dtype):
    """Its KeyError is the quoted line."""
    odd = torch.zeros(16, dtype=torch.uint8).view(dtype)
    torch.save({"w": odd, "b": torch.ones(2)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "T559")
    with pytest.raises(KeyError) as caught:
        save_file({"w": odd}, tmp_path / "x.safetensors")
    assert finding.torch_says == (f"KeyError: {caught.value}",)


def test_what_safetensors_learned_late(tmp_path):
    """Scales of MXFP4 in a file of today's."""
    scales = torch.ones(16, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    save_file({"s": scales, "w": torch.ones(4)}, tmp_path / "a.safetensors", metadata={"format": "pt"})
    (finding,) = found(tmp_path / "a.safetensors", "T559")
    assert "F8_E8M0" in finding.message


@real
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_real_models_have_none_of_it(tmp_path, dtype):
    """GPT-2 and Llama as transformers makes them."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
    models = (
        transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=50)),
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, intermediate_size=32)),
    )
    for number, model in enumerate(models):
        torch.save(model.to(dtype).state_dict(), tmp_path / f"{number}.pt")
        report = check(str(tmp_path / f"{number}.pt"), Settings())
        assert {finding.code for finding in report.findings}.isdisjoint(CODES)
