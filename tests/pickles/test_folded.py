"""Tensors that stay folded: small until their nodes are asked for, and the same then as if they had never been."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch

from ckptdoctor.errors import UnprovenError
from ckptdoctor.pickles import Made, String, decode
from ckptdoctor.pickles.encode import encode, prove


def pickle_of(contents):
    """The data.pkl that torch.save writes."""
    file = io.BytesIO()
    torch.save(contents, file)
    with zipfile.ZipFile(file) as archive:
        return archive.read("archive/data.pkl")


def many(count=100):
    """A pickle with more tensors than the 256 memo entries that are written short."""
    return pickle_of({f"layers.{index}.weight": torch.zeros(2, 3) for index in range(count)})


def tensors_of(pickle):
    """The tensor nodes of a dict of tensors."""
    values = [value for step in pickle.root.steps for value in step.payload]
    return [value for value in values if type(value) is Made]


def test_a_proof_opens_no_folded_tensor():
    """Encoding an untouched pickle gives its bytes, and most tensors are still folded afterwards."""
    data = many()
    pickle = decode(data)
    prove(data, pickle)
    assert sum(node.folded is not None for node in tensors_of(pickle)) > 50


def test_asking_for_the_items_opens_it_for_good():
    """The items are callee and arguments, and the same objects each time."""
    node = tensors_of(decode(many()))[-1]
    assert node.folded is not None
    items = node.items
    assert node.folded is None
    assert node.items is items
    assert items[0].full == "torch._utils._rebuild_tensor_v2"


def test_opened_tensors_encode_to_the_same_bytes():
    """One tensor opened, or all of them: the bytes do not change."""
    data = many()
    pickle = decode(data)
    for node in tensors_of(pickle)[::2]:
        assert node.items
    assert encode(pickle) == data


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1])
def test_one_other_byte_fails_the_proof_which_names_it(share):
    """Wherever in the stream it is: among many tensors, or the last of all."""
    data = many()
    at = int(share * (len(data) - 1))
    with pytest.raises(UnprovenError) as caught:
        prove(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], decode(data))
    assert caught.value.offset == at


def test_a_storage_key_that_another_tensor_fetches_is_one_node():
    """Tied tensors share the text of their storage key through the memo, also when the first one was folded."""
    tied = torch.zeros(4)
    contents = {f"a{index}": torch.zeros(2) for index in range(60)}
    data = pickle_of({**contents, "first": tied, "second": tied.view(2, 2)})
    pickle = decode(data)
    *_, first, second = tensors_of(pickle)
    keys = [node.items[1].items[0].id.items[2] for node in (first, second)]
    assert keys[0].value == keys[1].value
    assert keys[0] is keys[1]
    assert encode(pickle) == data


def test_a_changed_tensor_among_folded_ones_is_written_as_changed():
    """A new device tag in one tensor shows in that one only."""
    data = many()
    pickle = decode(data)
    node = tensors_of(pickle)[-1]
    identity = node.items[1].items[0].id
    identity.items[3] = String(identity.items[2].op, "cuda:7")
    again = decode(encode(pickle))
    tags = [node.items[1].items[0].id.items[3].value for node in tensors_of(again)]
    assert tags == ["cpu"] * (len(tags) - 1) + ["cuda:7"]


def test_values_that_got_other_memo_entries_are_fetched_from_there():
    """A folded tensor is written anew when what it fetches has moved in the memo."""
    pickle = decode(many())
    first = tensors_of(pickle)[0]
    location = first.items[1].items[0].id.items[3]
    location.memo = pickle.next_memo
    again = decode(encode(pickle))
    assert {node.items[1].items[0].id.items[3].value for node in tensors_of(again)} == {"cpu"}


def shared(count=100):
    """A pickle of dicts of tensors: the third has what the first has, and a list what the second has, all fetched."""
    tensors = {f"layers.{index}.weight": torch.zeros(2, 3) for index in range(count)}
    others = {f"more.{index}.weight": torch.zeros(4) for index in range(count)}
    again = dict(reversed(tensors.items()))
    return pickle_of({"a": tensors, "b": others, "c": again, "d": [*others.values(), *others]})


def inside(pickle):
    """What is in each dict or list of a dict of them: the keys and values, or the items."""
    (outer,) = [step.payload for step in pickle.root.steps]
    return [[value for step in each.steps for value in step.payload] for each in outer[1::2]]


def test_what_another_dict_has_is_fetched_from_among_its_folded_tensors():
    """Keys and tensors that several places share are written once, and are one object when they are read again."""
    data = shared()
    prove(data, decode(data))
    pickle = decode(data)
    first, second, _, _ = inside(pickle)
    for key in (*first[::20], *second[::20]):
        key.value = f"new.{key.value}"
    first, second, third, listed = inside(decode(encode(pickle)))
    assert sorted(map(id, third)) == sorted(map(id, first))
    assert list(map(id, listed)) == list(map(id, [*second[1::2], *second[::2]]))


@pytest.mark.parametrize("place", [120, 121, 180, 181])
@pytest.mark.parametrize("taker", [0, 2, 3, 100])
def test_a_memo_entry_that_was_given_away_is_never_fetched(place, taker):
    """Where another dict takes the entry of a key or a tensor among folded ones, what needs it is refused."""
    pickle = decode(shared())
    first, second, _, _ = inside(pickle)
    second[taker].memo = first[place].memo
    with pytest.raises(UnprovenError, match="two values"):
        encode(pickle)


@pytest.mark.parametrize("taker", [0, 2, 3, 100])
@pytest.mark.parametrize("which", ["inside a tensor", "of nothing"])
def test_a_memo_entry_that_nothing_needs_may_be_taken(taker, which):
    """It is one inside a folded tensor, or one between two dicts whose value is no longer stored."""
    pickle = decode(shared())
    first, second, _, _ = inside(pickle)
    text = pickle.root.steps[0].payload[2]
    second[taker].memo = first[121].memo - 1 if which == "inside a tensor" else text.memo
    if which == "of nothing":
        text.memo = String(text.op, "").memo
    first, second, third, listed = inside(decode(encode(pickle)))
    assert sorted(map(id, third)) == sorted(map(id, first))
    assert list(map(id, listed)) == list(map(id, [*second[1::2], *second[::2]]))
