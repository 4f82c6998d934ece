"""Llama between torchtune, Meta and transformers, as torchtune itself converts it."""

from __future__ import annotations

import pytest
import torch

from tests.libraries import real, transformers
from tests.oracles.conftest import module_of

SIZES = {"num_heads": 4, "num_kv_heads": 2, "dim": 16}


@pytest.fixture
def convert():
    """torchtune/models/convert_weights.py."""
    return module_of("torchtune", "models/convert_weights.py")


@pytest.fixture
def llama():
    """The state dict of a model of transformers."""
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "pad_token_id": 0}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config).state_dict()


def same(one, other):
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


@real
@pytest.mark.slow
def test_to_and_from_transformers(fixed, convert, llama):
    """hf_to_tune and tune_to_hf give what the command writes."""
    tune = convert.hf_to_tune(llama, **SIZES)
    assert same(fixed(llama, tune, "--heads", "4"), tune)
    assert same(fixed(tune, llama, "--heads", "4"), convert.tune_to_hf(tune, **SIZES))


@real
@pytest.mark.slow
def test_to_and_from_meta(fixed, convert, llama):
    """meta_to_tune and tune_to_meta, without a number of heads: no row is permuted."""
    tune = convert.hf_to_tune(llama, **SIZES)
    meta = convert.tune_to_meta(tune)
    assert same(fixed(tune, meta), meta)
    assert same(fixed(meta, tune), convert.meta_to_tune(meta))
