"""Edits of the graph: what is changed in one place changes there alone, and what is written stays a valid pickle."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from collections import OrderedDict

import pytest
import torch

from ckptdoctor.errors import UnprovenError
from ckptdoctor.pickles import Made, Mutation, PersistentId, Popped, String, Tuple, decode
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.encode import encode, prove
from tests.pickles.payloads import OBJECTS, TORCH, saved
from tests.pickles.reading import below, value_of


class Reader(pickle.Unpickler):
    """The standard unpickler, with persistent ids as plain tuples."""

    def persistent_load(self, identity):
        return identity

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2":
            return lambda storage, *others: ("tensor", storage)
        return "class" if name.endswith("Storage") else super().find_class(module, name)


def read(data):
    return Reader(io.BytesIO(data)).load()


def slots(root, wanted):
    """Every (list, index) in the graph at which ``wanted`` stands."""
    for node in below(root):
        holders = [getattr(node, "items", None) or []]
        holders += [step.payload for step in getattr(node, "steps", None) or ()]
        yield from ((holder, at) for holder in holders for at, each in enumerate(holder) if each is wanted)


def text_node(root, value):
    return next(node for node in below(root) if isinstance(node, String) and node.value == value)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("config_first", [True, False])
def test_retagging_one_storage_leaves_what_shares_its_text(protocol, config_first):
    """The user's "cpu" and every storage's tag are one memo entry; changing one slot leaves the others."""
    device = "cpu"
    entries = [("device", device), ("a", torch.zeros(1)), ("b", torch.zeros(1)), ("again", device)]
    data = saved(OrderedDict(entries if config_first else entries[1:] + entries[:1]), protocol)
    before = read(data)
    identities = [node for node in below(decode(data).root) if isinstance(node, PersistentId)]
    for number in range(len(identities)):
        pickled = decode(data)
        chosen = [node for node in below(pickled.root) if isinstance(node, PersistentId)][number].id
        assert isinstance(chosen, Tuple)
        chosen.items[3] = String(op.BINUNICODE, "cuda:0")
        after = read(encode(pickled))
        assert after["device"] == after["again"] == "cpu"
        key = chosen.items[2].value
        for name in ("a", "b"):
            storage = before[name][1]
            changed = (*storage[:3], "cuda:0", *storage[4:])
            assert after[name] == ("tensor", changed if storage[2] == key else storage)


@pytest.mark.parametrize("protocol", range(6))
def test_replacing_a_shared_text_in_one_place(protocol):
    """Wherever the first use of a shared value is replaced, its next use defines it."""
    key = "shared"
    value = {"list": [key, key], "dict": {key: key}, "tuple": (key, 1, (key,))}
    data = pickle.dumps(value, protocol)
    root = decode(data).root
    count = len(list(slots(root, text_node(root, key))))
    assert count == 6
    for number in range(count):
        pickled = decode(data)
        holder, at = list(slots(pickled.root, text_node(pickled.root, key)))[number]
        holder[at] = String(op.BINUNICODE if protocol else op.UNICODE, "new")
        expected = value_of(pickled.root)
        assert expected != value
        after = encode(pickled)
        assert pickle.loads(after) == expected
        prove(after, decode(after))


def test_any_values_can_be_taken_out():
    """Pairs and items removed at random, with the definitions in them, leave a pickle of what remains."""
    draw = random.Random(0)
    shared = ["s", ("t", "s"), {"u": "s"}]
    value = {f"k{at}": draw.choices([*shared, at, f"k{at // 2}", [shared[1], "s"]], k=3) for at in range(40)}
    for protocol in (0, 1, 2, 4):
        data = pickle.dumps(value, protocol)
        for _ in range(20):
            pickled = decode(data)
            holders = [step.payload for step in pickled.root.steps]
            for payload in holders:
                gone = {at for at in range(0, len(payload), 2) if draw.random() < 0.4 and len(payload) > 2}
                payload[:] = [each for at, each in enumerate(payload) if at - at % 2 not in gone]
            if protocol == 0:
                pickled.root.steps = [step for step in pickled.root.steps if step.payload]
            expected = value_of(pickled.root)
            assert pickle.loads(encode(pickled)) == expected


def test_new_values_may_be_shared_through_fresh_memo_indices():
    """``next_memo`` is free: a new node that has it can be used in several places and stays one object."""
    for protocol in (0, 1, 2, 4):
        pickled = decode(pickle.dumps([["a"], ["a"], {"b": 1}], protocol))
        new = Made(op.EMPTY_LIST if protocol else op.LIST, memo=pickled.next_memo)
        pickled.root.steps.append(Mutation(op.APPENDS if protocol else op.APPEND, [new, new] if protocol else [new]))
        if not protocol:
            pickled.root.steps.append(Mutation(op.APPEND, [new]))
        loaded = pickle.loads(encode(pickled))
        assert loaded == [["a"], ["a"], {"b": 1}, [], []]
        assert loaded[-1] is loaded[-2]


def test_frames_are_made_anew_where_an_edit_moved_them():
    """After an edit the frames of protocol 4 and 5 fit what is in them; large objects stay outside."""
    value = {"first": "x" * 70000, **{f"key{at}": [at, str(at)] for at in range(20000)}, "last": b"y" * 70000}
    for protocol in (4, 5):
        data = pickle.dumps(value, protocol)
        pickled = decode(data)
        assert len(pickled.frames) > 3
        node = text_node(pickled.root, "key7")
        node.value = "a much longer key"
        after = encode(pickled)
        expected = {("a much longer key" if key == "key7" else key): each for key, each in value.items()}
        assert pickle.loads(after) == pickle._loads(after) == expected
        again = decode(after)
        assert not again.ambiguities
        assert len(again.frames) > 3
        prove(after, again)


def test_an_edit_that_moves_no_frame_keeps_them():
    """A text replaced by one of the same length changes just its bytes."""
    data = pickle.dumps({f"key{at:05}": at for at in range(20000)}, 4)
    pickled = decode(data)
    text_node(pickled.root, "key00007").value = "KEY00007"
    assert encode(pickled) == data.replace(b"key00007", b"KEY00007")


def test_a_tuple_may_change_its_length():
    """The opcode of a tuple follows the number of its items."""
    for protocol in (0, 1, 2, 4):
        for before in range(6):
            for after in range(6):
                pickled = decode(pickle.dumps([tuple(range(before))], protocol))
                holder = next(node for node in below(pickled.root) if isinstance(node, Tuple))
                holder.items[:] = list(range(10, 10 + after))
                assert pickle.loads(encode(pickled)) == [tuple(range(10, 10 + after))]


@pytest.mark.parametrize("name", ["own tuple", "own long tuple"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_recursive_tuple_can_be_put_elsewhere(name, protocol):
    """A tuple that contains itself is written as a pickler would, also without what was thrown away before it."""
    pickled = decode(pickle.dumps(OBJECTS[name], protocol))
    assert isinstance(pickled.root, Popped)
    pickled.root = pickled.root.result
    loaded = pickle.loads(encode(pickled))
    assert loaded[0][0] is loaded


def test_steps_done_later_follow_their_object():
    """State that a circular object received where it was fetched again is written there."""
    data = pickle._dumps(OBJECTS["circular reduce with items"], 2)
    pickled = decode(data)
    late = [step for node in below(pickled.root) for step in getattr(node, "steps", None) or () if step.late]
    assert late
    late[-1].payload[0].steps[0].payload[0] = String(op.BINUNICODE, "other")
    loaded = pickle.loads(encode(pickled))
    assert loaded.other is loaded.ring


def test_a_renamed_checkpoint_loads_in_torch():
    """torch loads, with weights_only, a state dict whose keys were changed in the graph."""
    file = io.BytesIO()
    state = TORCH["state dict"]()
    torch.save(state, file)
    data = saved(state)
    pickled = decode(data)
    assert isinstance(pickled.root, Made)
    for step in pickled.root.steps or ():
        if step.op == op.SETITEMS:
            for at in range(0, len(step.payload), 2):
                step.payload[at] = String(op.BINUNICODE, "module." + step.payload[at].value)
    output = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(output, "w") as new:
        for name in old.namelist():
            new.writestr(name, encode(pickled) if name.endswith("data.pkl") else old.read(name))
    output.seek(0)
    loaded = torch.load(output, weights_only=True)
    assert list(loaded) == [f"module.{key}" for key in state]
    assert all(torch.equal(loaded[f"module.{key}"], each) for key, each in state.items())
    assert loaded._metadata == state._metadata


def test_an_entry_given_to_two_values_is_never_confused():
    """Where an edit needs a value whose memo entry was given away, encoding refuses."""
    pickled = decode(b"\x80\x02](X\x01\0\0\0aq\0X\x01\0\0\0bq\0e.")
    payload = pickled.root.steps[0].payload
    payload.append(payload[0])
    with pytest.raises(UnprovenError, match="two values"):
        encode(pickled)
