"""The chain of renames: found where there is one, and never made up."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ckptdoctor.match.search import find_moves
from tests.work import growth


@dataclass(frozen=True)
class Shaped:
    """All that the search looks at."""

    shape: tuple[int, ...]


def shapes(module):
    """The keys of a real module, with their shapes."""
    return {key: Shaped(tuple(value.shape)) for key, value in module.state_dict().items()}


def final_names(here, moves):
    """What each key is called in the end."""
    names = {key: key for key in here}
    for move in moves:
        names = {key: move.change(name) for key, name in names.items()}
    return names


def transformer(layers=3):
    """A real transformer encoder with an embedding and a head."""
    block = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
    return nn.ModuleDict({"embed": nn.Embedding(20, 8), "encoder": encoder, "head": nn.Linear(8, 20)})


WANTED = shapes(transformer())

RENAMINGS = {
    "a container": lambda key: key.replace("encoder.layers", "encoder.blocks"),
    "a container and what is in it": lambda key: key.replace("layers", "blocks").replace("self_attn", "attn"),
    "a longer path": lambda key: key.replace("encoder.layers", "body.stack.layer"),
    "two parts with numbers": lambda key: key.replace("linear1", "fc_1").replace("linear2", "fc_2"),
    "names of TensorFlow": lambda key: key.replace("norm1.weight", "norm1.gamma").replace("norm1.bias", "norm1.beta"),
    "slashes": lambda key: key.replace(".", "/"),
    "capitals": lambda key: key.title(),
    "no dots": lambda key: key.replace(".", ""),
    "a prefix that some lack": lambda key: key.removeprefix("encoder."),
    "another first number": lambda key: ".".join(str(int(t) + 1) if t.isdecimal() else t for t in key.split(".")),
}


@pytest.mark.parametrize("name", RENAMINGS)
def test_a_renaming_is_undone(name):
    """Every key of a real model finds back to its own name."""
    change = RENAMINGS[name]
    here = {change(key): value for key, value in WANTED.items()}
    assert len(here) == len(WANTED)
    moves = find_moves(here, WANTED)
    assert final_names(here, moves) == {change(key): key for key in WANTED}
    assert all(move.sure for move in moves)


@given(st.lists(st.sampled_from(list(RENAMINGS)[:5]), min_size=2, max_size=3, unique=True))
@settings(max_examples=20, deadline=None)
def test_several_renamings_at_once_never_mix_up_keys(chosen):
    """However renamings are combined, a key that gets a wanted name gets its own, or the step says it is not sure."""
    names = {key: key for key in WANTED}
    for each in chosen:
        names = {key: RENAMINGS[each](name) for key, name in names.items()}
    here = {name: WANTED[key] for key, name in names.items()}
    moves = find_moves(here, WANTED)
    own = {name: key for key, name in names.items()}
    wrong = [old for old, new in final_names(here, moves).items() if new in WANTED and new != own[old]]
    assert not wrong or not all(move.sure for move in moves)


def test_what_only_order_tells_is_not_sure():
    """Two parts of the same shape under names that say nothing could be either: the step says so."""
    wanted = {f"block.{n}.{part}.weight": Shaped((4, 4)) for n in range(3) for part in ("alpha", "omega")}
    here = {f"block.{n}.{part}.weight": Shaped((4, 4)) for n in range(3) for part in ("x", "z")}
    assert not all(move.sure for move in find_moves(here, wanted))


def test_query_key_and_value_are_told_by_their_letters():
    """q_proj is query, k_proj key and v_proj value, though all have one shape and stand in another order."""
    order, theirs = ("key", "query", "value"), ("q_proj", "k_proj", "v_proj")
    wanted = {f"layers.{n}.attn.{part}.weight": Shaped((4, 4)) for n in range(3) for part in theirs}
    here = {f"layers.{n}.attn.{part}.weight": Shaped((4, 4)) for n in range(3) for part in order}
    names = final_names(here, find_moves(here, wanted))
    wrong = [old for old, new in names.items() if new in wanted and old.split(".")[3][0] != new.split(".")[3][0]]
    assert not wrong or not all(move.sure for move in find_moves(here, wanted))


def unrelated():
    """Models that have nothing to do with each other."""
    return {
        "mlp": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
        "cnn": nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)),
        "lstm": nn.LSTM(5, 7, 2),
        "gru": nn.ModuleDict({"rnn": nn.GRU(6, 9), "out": nn.Linear(9, 2)}),
        "transformer": transformer(),
        "embedding": nn.ModuleDict({"table": nn.Embedding(30, 6), "bias": nn.Embedding(30, 1)}),
    }


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(unrelated(), 2)))
def test_unrelated_models_are_not_made_to_fit(one, other):
    """Of thirty pairs of foreign models none is renamed until most of it seems to fit."""
    torch.manual_seed(0)
    here, wanted = (shapes(unrelated()[name]) for name in (one, other))
    names = final_names(here, find_moves(here, wanted)).values()
    fits = [key for key, name in zip(here, names, strict=True) if name in wanted and here[key] == wanted[name]]
    assert 2 * len(fits) < len(wanted)


def test_a_chain_never_gives_two_keys_one_name():
    """Names stay one-to-one, even where two keys would fit the same one."""
    wanted = {"a.weight": Shaped((3,)), "b.weight": Shaped((3,))}
    here = {"A.weight": Shaped((3,)), "a_.weight": Shaped((3,)), "B.weight": Shaped((3,))}
    names = list(final_names(here, find_moves(here, wanted)).values())
    assert len(set(names)) == len(names)


# a list as two code bases call it: at the top, inside a word, shifted, and under another name for each of its parts
LISTS = {
    "another name": ("fc{}.{}", "layers.{}.{}"),
    "in a word": ("h{}.{}", "layer{}.{}"),
    "shifted in a word": ("fc{}.{}", "fc{}.{}"),
    "shifted": ("layers.{}.{}", "layers.{}.{}"),
    "words": ("m{}q.{}", "m{}q_new.{}"),
}


def listed(name, length):
    """Such a list on both sides, and the names that are right."""
    old, new = LISTS[name]
    shift, sizes = int("shifted" in name), {"weight": (8, 8), "bias": (8,)}
    pairs = {old.format(n, leaf): new.format(n + shift, leaf) for n in range(length) for leaf in sizes}
    shape = {key: sizes[key.rpartition(".")[2]] for key in (*pairs, *pairs.values())}
    return {key: Shaped(shape[key]) for key in pairs}, {key: Shaped(shape[key]) for key in pairs.values()}, pairs


@pytest.mark.parametrize("name", LISTS)
def test_a_long_flat_list_gets_its_names(name):
    """Of more keys than each step is tried of, the parts still tell it."""
    here, wanted, pairs = listed(name, 150)
    assert final_names(here, find_moves(here, wanted)) == pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_the_work_grows_with_the_keys(name):
    """Ten times the keys, beyond ten thousand, get all their names, and not a hundred times the work."""
    made = {length: listed(name, length) for length in (1_500, 15_000)}
    found = {}
    assert growth(lambda length: found.update({length: find_moves(*made[length][:2])}), 1_500, 15_000, runs=1) < 40
    here, _, pairs = made[15_000]
    assert final_names(here, found[15_000]) == pairs
