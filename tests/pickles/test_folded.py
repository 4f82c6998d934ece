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
