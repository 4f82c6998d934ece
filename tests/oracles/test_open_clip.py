"""OpenCLIP's CLIP and that of transformers: both compute the same features."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real, transformers
from tests.oracles.conftest import library

IMAGES = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)
TEXTS = torch.tensor([[1, 4, 9, 15, 0, 0, 0], [3, 8, 2, 6, 5, 15, 0]])


@real
@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True], ids=["to transformers", "to OpenCLIP"])
def test_both_compute_the_same(fixed, back):
    """Projections of 8 × 8, of which no shape says how they lie."""
    library("open_clip")
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    torch.manual_seed(0)
    vision = CLIPVisionCfg(layers=2, width=8, head_width=4, patch_size=4, image_size=8, mlp_ratio=2)
    text = CLIPTextCfg(context_length=7, vocab_size=16, width=8, heads=2, layers=2, mlp_ratio=2)
    ours = CLIP(8, vision, text, quick_gelu=True).eval()
    half = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = transformers.CLIPConfig(
        projection_dim=8,
        text_config={**half, "vocab_size": 16, "max_position_embeddings": 7, "eos_token_id": 2, "pad_token_id": 0},
        vision_config={**half, "image_size": 8, "patch_size": 4},
    )
    hugging = transformers.CLIPModel(config).eval()
    source, target = (hugging, ours) if back else (ours, hugging)
    target.load_state_dict(fixed(source.state_dict(), target.state_dict()))
    with torch.no_grad():
        images, texts = hugging.get_image_features(IMAGES), hugging.get_text_features(TEXTS)
        assert torch.allclose(images.pooler_output, ours.encode_image(IMAGES), atol=1e-5)
        assert torch.allclose(texts.pooler_output, ours.encode_text(TEXTS), atol=1e-5)
