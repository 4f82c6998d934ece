"""The short way through a tensor's opcodes builds what the single opcodes would have built."""

from __future__ import annotations

import io
import pickletools
import random
import zipfile
from collections import OrderedDict
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.pickles import Made, decode, weights_only
from ckptdoctor.pickles.encode import prove
from ckptdoctor.pickles.graph import nodes, values_inside_folded
from ckptdoctor.pickles.opcode_handlers import containers
from ckptdoctor.pickles.weights_only import judged
from tests.builders import saving_tags, tagged
from tests.pickles.payloads import TORCH, saved


def described(value):
    """The graph as nested plain data, each node in full where it first appears and by number afterwards."""
    numbers = {}

    def describe(node):
        if isinstance(node, list):
            return [describe(each) for each in node]
        if not hasattr(node, "memo"):
            return (type(node).__name__, repr(node))
        if id(node) in numbers:
            return numbers[id(node)]
        numbers[id(node)] = len(numbers)
        names = ("op", "memo", "value", "raw", "module", "name", "items", "parts", "id", "discarded", "result")
        found = [(name, describe(getattr(node, name))) for name in names if name != "memo" and hasattr(node, name)]
        steps = [(step.op, step.late, describe(step.payload)) for step in getattr(node, "steps", None) or ()]
        return (type(node).__name__, node.memo, found, steps)

    return describe(value)


def slowly(data):
    """Decode by single opcodes alone."""
    with mock.patch.object(containers, "take_tensor", lambda machine, at: 0):
        return decode(data)


def outcome(function, data):
    """All that decoding tells, or the error."""
    try:
        pickled = function(data)
    except CkptDoctorError as error:
        return error.message
    told = (
        pickled.opcodes,
        pickled.end,
        pickled.next_memo,
        pickled.globals,
        pickled.ambiguities,
        pickled.discards_calls,
    )
    return described(pickled.root), told


def many(count=70, **kwargs):
    """Enough tensors for memo indices beyond 255, where the short way begins; all kinds of shapes."""
    shapes = [(), (3,), (300,), (2, 70000), (2, 3, 4), (1, 2, 3, 4), (0,), (2, 1, 1, 1, 2)]
    return OrderedDict((f"layer.{i}", torch.empty(shapes[i % len(shapes)], **kwargs)) for i in range(count))


def tagged_cuda():
    with saving_tags():
        return saved(OrderedDict((f"w{i}", tagged(torch.zeros(2, i), "cuda:1")) for i in range(60)))


SAMPLES = {
    "shapes": lambda: saved(many()),
    "keys of three lengths": lambda: saved(many(130)),
    "half": lambda: saved(many(dtype=torch.float16)),
    "requires grad": lambda: saved(many(requires_grad=True)),
    "parameters": lambda: saved([torch.nn.Parameter(torch.zeros(i, 2)) for i in range(60)]),
    "views": lambda: saved([base := torch.zeros(100, 300), *(base[i:, 2:] for i in range(60))]),
    "device tags": tagged_cuda,
    "optimizer": lambda: saved([many(), TORCH["optimizer and scheduler"]()]),
    "other protocol": lambda: saved(many(), 4),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_short_way_builds_the_same_graph(name):
    """Nodes, memo indices, counts and notes do not depend on the way."""
    data = SAMPLES[name]()
    assert outcome(decode, data) == outcome(slowly, data)
    prove(data, decode(data))
    assert decode(data).opcodes == sum(1 for _ in pickletools.genops(data))


@pytest.mark.parametrize("name", ["shapes", "half", "requires grad", "parameters", "device tags"])
def test_the_short_way_is_taken(name):
    """Most tensors of an ordinary file go the short way; without it nothing here would be tested."""
    graph = nodes(decode(SAMPLES[name]()).root, values_inside_folded)
    assert sum(type(node) is Made and node.folded is not None for node in graph) > 25


def test_damage_has_the_same_effect_on_both_ways():
    """Whatever bytes are changed, both ways give the same graph or the same error."""
    data, draw = saved(many()), random.Random(0)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 2))):
            damaged[draw.randrange(len(data) // 2, len(data))] = draw.choice(
                (0, 1, 0x28, 0x71, 0x72, draw.randrange(256))
            )
        assert outcome(decode, bytes(damaged)) == outcome(slowly, bytes(damaged))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.lists(st.integers(0, 70000), max_size=6), st.booleans()), min_size=1, max_size=8))
def test_any_shape_goes_either_way(shapes):
    """Sizes and strides of any magnitude are the same on both ways."""
    tensors = [torch.empty(1).as_strided([min(each, 1) for each in shape], shape) for shape, _ in shapes]
    data = saved([many(40), *tensors])
    assert outcome(decode, data) == outcome(slowly, data)
    prove(data, decode(data))


def test_files_of_torch_itself_load_the_same_after_encoding():
    """The stream that is written from the graph is what torch loads."""
    file = io.BytesIO()
    torch.save(many(), file)
    assert torch.load(io.BytesIO(file.getvalue()), weights_only=True).keys() == many().keys()
    prove(saved(many()), decode(saved(many())))


@pytest.mark.parametrize("flips", range(40))
def test_a_tensor_is_judged_in_one_step_as_by_its_single_operations(tmp_path: Path, monkeypatch, flips: int) -> None:
    """What weights_only takes of a pickle is told alike with and without the step for whole tensors, damage or not."""
    shared = torch.ones(3)
    state = {"a": torch.zeros(2, 3), "b": shared, "c": shared[1:], "d": torch.ones(2, 1, 1, 1, 2).half()}
    more = {f"f{i}": each for i, each in enumerate(many(30).values())}
    torch.save({**state, "e": torch.nn.Parameter(torch.zeros(2)), **more}, tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt") as archive:
        data = bytearray(archive.read("m/data.pkl"))
    chance = random.Random(flips)
    for _ in range(min(flips, 2)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    told = judged(bytes(data), 0, lambda module, name: f"{module}.{name}")
    monkeypatch.setattr(weights_only._Machine, "_tensor", lambda machine: False)
    assert told == judged(bytes(data), 0, lambda module, name: f"{module}.{name}")
    assert flips or not told.refusal


@pytest.mark.parametrize("flips", range(30))
def test_entries_that_were_read_are_judged_as_if_they_were_read_again(flips: int) -> None:
    """What decoding found of a long pickle spares judging it the same work, and changes nothing that it tells."""
    tensors = {f"layers.{index}.weight": torch.zeros(index % 3 + 1, 2) for index in range(700)}
    tensors |= {
        str(b"storage", "ascii"): torch.ones(1),  # not the text that torch itself has in every tensor
        "gewöhnlich": torch.ones(2),
        **{f"z{index}": torch.ones(3) for index in range(9)},
    }
    again = dict(reversed(tensors.items()))  # the same keys and tensors, all fetched from the memo
    data = bytearray(saved({"model": tensors, "ema": again, "tied": [*tensors.values()]}))
    chance = random.Random(flips)
    for _ in range(min(flips, 2)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        pickle = decode(bytes(data))
    except CkptDoctorError:
        return

    def allowed(module: str, name: str) -> str:
        return f"{module}.{name}"

    memos = []
    run = weights_only._Machine.run
    with mock.patch.object(weights_only._Machine, "run", lambda machine: memos.append(machine._memo) or run(machine)):
        told = judged(bytes(data), 0, allowed, entries=pickle.entries)
        assert told == judged(bytes(data), 0, allowed)
    assert memos[0] == memos[1]
    assert flips or (not told.refusal and pickle.entries is not None and len(pickle.entries.runs) > 2)
