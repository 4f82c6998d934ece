from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from ckptdoctor.edits.renaming import renamed_modules, renamed_ties
from tests.work import growth


def follow(metadata: dict[str, object], renames: dict[str, str]) -> dict[str, object]:
    """The metadata with its prefixes renamed, as a repair would write it."""
    moves = renamed_modules(metadata, renames)
    return {moves[prefix]: value for prefix, value in metadata.items() if moves[prefix] is not None}


class Block(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)  # a module that is really called "module"
        self.act = nn.ReLU()
        self.norm = nn.BatchNorm1d(2)
        if depth:
            self.inner = Block(depth - 1)
            self.mlp_module = nn.Sequential(nn.Linear(2, 2), nn.Dropout())


def stripped_by_torch(state_dict: OrderedDict, prefix: str) -> dict[str, object]:
    copy = OrderedDict(state_dict)
    copy._metadata = OrderedDict(state_dict._metadata)
    consume_prefix_in_state_dict_if_present(copy, prefix)
    return dict(copy._metadata)


def test_a_stripped_module_prefix_gives_what_torch_gives():
    """DataParallel around a model: the wrapper's own entry goes, every module's entry follows its keys."""
    state_dict = nn.DataParallel(Block(2)).state_dict()
    renames = {key: key.removeprefix("module.") for key in state_dict}
    assert follow(dict(state_dict._metadata), renames) == stripped_by_torch(state_dict, "module.")


NAMES = st.sampled_from(["module", "a", "b", "norm", "0", "1", "mlp_module", "_orig_mod"])


@st.composite
def modules(draw):
    """A random module tree inside a wrapper."""

    def build(depth: int) -> nn.Module:
        made = nn.Module()
        for name in draw(st.lists(NAMES, unique=True, max_size=3)):
            made.add_module(name, build(depth - 1) if depth else nn.ReLU())
        if draw(st.booleans()):
            made.register_buffer("weight", torch.zeros(1))
        return made

    return build(3)


@given(modules(), st.sampled_from(["module.", "model.", "net.module."]))
@settings(deadline=None, max_examples=150)
def test_any_model_in_a_wrapper_is_followed_as_torch_does(model: nn.Module, prefix: str):
    """Whatever the modules are called, and wherever there are modules without keys."""
    wrapper = model
    for name in reversed(prefix.rstrip(".").split(".")):
        outer = nn.Module()
        outer.add_module(name, wrapper)
        wrapper = outer
    state_dict = wrapper.state_dict()
    # torch loses entries where a module inside the model is called as the wrapper is: it renames them twice
    assume(state_dict and not any(key.startswith(prefix + prefix.split(".")[0]) for key in state_dict._metadata))
    renames = {key: key.removeprefix(prefix) for key in state_dict}
    wanted = stripped_by_torch(state_dict, prefix)
    if prefix.count(".") > 1:  # torch leaves the wrappers between behind, as entries of modules that are gone
        wanted.pop("net")
        wanted[""] = state_dict._metadata[prefix.rstrip(".")]
        wanted.pop(prefix.rstrip("."), None)
    assert follow(dict(state_dict._metadata), renames) == wanted


@given(modules())
@settings(deadline=None, max_examples=60)
def test_an_added_prefix_can_be_taken_away_again(model: nn.Module):
    """Added to keys and stripped again, the entries are those of before."""
    state_dict = model.state_dict()
    if not state_dict:
        return
    there = {key: f"model.{key}" for key in state_dict}
    back = {new: old for old, new in there.items()}
    metadata = dict(state_dict._metadata)
    added = follow(metadata, there)
    assert set(added) == {f"model.{prefix}".rstrip(".") for prefix in metadata}
    assert follow(added, back) == metadata


def test_a_wrapper_token_inside_a_key_takes_its_entry_with_it():
    """``layers.0._orig_mod`` becomes ``layers.0``, whose own entry (the wrapper's) goes."""
    metadata = {"": 0, "layers": 1, "layers.0": 2, "layers.0._orig_mod": 3, "layers.0._orig_mod.act": 4, "head": 5}
    renames = {"layers.0._orig_mod.weight": "layers.0.weight", "head.weight": "head.weight"}
    wanted = {"": 0, "layers": 1, "layers.0": 3, "layers.0.act": 4, "head": 5}
    assert follow(metadata, renames) == wanted


def test_wrappers_inside_wrappers_go_all_at_once():
    """Three tokens taken out in one step: only the innermost module's entry stays."""
    metadata = {
        "layers": 1,
        "layers.0": 2,
        "layers.0._fsdp_wrapped_module": 3,
        "layers.0._fsdp_wrapped_module._orig_mod": 4,
    }
    renames = {f"{max(metadata, key=len)}.{leaf}": f"layers.0.{leaf}" for leaf in ("weight", "bias", "norm.weight")}
    assert follow(metadata, renames) == {"layers": 1, "layers.0": 4}
    assert follow({"": 0, "module": 1, "module.a": 2}, {"module.a.module.w": "w"}) == {"": 0}


def test_a_module_called_like_its_wrapper_keeps_its_entries():
    """Every entry moves once, where torch's own function moves some of them twice and loses one."""
    metadata = {"": 0, "module": 1, "module.module": 2, "module.module.a": 3, "module.a": 4}
    renames = {"module.module.a.w": "module.a.w", "module.a.w": "a.w"}
    assert follow(metadata, renames) == {"": 1, "module": 2, "module.a": 3, "a": 4}


def test_modules_whose_keys_went_different_ways_stay():
    """No guess is made where one module became two."""
    metadata = {"": 0, "enc": 1, "enc.a": 2, "enc.b": 3, "enc.act": 4}
    renames = {"enc.a.weight": "left.a.weight", "enc.b.weight": "right.b.weight"}
    assert follow(metadata, renames) == {"": 0, "enc": 1, "left.a": 2, "right.b": 3, "enc.act": 4}


def test_renaming_a_parameter_moves_no_module():
    """``gamma`` for ``weight`` changes no prefix."""
    metadata = {"": 0, "norm": 1, "norm.act": 2}
    assert follow(metadata, {"norm.gamma": "norm.weight", "norm.beta": "norm.bias"}) == metadata


def test_a_renamed_module_in_the_middle_takes_everything_below_along():
    """``encoder`` for ``enc``: modules without keys below it follow, its neighbours stay."""
    metadata = {"": 0, "m": 1, "m.enc": 2, "m.enc.act": 3, "m.enc.fc": 4, "m.dec": 5}
    renames = {"m.enc.fc.weight": "m.encoder.fc.weight", "m.dec.weight": "m.dec.weight"}
    assert follow(metadata, renames) == {
        "": 0,
        "m": 1,
        "m.encoder": 2,
        "m.encoder.act": 3,
        "m.encoder.fc": 4,
        "m.dec": 5,
    }


def test_two_prefixes_never_get_one_name():
    """The inner module outlives its wrapper, at every depth; the order of entries does not matter."""
    metadata = {"module._orig_mod": 3, "module": 2, "": 1}
    assert follow(metadata, {"module._orig_mod.weight": "weight"}) == {"": 3}
    assert follow(dict(reversed(metadata.items())), {"module._orig_mod.weight": "weight"}) == {"": 3}


def test_no_renames_change_nothing():
    """Neither an empty state dict nor keys that keep their names move a prefix."""
    metadata = {"": 0, "a": 1, "a.b": 2}
    assert follow(metadata, {}) == metadata
    assert follow(metadata, {"a.b.weight": "a.b.weight", "c": "c"}) == metadata


def test_many_keys_take_no_longer_than_they_have_to():
    """Keys eight modules deep are followed one by one, whatever the others are."""
    given = {}
    for blocks in (1_250, 12_500):
        keys = [f"module.a.b.c.layers.{i % 200}.block.{i}.{leaf}" for i in range(blocks) for leaf in "abcd"]
        given[blocks] = {key.rpartition(".")[0]: 1 for key in keys}, {key: key[7:] for key in keys}
        assert renamed_modules(*given[blocks])["module.a.b.c.layers.0.block.0"] == "a.b.c.layers.0.block.0"
    assert growth(lambda blocks: renamed_modules(*given[blocks]), 1_250, 12_500) < 40


TIES = {"format": "pt", "note": "x", "m.head.weight": "m.emb.weight", "copy": "top"}
KEYS = ["m.emb.weight", "m.body.0.bias", "top"]


@pytest.mark.parametrize(
    ("rename", "wanted"),
    [
        (lambda key: key, {"m.head.weight": "m.emb.weight", "copy": "top"}),
        (lambda key: f"net.{key}", {"net.m.head.weight": "net.m.emb.weight", "net.copy": "net.top"}),
        (lambda key: key.removeprefix("m."), {"head.weight": "emb.weight", "copy": "top"}),
        (lambda key: key.replace("emb", "wte"), {"m.head.weight": "m.wte.weight", "copy": "top"}),
        (lambda key: "first" if key == "top" else key, {"m.head.weight": "m.emb.weight", "copy": "first"}),
    ],
)
def test_tied_names_follow(rename, wanted):
    """The tensor has its new name, the other name moves with the modules around it, and other entries stay."""
    assert renamed_ties(TIES, {key: rename(key) for key in KEYS}) == {"format": "pt", "note": "x", **wanted}


def test_a_tied_name_that_is_taken_stays_the_old_one():
    """It would be the name of a tensor, or of another entry."""
    assert renamed_ties({"m.a": "m.b"}, {"m.b": "b", "m.c": "a"}) == {"m.a": "b"}
    assert renamed_ties({"m.note": "m.b", "note": "x"}, {"m.b": "b"}) == {"m.note": "b", "note": "x"}
