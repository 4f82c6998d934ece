"""Vision transformers of timm for transformers: timm computes the same as transformers afterwards."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real, transformers
from tests.oracles.conftest import library

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
