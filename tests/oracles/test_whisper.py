"""OpenAI's Whisper and that of transformers: both compute the same logits."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real, transformers
from tests.oracles.conftest import library

SOUND = torch.linspace(-1, 1, 4 * 20).view(1, 4, 20)
TOKENS = torch.tensor([[1, 5, 12, 7]])


@real
@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True], ids=["to transformers", "to OpenAI"])
def test_both_compute_the_same(fixed, back):
    """As OpenAI nests it, and without a head of its own; the other way, the head goes where it is the embedding."""
    whisper = library("whisper.model")
    torch.manual_seed(0)
    ours = whisper.Whisper(whisper.ModelDimensions(4, 10, 8, 2, 2, 13, 7, 8, 2, 2)).eval()
    torch.nn.init.normal_(ours.decoder.positional_embedding)
    sizes = {"vocab_size": 13, "d_model": 8, "num_mel_bins": 4, "max_source_positions": 10, "max_target_positions": 7}
    layers = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    config = transformers.WhisperConfig(
        **sizes, **layers, encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=0, bos_token_id=1, eos_token_id=2
    )
    hugging = transformers.WhisperForConditionalGeneration(config).eval()
    plain = {key: value for key, value in hugging.state_dict().items() if key != "proj_out.weight"}
    if back:
        ours.load_state_dict(fixed(plain, ours.state_dict()))
    else:
        nested = {"dims": {"n_mels": 4}, "model_state_dict": ours.state_dict()}
        hugging.load_state_dict(fixed(nested, hugging.state_dict()))
    with torch.no_grad():
        said = hugging(input_features=SOUND, decoder_input_ids=TOKENS).logits
        assert torch.allclose(said, ours(SOUND, TOKENS), atol=1e-5)
