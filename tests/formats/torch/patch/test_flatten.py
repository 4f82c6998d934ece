"""Pickled modules that become state dicts, held against what torch.save writes of the state dict itself."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ckptdoctor.checkpoint import KeyPath, Opaque
from ckptdoctor.edits import Compact, Flatten, Rename, Retag
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.whole_modules import module_state
from tests.builders import tagged
from tests.formats.torch.read.support import Saved, contents_of, contents_of_bytes, edited, load, save


def flattening(model: nn.Module) -> Flatten:
    """The edit that makes a state dict of a model that is the whole contents."""
    tree = contents_of(model).tree
    assert isinstance(tree, Opaque)
    return Flatten((), module_state(tree).tensors)


def plain(model: nn.Module) -> OrderedDict:
    """The state dict without the ``_metadata``, which a pickled module does not have."""
    return OrderedDict(model.state_dict())


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False))
    model[2].weight = model[0].weight
    model.register_buffer("view", model[1].running_mean[1:3])
    return model


def on_cuda() -> nn.Module:
    model = nn.Linear(2, 2)
    for parameter in model.parameters():
        tagged(parameter.data, "cuda:1")
    return model


MODELS = {
    "tied": tied,
    "one parameter": nn.PReLU,
    "frozen": lambda: nn.Linear(2, 2).requires_grad_(False),
    "lstm": lambda: nn.LSTM(2, 3),
    "many": lambda: nn.ModuleList([nn.PReLU() for _ in range(1001)]),
    "wrapped": lambda: nn.DataParallel(nn.Conv2d(1, 2, 3)),
    "nothing": nn.ReLU,
    "bfloat16": lambda: nn.Linear(3, 2).bfloat16(),
    "cuda": on_cuda,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_the_bytes_are_those_that_torch_saves_of_the_state_dict(make):
    """Pickle and storages are, byte for byte, those of ``torch.save`` of the state dict without its _metadata."""
    model = make()
    got, wanted = edited(save(model), [flattening(model)]), save(plain(model))
    assert got.data == wanted.data
    assert got.storages == wanted.storages


NAMES = st.sampled_from(["a", "b", "weight", "bias", "0", "module"])


@st.composite
def modules(draw: st.DrawFn, depth: int = 3) -> nn.Module:
    """A module of any shape: parameters, buffers and modules that are shared, absent, or not to be saved."""
    made, pool = nn.Module(), [nn.Parameter(torch.ones(number)) for number in range(1, 4)]
    for name in draw(st.lists(NAMES, unique=True)):
        kind = draw(st.sampled_from(["parameter", "no parameter", "buffer", "no buffer", "passing", "module"]))
        if kind == "module":
            made.add_module(name, draw(st.none() | modules(depth - 1)) if depth else None)
        elif kind.endswith("parameter"):
            made.register_parameter(name, None if kind == "no parameter" else draw(st.sampled_from(pool)))
        else:
            value = None if kind == "no buffer" else pool[0].data[: draw(st.integers(0, 1))]
            made.register_buffer(name, value, persistent=kind != "passing")
    if draw(st.booleans()):
        made.add_module("once more", next(iter(made.children()), None))
    return made


@settings(deadline=None, max_examples=60)
@given(modules())
def test_any_module_gives_what_torch_saves(model: nn.Module):
    """Whatever it is made of: the bytes are those of its state dict, shared modules and tensors included."""
    got, wanted = edited(save(model), [flattening(model)]), save(plain(model))
    assert got.data == wanted.data
    assert got.storages == wanted.storages


class Odd(nn.Module):
    """Tensors of many kinds as parameters and buffers; two names for one buffer, and attributes on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.strided = nn.Parameter(torch.arange(60.0)[7:31].view(4, 6).t())
        self.named = nn.Parameter(torch.ones(2))
        self.named.extra = {"scale": torch.ones(3)}
        self.sparse = nn.Parameter(torch.eye(3).to_sparse())
        self.float8 = nn.Parameter(torch.ones(4).to(torch.float8_e4m3fn), requires_grad=False)
        self.wide = nn.Parameter(torch.ones(2, dtype=torch.uint16), requires_grad=False)
        self.meta = nn.Parameter(torch.empty(3, device="meta"))
        self.conj = nn.Parameter(torch.ones(2, dtype=torch.complex64).conj())
        self.buffer = nn.Buffer(torch.ones(3))
        self.register_buffer("again", self.buffer)
        self.register_buffer("grad", torch.ones(2, requires_grad=True))
        self.register_buffer("attributes", torch.zeros(2))
        self.attributes.note = "x"
        self.register_buffer("quantized", torch.quantize_per_tensor(torch.ones(4), 0.5, 1, torch.qint8))
        self.register_buffer("none", None)
        self.register_buffer("passing", torch.ones(5), persistent=False)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_every_kind_of_tensor_comes_as_state_dict_gives_it(protocol):
    """Detached, without attributes; what is meant for nothing but a Parameter is gone."""
    model = Odd()
    loaded = load(edited(save(model, protocol), [flattening(model)]), weights_only=protocol == 2)
    wanted = model.state_dict()
    assert list(loaded) == list(wanted)
    for key, tensor in loaded.items():
        assert type(tensor) is torch.Tensor
        assert not tensor.requires_grad
        assert not getattr(tensor, "__dict__", None)
        assert (tensor.dtype, tensor.shape, tensor.layout) == (wanted[key].dtype, wanted[key].shape, wanted[key].layout)
        assert tensor.is_meta or repr(tensor) == repr(wanted[key])
    assert loaded["strided"].stride() == (1, 6)
    assert loaded["buffer"].data_ptr() == loaded["again"].data_ptr()
    assert loaded["buffer"] is not loaded["again"]


def test_the_nouns_say_what_torch_says_of_its_own_state_dict():
    """The rebuilt pickle is read as the same contents as that of the state dict."""
    model = Odd()
    got = contents_of_bytes(edited(save(model), [flattening(model)]).data)
    wanted = contents_of(plain(model))
    assert [(each.path, each.rebuild, each.stride) for each in got.tensors] == [
        (each.path, each.rebuild, each.stride) for each in wanted.tensors
    ]


def old_save() -> Saved:
    """A Parameter and a buffer as torch 0.3 pickled them, in a module."""

    class Call:
        def __init__(self, *made):
            self.made = made

        def __reduce__(self):
            return self.made

    model = nn.Linear(2, 2, bias=False)
    (_, (storage, *view, _, _)) = model.weight.data.__reduce_ex__(2)
    old = Call(torch._utils._rebuild_tensor, (storage, *view))
    model.__dict__["_parameters"] = {"weight": Call(nn.Parameter, (old,), (True, False, OrderedDict()))}
    model.__dict__["_buffers"] = {"same": old}
    del model.__dict__["_non_persistent_buffers_set"]
    return save(model)


def test_tensors_of_torch_03_are_written_as_those_of_today():
    """``_rebuild_tensor`` without requires_grad becomes ``_rebuild_tensor_v2``."""
    saved = old_save()
    places: tuple[tuple[str, KeyPath], ...] = (("weight", ("_parameters", "weight")), ("same", ("_buffers", "same")))
    got = edited(saved, [Flatten((), places)])
    assert {each.rebuild for each in contents_of_bytes(got.data).tensors} == {"torch._utils._rebuild_tensor_v2"}
    loaded = load(got)
    assert torch.equal(loaded["weight"], loaded["same"])
    assert loaded["weight"].shape == (2, 2)


def test_later_edits_go_on_from_there():
    """Keys are renamed, storages cut and retagged as in any state dict; the other copy of the model stays whole."""
    model = tied()
    saved = save({"a": model, "b": model, "weight": model[0].weight})
    places = flattening(model).tensors
    names = tuple((key, f"x.{key}") for key, _ in places)
    edits = [Flatten(("a",), places), Rename(("a",), names), Retag("cpu"), Compact(("0",))]
    loaded = load(edited(saved, edits), weights_only=False)
    assert list(loaded["a"]) == [new for _, new in names]
    assert isinstance(loaded["b"], nn.Sequential)
    assert isinstance(loaded["weight"], nn.Parameter)
    assert loaded["a"]["x.0.weight"].data_ptr() == loaded["b"][0].weight.data_ptr() == loaded["weight"].data_ptr()
    both = load(edited(saved, [Flatten(("a",), places), Flatten(("b",), places)]), weights_only=True)
    assert all(torch.equal(both["a"][key], both["b"][key]) for key in model.state_dict())
    assert both["a"]["0.weight"].data_ptr() == both["b"]["0.weight"].data_ptr()


@pytest.mark.parametrize(
    ("path", "place"), [((), ("_parameters", "none")), (("nowhere",), ("x",)), ((), ("in_features",)), ((), ())]
)
def test_what_is_not_there_or_no_tensor_is_refused(path, place):
    """With a sentence."""
    with pytest.raises(RefusedError, match=r"\.$"):
        edited(save(nn.Linear(2, 2)), [Flatten(path, (("key", place),))])
