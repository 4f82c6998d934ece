"""Vision transformers of timm for transformers: timm computes the same as transformers afterwards."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real, transformers
from tests.oracles.conftest import library
from tests.oracles.freeze import frozen
from tests.oracles.test_frozen import dinov2

SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 12}


@real
@pytest.mark.slow
@pytest.mark.parametrize("distilled", [False, True], ids=["ViT", "DeiT"])
def test_a_vit_of_timm_computes_the_same_in_transformers(fixed, distilled):
    """And comes back bit for bit."""
    timm = library("timm")
    torch.manual_seed(0)
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 3, "mlp_ratio": 1}
    made = timm.models.VisionTransformerDistilled if distilled else timm.models.VisionTransformer
    model = made(num_classes=5, **sizes).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    config = transformers.DeiTConfig if distilled else transformers.ViTConfig
    target = transformers.DeiTForImageClassificationWithTeacher if distilled else transformers.ViTForImageClassification
    hugging = target(config(image_size=8, patch_size=4, num_labels=5, layer_norm_eps=1e-6, **SIZES)).eval()
    hugging.load_state_dict(fixed(model.state_dict(), hugging.state_dict()))
    images = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(hugging(images).logits, model(images), atol=1e-4)
    back = fixed(hugging.state_dict(), {key: torch.zeros_like(value) for key, value in model.state_dict().items()})
    assert all(torch.equal(value, back[key]) for key, value in model.state_dict().items())


@real
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "swiglu"])
def test_dinov2_computes_in_timm_what_its_own_code_did(fixed, kind):
    """The command writes what timm's own filter makes of it; what is masked in training alone goes when asked for."""
    timm = library("timm")
    saved, x, y = frozen(f"dinov2_{kind}")
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 3, "num_classes": 0}
    if kind == "swiglu":
        sizes |= {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU, "mlp_ratio": 32 / 12}
    model = timm.models.VisionTransformer(**{"mlp_ratio": 2, "init_values": 1.0} | sizes).eval()
    like = {key: value.clone() for key, value in model.state_dict().items()}
    wanted = timm.models.vision_transformer.checkpoint_filter_fn(dict(saved), model)
    sources = [saved]
    if kind == "plain":  # with gated layers, transformers has other names than timm, and no table leads there
        hugging = dinov2(kind)
        hugging.load_state_dict(fixed(saved, hugging.state_dict()))
        sources.append(hugging.state_dict())
    for source in sources:
        made = fixed(source, like, "--unsafe-fixes")
        assert made.keys() == wanted.keys()
        assert all(torch.equal(value, made[key]) for key, value in wanted.items())
        model.load_state_dict(made)
        with torch.no_grad():
            assert torch.allclose(model.forward_features(x), y, atol=1e-4)
