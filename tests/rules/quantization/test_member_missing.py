"""Q958: of every scheme each member that is taken out of a layer is missed, and nothing else is."""

from __future__ import annotations

import random

import pytest

from ckptdoctor.rules.examples import Example, T
from tests.builders import build
from tests.rules.examined import found, healthy

PLACE = "model.layers.2.up."  # one layer of the healthy examples, which are called after their schemes
SCHEMES = {
    example.title.removeprefix("complete: "): {
        key.removeprefix(PLACE): tensor for key, tensor in example.contents.items() if key.startswith(PLACE)
    }
    for example in healthy("Q958")
    if example.title.startswith("complete: ")
}


def model(layer, experts=0):
    """Three layers of two places each, one of them a list of experts where wanted, with plain tensors around them."""
    places = [f"model.layers.{number}.{name}" for number in range(3) for name in ("self_attn.q_proj", "mlp.down_proj")]
    places += [f"model.layers.{number}.mlp.experts.{each}.w1" for number in range(3) for each in range(experts)]
    made = {f"{place}.{name}": tensor for place in places for name, tensor in layer.items()}
    plain = {f"model.layers.{number}.input_layernorm.weight": T((8,), "bfloat16") for number in range(3)}
    return {
        "model.embed_tokens.weight": T((32, 8), "bfloat16"),
        **plain,
        **made,
        "lm_head.weight": T((32, 8), "bfloat16"),
    }


def missed(contents, folder, suffix=".safetensors"):
    """The messages of Q958 about a file."""
    kind = "safetensors" if suffix == ".safetensors" else "torch zip"
    return [each.message for each in found(build(Example("m", contents, kind, suffix=suffix), folder), "Q958")]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("experts", [0, 4])
def test_each_member_is_missed(scheme, experts, tmp_path):
    """Whichever key of a layer is gone, the finding names it; a whole model has no finding."""
    whole = model(SCHEMES[scheme], experts)
    assert missed(whole, tmp_path) == []
    members = [key for key in whole if key.endswith(tuple(SCHEMES[scheme])) and key.startswith("model.layers.")]
    members = [key for key in members if "layernorm" not in key]
    for gone in random.Random(scheme).sample(members, 8):
        (message,) = missed({key: value for key, value in whole.items() if key != gone}, tmp_path)
        named = message.rpartition(": ")[2].removesuffix("__nf4")
        assert named.startswith("model.layers.") and gone.startswith(named)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_left_plain_lacks_nothing(scheme, tmp_path):
    """Quantising leaves out single layers, and whole places."""
    contents = model(SCHEMES[scheme])
    for place in ("model.layers.0.mlp.down_proj", "model.layers.2.self_attn.q_proj"):
        contents = {key: value for key, value in contents.items() if not key.startswith(f"{place}.")}
        contents[f"{place}.weight"] = T((8, 16), "bfloat16")
    assert missed(contents, tmp_path) == []


def test_scales_of_caches_and_of_other_things_are_no_members(tmp_path):
    """Only attention has scales of its cache, and a model has scales that have nothing to do with quantising."""
    contents = model(SCHEMES["float8"])
    contents |= {"model.layers.0.self_attn.k_proj.k_scale": T(()), "logit_scale": T(()), "layer_scale": T((8,))}
    contents["model.layers.1.self_attn.q_proj.bias"] = T((8,), "bfloat16")
    assert missed(contents, tmp_path) == []
