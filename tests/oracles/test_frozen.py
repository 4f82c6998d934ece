"""What other libraries saved and computed, in small files that they wrote: torch computes the same of what is made."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.libraries import real, transformers
from tests.oracles.freeze import DINOV2, frozen

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    """The layers of the frozen networks of Keras in torch."""

    def __init__(self, kind, both):
        super().__init__()
        self.rnn = kind(5, 6, batch_first=True, bidirectional=both)
        self.fc = nn.Linear(12 if both else 6, 3)

    def forward(self, x):
        end = self.rnn(x)[1]
        ends = end[0] if isinstance(end, tuple) else end
        return self.fc(torch.cat(list(ends), -1))


@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both directions"])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_computes_what_keras_computed(fixed, kind, both):
    """Of kernels, gates and biases as Keras wrote them."""
    saved, x, y = frozen(f"keras_{kind}{'_both' if both else ''}")
    target = Recurrent(KINDS[kind], both)
    target.load_state_dict(fixed(saved, target.state_dict()))
    with torch.no_grad():
        assert torch.allclose(target(x), y, atol=1e-5)


def test_a_gru_of_keras_with_its_reset_before_is_refused(fixed):
    """As Keras wrote it: one row of biases."""
    saved, _, _ = frozen("keras_gru_before")
    assert "reset_after=False" in fixed(saved, Recurrent(nn.GRU, False).state_dict(), status=1)


def dinov2(kind):
    """The model of transformers that has the sizes of a frozen one."""
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 8, "patch_size": 4}
    sizes |= {"mlp_ratio": 2, "use_swiglu_ffn": kind == "swiglu"}
    if kind == "registers":
        config = transformers.Dinov2WithRegistersConfig(**sizes, num_register_tokens=2)
        return transformers.Dinov2WithRegistersModel(config).eval()
    return transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).eval()


def features(model, images):
    """What comes out of the last norm, for every token."""
    with torch.no_grad():
        return model(images).last_hidden_state


@real
@pytest.mark.parametrize("kind", DINOV2)
def test_transformers_computes_what_dinov2_computed(fixed, kind):
    """Of its own file, as its own code wrote it; and back bit for bit."""
    saved, x, y = frozen(f"dinov2_{kind}")
    target = dinov2(kind)
    target.load_state_dict(fixed(saved, target.state_dict()))
    assert torch.allclose(features(target, x), y, atol=1e-4)
    back = fixed(target.state_dict(), {key: torch.zeros_like(value) for key, value in saved.items()})
    assert all(torch.equal(value, back[key]) for key, value in saved.items())


@real
@pytest.mark.parametrize("kind", DINOV2)
def test_transformers_loads_what_was_made_for_its_hub(fixed, tmp_path, kind):
    """Its files have other names than its models, which from_pretrained translates."""
    saved, x, y = frozen(f"dinov2_{kind}")
    dinov2(kind).save_pretrained(tmp_path / "hub")
    file = tmp_path / "hub" / "model.safetensors"
    save_file(fixed(saved, load_file(file)), file, {"format": "pt"})
    model = dinov2(kind).from_pretrained(tmp_path / "hub", attn_implementation="eager").eval()
    assert torch.allclose(features(model, x), y, atol=1e-4)


@real
@pytest.mark.parametrize("change", ["another name", "one half", "no mask token"])
def test_half_a_dinov2_is_refused(fixed, change):
    """What the target asks for and the file has not, or has under a name of another meaning."""
    saved, _, _ = frozen("dinov2_swiglu")
    like = dinov2("swiglu").state_dict()
    if change == "one half":
        like = {key: value for key, value in like.items() if "up_proj" not in key}
    elif change == "no mask token":
        del saved["mask_token"]
    else:
        saved = {key.replace("w12", "w21"): value for key, value in saved.items()}
    fixed(saved, like, status=1)
