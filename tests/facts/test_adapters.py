"""Which keys are an adapter's, and what wrote them."""

from __future__ import annotations

import types

import pytest

from ckptdoctor.checkpoint import StateDict
from ckptdoctor.facts.adapters import PARAMETERS, adapter_in, base_name, foreign, part_of
from ckptdoctor.rules.examples import T
from tests.libraries import peft, real
from tests.rules.nouns import checkpoint
from tests.work import growth

Q = "base_model.model.layers.0.q_proj"


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (f"{Q}.lora_A.weight", (Q, "lora_A", "", f"{Q}.lora_A.weight")),
        (f"{Q}.lora_A.default.weight", (Q, "lora_A", "default", f"{Q}.lora_A.weight")),
        (f"{Q}.lora_B.my.weight", (Q, "lora_B", "my", f"{Q}.lora_B.weight")),
        (f"{Q}.lora_B.default.bias", (Q, "lora_B", "default", f"{Q}.lora_B.bias")),
        ("emb.lora_embedding_A.default", ("emb", "lora_embedding_A", "default", "emb.lora_embedding_A")),
        ("lora_A.default.weight", ("", "lora_A", "default", "lora_A.weight")),
        (
            f"{Q}.lora_magnitude_vector.default.weight",
            (Q, "lora_magnitude_vector", "default", f"{Q}.lora_magnitude_vector"),
        ),
        (f"{Q}.ia3_l.default", (Q, "ia3_l", "default", f"{Q}.ia3_l")),
        ("base_model.vera_A.default", ("base_model", "vera_A", "default", "base_model.vera_A")),
    ],
)
def test_parts_are_told_by_their_last_tokens(key: str, wanted: tuple[str, ...]) -> None:
    """The module, the parameter, the adapter's name, and the key without it."""
    part = part_of(key)
    assert part is not None
    assert (part.module, part.parameter, part.adapter, part.plain) == wanted


@pytest.mark.parametrize(
    "key", ["", ".", "lora", "x.lora_A.0.weight", "x.lora_A.a.b.weight", f"{Q}.weight", "lora_A.x.y", "a.lora_a.weight"]
)
def test_other_keys_are_no_part(key: str) -> None:
    """Numbers of a Sequential, deeper modules and other spellings are not peft's."""
    assert part_of(key) is None


def test_the_quick_look_sees_every_parameter() -> None:
    """Whatever the parameter is called, a state dict that holds it is not passed over."""
    for name in PARAMETERS:
        (state_dict,) = checkpoint({f"layer.{name}.default.weight": T((2, 2))}).state_dicts
        assert adapter_in(state_dict) is not None, name


@real
def test_every_parameter_of_peft_is_known() -> None:
    """The names that peft's tuners give their parameters in the adapters that it can write."""
    given: set[str] = set()
    for tuner in vars(peft.tuners).values():
        for kind in vars(getattr(tuner, "layer", tuner)).values() if isinstance(tuner, types.ModuleType) else ():
            given.update(getattr(kind, "adapter_layer_names", ()))
    assert len(given) > 40
    # networks of their own in place of tensors, and factors of the weight itself
    assert {each for each in given - PARAMETERS if not each.startswith(("peanut_", "osf_", "shadow_"))} == set()


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (f"{Q}.base_layer.weight", "layers.0.q_proj.weight"),
        ("base_model.model.head.original_module.bias", "head.bias"),
        ("base_model.model.emb.token_adapter.base_layer.weight", "emb.weight"),
        ("base_model.model.x.base_layer", "x.base_layer"),
        ("x.token_adapter.weight", "x.token_adapter.weight"),
    ],
)
def test_the_base_model_s_names(key: str, wanted: str) -> None:
    """Without what peft put around the layers; the last token is the tensor's own."""
    assert base_name(key) == wanted


def test_a_model_of_loralib_is_no_foreign_adapter() -> None:
    """Its layers keep their names and their weights, and can be held against the model as ever."""
    contents = {"fc.weight": T((4, 4)), "fc.lora_A": T((2, 4)), "fc.lora_B": T((4, 2))}
    (state_dict,) = checkpoint(contents).state_dicts
    assert adapter_in(state_dict) is not None
    assert foreign(state_dict, ["fc.weight"]) is None
    (state_dict,) = checkpoint({f"{Q}.lora_A.weight": T((2, 4))}).state_dicts
    assert foreign(state_dict, ["layers.0.q_proj.weight"]) is not None
    assert foreign(state_dict, [f"{Q}.lora_A.weight"]) is None


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_keys() -> None:
    """And with the length of one; 50,000 keys and a million dots are about ten times the work of a tenth of them."""
    given = {layers: _wrapped(layers) for layers in (1_250, 12_500)}

    def looked_at(layers: int) -> None:
        adapter = adapter_in(given[layers])
        assert adapter is not None
        assert len(adapter.wrapped) == layers

    assert growth(looked_at, 1_250, 12_500, runs=1) < 40


def _wrapped(layers: int) -> StateDict:
    contents: dict[str, object] = {}
    for number in range(layers):
        layer = f"base_model.model.layers.{number}.q_proj"
        contents[f"{layer}.base_layer.weight"] = T((1, 1))
        contents[f"{layer}.base_layer.bias"] = T((1,))
        contents[f"{layer}.lora_A.default.weight"] = T((1, 1))
        contents[f"{layer}.lora_B.default.weight"] = T((1, 1))
    contents["." * (80 * layers) + "lora_A.weight"] = T(())
    (state_dict,) = checkpoint(contents).state_dicts
    return state_dict
