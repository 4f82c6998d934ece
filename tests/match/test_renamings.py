"""What well-known models are called elsewhere: found for each of them, in both directions, and never mixed up."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.match.prefixes import best_prefix
from ckptdoctor.match.search import find_moves
from tests.match import renamings
from tests.match.renamings import RENAMINGS


@dataclass(frozen=True)
class Shaped:
    """All that the search looks at."""

    shape: tuple[int, ...]


def shaped(shapes):
    """The same as tensors, as far as the search is concerned."""
    return {key: Shaped(shape) for key, shape in shapes.items()}


def searched(here, wanted):
    """What each key is called in the end, and the moves that did it; a common prefix comes first, as it always does."""
    fits = sum(key in wanted and wanted[key] == value for key, value in here.items())
    prefix = best_prefix(here, wanted, fits)
    names = {key: key if prefix is None else prefix.change(key) for key in here}
    moves = find_moves({names[key]: value for key, value in here.items()}, wanted)
    for move in moves:
        names = {key: move.change(name) for key, name in names.items()}
    return names, moves


@pytest.mark.parametrize("back", [False, True], ids=["there", "and back"])
@pytest.mark.parametrize("model", RENAMINGS)
def test_the_other_names_are_found(model, back):
    """Every key that the other code base has gets the very name that it has there, without a doubt."""
    renaming = RENAMINGS[model]
    truth = renaming.names
    assert len(set(truth.values())) == len(truth)
    theirs = {new: renaming.shapes[old] for old, new in truth.items()}
    here, wanted = (theirs, renaming.shapes) if back else (renaming.shapes, theirs)
    names, moves = searched(shaped(here), shaped(wanted))
    right = {new: old for old, new in truth.items()} if back else truth
    assert {key: names[key] for key in right} == right
    assert not {names[key] for key in here.keys() - right.keys()} & wanted.keys()
    assert moves
    assert all(move.sure for move in moves)


def test_few_words_say_what_happened():
    """A hundred and more renames of ConvNeXt are seven."""
    renaming = RENAMINGS["ConvNeXt for timm"]
    _, (move,) = searched(
        shaped(renaming.shapes), shaped({new: renaming.shapes[old] for old, new in renaming.names.items()})
    )
    assert sorted(move.pattern.split(", ")) == [
        "downsample_layers.0 → stem",
        "downsample_layers.{n} → stages.{n}.downsample",
        "dwconv → conv_dw",
        "head → head.fc",
        "norm → head.norm",
        "pwconv{n} → mlp.fc{n}",
        "stages.{n} → stages.{n}.blocks",
    ]


def test_some_parts_of_a_list_move_on():
    """Of Swin's stages only the downsampling has another number in timm."""
    renaming = RENAMINGS["Swin for timm"]
    _, moves = searched(
        shaped(renaming.shapes), shaped({new: renaming.shapes[old] for old, new in renaming.names.items()})
    )
    assert {(move.code, move.pattern, len(move.names)) for move in moves} == {
        ("N424", "layers.{n}.downsample → layers.{n+1}.downsample", 9),
        ("N423", "head → head.fc", 2),
    }


def test_a_norm_after_pooling_is_a_guess():
    """``norm`` and ``fc_norm`` hold the same parameters, but one of them comes after the mean."""
    here = renamings.vit()
    wanted = {key.replace("norm.", "fc_norm.") if key.startswith("norm.") else key: here[key] for key in here}
    _, moves = searched(shaped(here), shaped(wanted))
    assert not any(move.sure for move in moves)


def test_a_second_head_is_not_taken_for_the_first():
    """Of a distilled model ``head`` is ``head``, and ``head_dist`` is nobody."""
    here = {**renamings.vit(), "head_dist.weight": (1000, 768), "head_dist.bias": (1000,)}
    renaming = RENAMINGS["ViT for mmpretrain"]
    names, _ = searched(shaped(here), shaped({new: renaming.shapes[old] for old, new in renaming.names.items()}))
    assert names["head.weight"] == "head.layers.head.weight" or names["head.weight"] not in renaming.names.values()
    assert names["head_dist.weight"] not in renaming.names.values()


def test_a_last_element_that_fits_elsewhere_is_a_guess():
    """Of equal blocks one is too many here, and another list lacks one: nobody knows whether they are the same."""
    block = {"fc1.weight": (8, 4), "fc2.weight": (4, 8)}
    here = {f"body.{number}.{key}": shape for number in range(6) for key, shape in block.items()}
    wanted = {key.replace("body.5", "neck"): shape for key, shape in here.items()}
    _, moves = searched(shaped(here), shaped(wanted))
    assert not any(move.sure for move in moves)


def test_layers_of_experts_are_not_experts_of_layers():
    """Words that follow in another order are a guess, though all numbers agree."""
    here = {f"experts.{one}.layers.{other}.weight": (4, 4) for one in range(2) for other in range(2)}
    wanted = {f"layers.{one}.experts.{other}.weight": (4, 4) for one in range(2) for other in range(2)}
    _, moves = searched(shaped(here), shaped(wanted))
    assert not any(move.sure for move in moves)


def test_names_of_parameters_that_say_nothing_are_a_guess():
    """A ``mask_token`` is not a ``cls_token``, whatever its shape."""
    here = {**{f"blocks.{n}.weight": (n + 2, 4) for n in range(9)}, "mask_token": (1, 1, 4)}
    wanted = {**{f"layers.{n}.weight": (n + 2, 4) for n in range(9)}, "cls_token": (1, 1, 4)}
    names, moves = searched(shaped(here), shaped(wanted))
    assert names["mask_token"] != "cls_token" or not all(move.sure for move in moves)


OURS, THEIRS = "abcdefg", "tuvwxyz"
PARTS = st.lists(
    st.lists(st.sampled_from([(4, 4), (8, 4), (4, 8), (4,)]), min_size=1, max_size=2), min_size=2, max_size=5
)


@given(PARTS, st.permutations(range(5)), st.integers(1, 4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_sure_is_right(parts, order, blocks, nested):
    """Whatever parts blocks have, in whatever order and nesting: a name given without a doubt is the right one."""
    truth, shapes = {}, {}
    for block in range(blocks):
        for part, leaves in enumerate(parts):
            for leaf, shape in zip(("weight", "bias"), leaves, strict=False):
                old = f"blocks.{block}.{OURS[part]}.{leaf}"
                inside = f"inner.{THEIRS[part]}" if nested and part % 2 else THEIRS[part]
                truth[old] = f"stages.{block}.{inside}.{leaf}"
                shapes[old] = shape
    places = {OURS[part]: place for place, part in enumerate(order)}
    back = {new: old for old, new in truth.items()}
    names = sorted(back, key=lambda new: (back[new].split(".")[1], places[back[new].split(".")[2]]))
    here, wanted = shaped(shapes), shaped({new: shapes[back[new]] for new in names})
    now = {key: key for key in here}
    for move in find_moves(here, wanted):
        now = {key: move.change(name) for key, name in now.items()}
        if not move.sure:
            break
        assert all(name == truth[key] for key, name in now.items() if name in wanted)


@pytest.mark.parametrize("key", ["9" * 5000, "0" * 12, "٣", "..", "a" + ".0" * 5000])
def test_strange_numbers_are_no_trouble(key):
    """Numbers too long to count, other digits and endless paths are names like others."""
    here = {f"a.{key}.{n}.weight": (n + 2, 3) for n in range(3)}
    wanted = {f"b.{n}.c{key}.weight": (n + 2, 3) for n in range(3)}
    find_moves(shaped(here), shaped(wanted))
