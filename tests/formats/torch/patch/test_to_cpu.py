"""Tensors of devices without storages that become tensors of the CPU, held against what torch saves of these."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from ckptdoctor.edits import Flatten, MoveToCpu, Retag
from ckptdoctor.facts.whole_modules import module_state
from ckptdoctor.trainer.snapshot.training import saving_with_tag
from tests.builders import moved, tagged
from tests.formats.torch.read.support import contents_of, contents_of_bytes, edited, load, save

REBUILD = "torch._utils._rebuild_"


class Rebuilt:
    """Pickles as a call of one of torch's rebuilding functions."""

    def __init__(self, name, *arguments):
        self.call = getattr(torch._utils, name), arguments

    def __reduce__(self):
        return self.call


def on_xla(value):
    """The file that torch writes where all these tensors are on an XLA device."""
    with saving_with_tag("xla:0"):
        return save(value)


def copied(value):
    """The same contents on the CPU, each tensor with a storage of its own, as they come from an XLA device."""
    return OrderedDict((key, tensor.detach().clone()) for key, tensor in value.items())


def assert_same(got, wanted):
    assert (type(got), got.dtype, got.shape, got.stride()) == (
        type(wanted),
        wanted.dtype,
        wanted.shape,
        wanted.stride(),
    )
    assert got.requires_grad == wanted.requires_grad
    assert torch.equal(got, wanted)


def raw(tensor):
    """The bytes of the elements in C order."""
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def test_the_bytes_are_those_that_torch_saves_on_the_cpu():
    """A state dict of an XLA device becomes, byte for byte, the file that torch writes on the CPU."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2).bfloat16())
    state_dict = copied(model.state_dict())
    got, wanted = edited(on_xla(state_dict), [MoveToCpu()]), save(state_dict)
    assert got.data == wanted.data
    assert got.storages == wanted.storages


def test_parameters_and_gradients_stay_what_they_are():
    """As loading on the device gives them: a Parameter, frozen or not, and a plain tensor that wants a gradient."""
    values = {
        "p": nn.Parameter(torch.ones(2)),
        "frozen": nn.Parameter(torch.ones(2), requires_grad=False),
        "grad": torch.ones(2, requires_grad=True),
        "view": torch.arange(6.0).reshape(2, 3).t().contiguous(),
    }
    loaded = load(edited(on_xla(values), [MoveToCpu()]))
    for key, wanted in values.items():
        assert_same(loaded[key], wanted)


def test_what_the_outer_call_says_of_gradients_counts():
    """The tensor inside may say something else; the device's tensor is as the call around it says."""
    calls = {
        grad: Rebuilt("_rebuild_device_tensor_from_cpu_tensor", torch.ones(2), torch.float32, "xla:0", grad)
        for grad in (True, False)
    }
    loaded = load(edited(save(calls), [MoveToCpu()]))
    assert (loaded[True].requires_grad, loaded[False].requires_grad) == (True, False)


def test_attributes_of_tensors_stay():
    """A tensor with attributes is rebuilt by a call that wraps the other."""
    weight = torch.ones(3)
    weight.note = "mine"
    saved = on_xla({"w": weight})
    (before,) = contents_of_bytes(saved.data).tensors
    assert (before.device, before.moved, before.rebuild) == ("xla:0", True, "torch._tensor._rebuild_from_type_v2")
    loaded = load(edited(saved, [MoveToCpu()]))
    assert torch.equal(loaded["w"], weight)
    assert loaded["w"].note == "mine"


def test_one_tensor_in_two_places_stays_one():
    """What the memo shares is moved once."""
    tensor = nn.Parameter(torch.ones(2))
    loaded = load(edited(on_xla({"a": tensor, "b": [tensor]}), [MoveToCpu()]))
    assert loaded["a"] is loaded["b"][0]


def test_a_copy_that_two_tensors_were_made_of_is_shared_by_both():
    """As ``map_location="cpu"`` gives them: two tensors on one storage."""
    copy = torch.arange(3.0)
    calls = [
        Rebuilt("_rebuild_device_tensor_from_cpu_tensor", copy, copy.dtype, "xla:0", grad) for grad in (False, True)
    ]
    loaded = load(edited(save([*calls, copy]), [MoveToCpu()]))
    assert len({tensor.data_ptr() for tensor in loaded}) == 1
    assert [tensor.requires_grad for tensor in loaded] == [False, True, False]


def test_only_the_devices_that_are_named():
    """The others, and what is on the CPU, stay byte for byte; so do texts that look like the device."""
    value = {"a": moved(torch.ones(2)), "b": moved(torch.ones(2), "xla:1"), "xla:0": "xla:0"}
    got = contents_of_bytes(edited(save(value), [MoveToCpu(("xla:0",))]).data)
    assert [tensor.device for tensor in got.tensors] == ["cpu", "xla:1"]
    assert edited(save(value), [MoveToCpu(("mtia:0",))]).data == save(value).data


def test_retagging_leaves_the_device_alone():
    """What loading moves elsewhere goes there from wherever its copy is."""
    got = contents_of_bytes(edited(save({"a": moved(torch.ones(2))}), [Retag("cuda:0")]).data)
    assert (got.tensors[0].device, got.tensors[0].storage.device) == ("xla:0", "cuda:0")


# ---- arrays


VALUES = {
    "float": torch.arange(6.0).reshape(2, 3),
    "turned": torch.arange(6.0).reshape(2, 3).t(),
    "half": torch.arange(5.0).half(),
    "bfloat16": torch.randn(7).bfloat16(),
    "special": torch.tensor([float("nan"), float("-inf"), -0.0]).bfloat16(),
    "long": torch.arange(-2, 2),
    "bool": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j]),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
}


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("name", VALUES)
def test_arrays_get_storages(name, protocol):
    """The elements of an array are, bit for bit, those of the storage that it becomes; it is what torch would load."""
    saved = save({"x": moved(VALUES[name], saved_as="array"), "cpu": torch.ones(2)}, protocol)
    (before, _) = contents_of_bytes(saved.data).tensors
    assert (before.storage, before.stride, before.moved) == (None, VALUES[name].stride(), True)
    got = edited(saved, [MoveToCpu()])
    wanted = VALUES[name] if name == "turned" else VALUES[name].contiguous()
    loaded = load(got, weights_only=protocol == 2)["x"]
    assert (loaded.dtype, loaded.shape, loaded.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    assert raw(loaded) == raw(wanted)
    assert b"numpy" not in got.data


def test_arrays_make_the_pickle_that_torch_writes_today():
    """Parameters from arrays become the file that torch writes on the CPU."""
    values = [nn.Parameter(torch.arange(4.0)), torch.ones(3, dtype=torch.int32)]
    got = edited(save([moved(value, saved_as="array") for value in values]), [MoveToCpu()])
    wanted = save(values)
    assert (got.data, got.storages) == (wanted.data, wanted.storages)


def test_one_array_is_one_storage():
    """Tensors that were made of one array share it."""
    array = torch.arange(3.0).numpy()
    calls = [Rebuilt("_rebuild_xla_tensor", array, torch.float32, "xla:0", False) for _ in range(2)]
    loaded = load(edited(save([*calls, calls[0]]), [MoveToCpu()]))
    assert len({tensor.data_ptr() for tensor in loaded}) == 1
    assert loaded[0] is loaded[2]


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (torch.tensor([0.1]).numpy(), torch.bfloat16),  # would have to be rounded
        (torch.ones(1).double().numpy(), torch.float32),
        (torch.ones(1).numpy().astype(">f4"), torch.float32),
        (torch.ones(1).numpy().astype("u2"), torch.uint16),  # has no typed storage
    ],
)
def test_what_is_not_plainly_there_stays(array, dtype):
    """A value is never rounded or swapped: the tensor is shown, without values, and nothing changes."""
    saved = save({"x": Rebuilt("_rebuild_device_tensor_from_numpy", array, dtype, "xla:0", False)})
    (tensor,) = contents_of_bytes(saved.data).tensors
    assert (tensor.device, tensor.values) == ("xla:0", None)
    assert edited(saved, [MoveToCpu()]).data == saved.data


@pytest.mark.parametrize(
    "call",
    [
        ("_rebuild_device_tensor_from_cpu_tensor", torch.ones(2), torch.float16, "xla:0", False),  # another dtype
        ("_rebuild_device_tensor_from_cpu_tensor", nn.Parameter(torch.ones(2)), torch.float32, "xla:0", False),
        ("_rebuild_device_tensor_from_cpu_tensor", torch.ones(2).to_sparse(), torch.float32, "xla:0", True),
        ("_rebuild_device_tensor_from_numpy", [1.0], torch.float32, "xla:0", False),
        ("_rebuild_device_tensor_from_numpy", torch.ones(1).numpy(), torch.float32, 7, False),
    ],
)
def test_calls_that_torch_never_writes_are_no_tensors(call):
    """They are shown as objects, and nothing changes."""
    saved = save({"x": Rebuilt(*call)})
    assert [each for each in contents_of_bytes(saved.data).tensors if each.path == ("x",)] == []
    assert edited(saved, [MoveToCpu()]).data == saved.data


def test_sparse_tensors_come_back():
    """A sparse copy keeps its indices and values."""
    sparse = torch.eye(3).to_sparse()
    call = Rebuilt("_rebuild_device_tensor_from_cpu_tensor", sparse, sparse.dtype, "mtia:0", False)
    (before,) = contents_of(call).tensors
    assert (before.layout, before.device, before.moved) == ("sparse_coo", "mtia:0", True)
    assert torch.equal(load(edited(save(call), [MoveToCpu()])).to_dense(), torch.eye(3))


# ---- whole models


@pytest.mark.parametrize("flat_first", [True, False])
def test_whole_models_become_state_dicts(flat_first):
    """Parameters of an XLA device, tied ones too, come out of a pickled module before or after they are moved."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    saved = on_xla(model)
    flat = Flatten((), module_state(contents_of_bytes(saved.data).tree).tensors)
    edits = [flat, MoveToCpu()] if flat_first else [MoveToCpu(), flat]
    got = edited(saved, edits)
    loaded = load(got)
    assert all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())
    assert loaded["0.weight"].data_ptr() == loaded["2.weight"].data_ptr()
    assert got.data == edited(saved, edits[::-1]).data


def test_a_state_dict_may_stay_on_its_device():
    """Flattened alone, it holds the calls that torch would save of the state dict there, without gradients."""
    model = nn.Linear(2, 2)
    saved = on_xla(model)
    got = edited(saved, [Flatten((), module_state(contents_of_bytes(saved.data).tree).tensors)])
    tensors = contents_of_bytes(got.data).tensors
    assert {(each.rebuild, each.device, each.requires_grad) for each in tensors} == {
        (f"{REBUILD}device_tensor_from_cpu_tensor", "xla:0", False)
    }
    assert got.data == on_xla(OrderedDict(model.state_dict())).data


def test_tagged_copies_keep_their_tags():
    """A copy that was tagged itself is moved no further than to where it is tagged."""
    copy = tagged(torch.ones(2), "cuda:0")
    call = Rebuilt("_rebuild_device_tensor_from_cpu_tensor", copy, copy.dtype, "xla:0", False)
    got = contents_of_bytes(edited(save({"x": call}), [MoveToCpu()]).data)
    assert (got.tensors[0].device, got.tensors[0].moved) == ("cuda:0", False)
