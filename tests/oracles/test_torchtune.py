"""Llama between torchtune, Meta and transformers, as torchtune itself converts it."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest import mock

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


def conversion(path):
    """A file of torchtune that imports another one, without torchtune itself, which asks for torchao."""
    spec = importlib.util.find_spec("torchtune")
    inner = module_of("torchtune", "models/convert_weights.py")
    package = ModuleType("torchtune")
    package.__spec__ = spec
    names = {"torchtune": package, "torchtune.models": ModuleType("torchtune.models")}
    with mock.patch.dict(sys.modules, {**names, "torchtune.models.convert_weights": inner}):
        return module_of("torchtune", path)


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


@real
@pytest.mark.slow
def test_qwen2_to_and_from_transformers(fixed):
    """Other names, and no permutation: the biases of queries tell it from Llama."""
    convert = conversion("models/qwen2/_convert_weights.py")
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    config = transformers.Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2)
    model = transformers.Qwen2ForCausalLM(config).state_dict()
    tune = convert.qwen2_hf_to_tune(model)
    assert same(fixed(model, tune), tune)
    assert same(fixed(tune, model), convert.qwen2_tune_to_hf(tune))


@real
@pytest.mark.slow
@pytest.mark.parametrize("shared", [4, 2, 1])
def test_phi3_to_and_from_transformers(fixed, shared):
    """Two fused projections in each layer, also where heads share keys and values."""
    convert = conversion("models/phi3/_convert_weights.py")
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "pad_token_id": 0}
    config = transformers.Phi3Config(**sizes, num_attention_heads=4, num_key_value_heads=shared)
    model = transformers.Phi3ForCausalLM(config).state_dict()
    tune = convert.phi3_hf_to_tune(model, 4, shared, 16)
    assert same(fixed(model, tune), tune)
    assert same(fixed(tune, model), convert.phi3_tune_to_hf(tune))
