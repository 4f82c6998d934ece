from __future__ import annotations

import pytest

from ckptdoctor.converting.choosing import owner_of
from tests.libraries import real, transformers


@pytest.mark.parametrize(
    ("names", "owner"),
    [
        (["lm_head.weight", "model.embed_tokens.weight"], "model.embed_tokens.weight"),
        (["lm_head.weight", "transformer.wte.weight"], "transformer.wte.weight"),
        (["decoder.embed_tokens.weight", "lm_head.weight", "shared.weight"], "shared.weight"),
        (["cls.predictions.decoder.weight", "bert.word_embeddings.weight"], "bert.word_embeddings.weight"),
        (["z.bias", "a.bias"], "z.bias"),
        (["output.weight", "tok_embeddings.weight"], "tok_embeddings.weight"),
    ],
)  # fmt: skip
def test_the_input_embedding_keeps_the_bytes(names: list[str], owner: str):
    """Else the first name in the file; never the first of the alphabet."""
    assert owner_of(names) == owner


@real
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_the_owner_is_the_one_that_transformers_keeps(kind: str, tmp_path):
    """The name that save_pretrained writes is the name that we keep."""
    import torch
    from safetensors import safe_open

    from ckptdoctor.converting.conversion import convert
    from ckptdoctor.converting.request import ConvertRequest

    small = {
        "gpt2": {"n_layer": 1, "n_head": 2, "n_embd": 4, "vocab_size": 11, "n_positions": 8},
        "t5": {"num_layers": 1, "num_heads": 2, "d_model": 4, "d_kv": 2, "d_ff": 4, "vocab_size": 11},
    }[kind]
    config = transformers.AutoConfig.for_model(kind, **small)
    auto = transformers.AutoModelForCausalLM if kind == "gpt2" else transformers.AutoModelForSeq2SeqLM
    model = auto.from_config(config)
    model.save_pretrained(tmp_path / "theirs")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    convert(ConvertRequest((str(tmp_path / "model.pt"),), str(tmp_path / "ours.safetensors")))
    with (
        safe_open(tmp_path / "theirs" / "model.safetensors", "pt") as theirs,
        safe_open(tmp_path / "ours.safetensors", "pt") as ours,
    ):
        assert set(ours.keys()) == set(theirs.keys())
