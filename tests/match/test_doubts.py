"""When a chain of renames says that it is a guess, and when it is not even one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ckptdoctor.match.prefixes import best_prefix
from ckptdoctor.match.search import find_moves
from tests.work import growth


@dataclass(frozen=True)
class Shaped:
    """All that the search looks at."""

    shape: tuple[int, ...]


BODY = {f"body.{number}.weight": Shaped((4, 4)) for number in range(22)}


def head(name):
    """A head under a name."""
    return {f"{name}.weight": Shaped((2, 4)), f"{name}.bias": Shaped((2,))}


def blocks(*parts):
    """Three blocks with parts of one shape."""
    return {f"blocks.{number}.attn.{part}.weight": Shaped((4, 4)) for number in range(3) for part in parts}


def names_after(here, moves):
    """What each key is called in the end."""
    names = {key: key for key in here}
    for move in moves:
        names = {key: move.change(name) for key, name in names.items()}
    return names


@pytest.mark.parametrize("name", ["fc", "qa_outputs", "aux.head", "head_dist", "cls.seq_relationship"])
def test_a_lone_part_under_another_name_is_a_guess(name):
    """All the rest has its name already: what is left may be the head of another task."""
    moves = find_moves({**BODY, **head(name)}, {**BODY, **head("head")})
    assert not any(move.sure for move in moves)


@pytest.mark.parametrize("name", ["HEAD", "he_ad", "he.ad"])
def test_a_lone_part_that_is_only_spelled_otherwise_is_sure(name):
    """Case and separators say nothing about what a part is."""
    moves = find_moves({**BODY, **head(name)}, {**BODY, **head("head")})
    assert moves
    assert all(move.sure for move in moves)


def test_a_head_beside_a_renamed_body_is_sure():
    """Where the whole model has other names, its head may have another one, too."""
    here = {**{key.replace("body", "layers"): value for key, value in BODY.items()}, **head("fc")}
    moves = find_moves(here, {**BODY, **head("head")})
    assert set(names_after(here, moves).values()) == {*BODY, *head("head")}
    assert all(move.sure for move in moves)


def test_one_of_many_foreign_keys_is_not_even_a_guess():
    """Of a whole foreign model some layer has the right shape: that is a coincidence."""
    foreign = {f"other.{number}.weight": Shaped((number, 9)) for number in range(9)}
    assert find_moves({**BODY, **foreign, **head("cls.transform")}, {**BODY, **head("pooler")}) == []


@pytest.mark.parametrize("order", [("k", "q", "v"), ("v", "k", "q"), ("q", "k", "v")])
def test_what_names_say_comes_before_what_their_order_says(order):
    """In any order, ``k`` becomes ``k_proj``."""
    here = blocks(*order)
    names = names_after(here, find_moves(here, blocks("q_proj", "k_proj", "v_proj")))
    assert names == {key: key.replace(".weight", "_proj.weight") for key in here}


@pytest.mark.parametrize(
    ("here", "there"), [("wq", "q_proj"), ("query_key_value", "qkv"), ("Wqkv", "in_proj"), ("c_attn", "qkv_proj")]
)
def test_parts_whose_rows_may_be_arranged_otherwise_are_a_guess(here, there):
    """Rotary embeddings and fused projections differ in the order of rows, which no shape tells."""
    moves = find_moves(blocks(here, "out"), blocks(there, "out"))
    assert moves
    assert not any(move.sure for move in moves)


def test_a_prefix_to_add_is_one_that_the_target_has():
    """``head.`` is not put before a whole model because one norm would fit then."""
    here = {**BODY, "norm.weight": Shaped((4,))}
    there = {**{f"stages.{key}": value for key, value in BODY.items()}, "head.norm.weight": Shaped((4,))}
    assert best_prefix(here, {**there, "stages.norm.weight": Shaped((5,))}, 0).text == "stages."
    few = {**{f"x{number}.weight": Shaped((7,)) for number in range(9)}, "head.norm.weight": Shaped((4,))}
    assert best_prefix(here, few, 0) is None


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_names_that_are_all_different():
    """Not with its square: ten thousand names of which each is another one are given up on quickly."""

    def given_up(layers):
        there = {f"layers.{number}.{part}.weight": Shaped((4, 4)) for number in range(layers) for part in "abcd"}
        here = {f"l{index}.p{index * 7}.q{index}.weight": Shaped((4, 4)) for index in range(len(there))}
        assert not any(move.sure for move in find_moves(here, there))

    assert growth(given_up, 250, 2_500, runs=1) < 40
