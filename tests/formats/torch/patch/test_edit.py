from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from ckptdoctor.checkpoint import Special, at
from ckptdoctor.edits import (
    Compact,
    Convert,
    Drop,
    MakeContiguous,
    Rename,
    RenameModules,
    Replace,
    Retag,
    SetMetadata,
    TakeRoot,
)
from ckptdoctor.errors import RefusedError
from tests.builders import tagged
from tests.formats.torch.read.support import Saved, contents_of_bytes, edited, load, save


def strip(keys, prefix="module.", path=()):
    return Rename(path, tuple((key, key.removeprefix(prefix)) for key in keys))


def wrapped():
    net = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.BatchNorm1d(4)))
    return net, torch.optim.AdamW(net.named_parameters(), lr=0.1)


def test_a_stripped_prefix_gives_the_bytes_that_torch_would_have_saved():
    """Renaming every key of a DataParallel state dict gives exactly the pickle of the unwrapped module's state dict."""
    net, _ = wrapped()
    got = edited(save(net.state_dict()), [strip(net.state_dict())])
    assert got.data == save(net.module.state_dict()).data
    assert got.storages == save(net.module.state_dict()).storages


def test_renaming_carries_over_to_metadata_and_param_names():
    """The prefixes of _metadata and the names in an optimizer's param_groups follow the keys."""
    net, optimizer = wrapped()
    net(torch.rand(5, 3)).sum().backward()
    optimizer.step()
    saved = save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})
    loaded = load(edited(saved, [strip(net.state_dict(), path=("model",))]))
    assert list(loaded["model"]) == list(net.module.state_dict())
    assert list(loaded["model"]._metadata) == list(net.module.state_dict()._metadata)
    names = loaded["optimizer"]["param_groups"][0]["param_names"]
    assert names == [name for name, _ in net.module.named_parameters()]
    assert torch.equal(loaded["optimizer"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_renames_applied_and_inverted_give_the_original_bytes(data):
    """Any one-to-one renaming of keys, undone, leaves not one byte different."""
    names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
    keys = data.draw(st.lists(names, min_size=1, max_size=6, unique=True))
    new = data.draw(st.lists(names, min_size=len(keys), max_size=len(keys), unique=True))
    there = Rename(("a",), tuple(zip(keys, new, strict=True)))
    back = Rename(("a",), tuple(zip(new, keys, strict=True)))
    saved = save({"a": OrderedDict((key, torch.ones(2)) for key in keys), "n": 1}, data.draw(st.sampled_from((2, 4))))
    renamed = edited(saved, [there])
    assert list(load(renamed, weights_only=False)["a"]) == new
    restored = edited(renamed, [back])
    assert restored.data == saved.data
    assert restored.storages == saved.storages


def test_two_keys_may_swap_their_names():
    """A renaming that only permutes keys is no collision."""
    saved = save({"a": torch.zeros(1), "b": torch.ones(2)})
    loaded = load(edited(saved, [Rename((), (("a", "b"), ("b", "a")))]))
    assert loaded["b"].shape == (1,)
    assert loaded["a"].shape == (2,)


def test_a_collision_is_refused_with_both_names():
    """A new name that another key keeps refuses the edit, and says which two meet."""
    saved = save({"encoder.norm.weight": torch.ones(1), "norm.weight": torch.ones(1)})
    with pytest.raises(RefusedError, match=r'"norm\.weight", but "norm\.weight" already exists'):
        edited(saved, [Rename((), (("encoder.norm.weight", "norm.weight"),))])


@pytest.mark.parametrize(
    "edit",
    [
        Rename((), (("missing", "x"),)),
        Rename(("nowhere",), (("a", "b"),)),
        Rename(("list",), (("a", "b"),)),
        RenameModules((), (("a", "b"),)),
        Drop((("nowhere",),)),
        Drop(((),)),
        Drop((("pair", 0),)),
        TakeRoot(("list", 7)),
        Replace(("list", "x"), None),
        Replace(("list",), object()),
        Compact(("99",)),
        MakeContiguous((("list",),)),
        MakeContiguous((("nowhere",),)),
        SetMetadata("a", "b"),
        Convert("safetensors"),
    ],
)
def test_edits_of_what_is_not_there_are_refused(edit):
    """An edit that has nothing to work on raises RefusedError with one sentence."""
    with pytest.raises(RefusedError) as caught:
        edited(save({"a": torch.ones(1), "list": [1, 2], "pair": (1, 2)}), [edit])
    assert caught.value.message.endswith(".")


def test_renaming_at_one_of_two_paths_leaves_the_other():
    """A dict that is saved under two keys is renamed under the one that was asked for only; tensors stay shared."""
    shared = {"module.w": torch.ones(3)}
    loaded = load(edited(save({"a": shared, "b": shared}), [strip(shared, path=("b",))]))
    assert list(loaded["a"]) == ["module.w"]
    assert list(loaded["b"]) == ["w"]
    assert loaded["a"]["module.w"] is loaded["b"]["w"]


def test_modules_of_metadata_get_new_names_alone():
    """RenameModules changes prefixes of _metadata and no key."""
    net, _ = wrapped()
    loaded = load(edited(save(net.state_dict()), [RenameModules((), (("module.0", "first"),))]))
    assert "first" in loaded._metadata
    assert list(loaded) == list(net.state_dict())


def test_retagging_changes_the_tag_of_storages_and_nothing_that_looks_like_it():
    """The text cuda:1 of a storage's tag becomes cpu; a value with the same text, and a torch.device, stay."""
    tag = "cuda:1"
    tensors = {"a": tagged(torch.ones(2), tag), "b": tagged(torch.ones(2), "cuda:0"), "c": torch.ones(2)}
    saved = save({**tensors, "config": {"device": "cuda:1", "other": "cpu"}, "d": torch.device("cuda:1")})
    loaded = load(edited(saved, [Retag("cpu")]))
    assert [loaded[key].device.type for key in "abc"] == ["cpu"] * 3
    assert loaded["config"] == {"device": "cuda:1", "other": "cpu"}
    assert loaded["d"] == torch.device("cuda:1")


def test_retagging_one_device_or_one_storage_leaves_the_others():
    """Retag touches storages with the named tags and keys only."""
    saved = save([tagged(torch.ones(2), f"cuda:{number}") for number in (0, 1, 1)])
    by_device = contents_of_bytes(edited(saved, [Retag("cuda:0", devices=("cuda:1",))]).data)
    assert [storage.device for storage in by_device.storages] == ["cuda:0"] * 3
    by_key = contents_of_bytes(edited(saved, [Retag("cpu", storages=("1",))]).data)
    assert [storage.device for storage in by_key.storages] == ["cuda:0", "cpu", "cuda:1"]


def test_retagging_where_the_tag_is_one_text_with_a_value():
    """Where pickle wrote one string object once for a config value and the tags, only the tags change."""
    saved = save({"device": "cpu", "w": torch.ones(2), "v": torch.ones(2)})
    got = contents_of_bytes(edited(saved, [Retag("cuda:3")]).data)
    assert at(got.tree, ("device",)) == "cpu"
    assert {storage.device for storage in got.storages} == {"cuda:3"}


def test_dropping_renumbers_the_storages_as_torch_would():
    """What remains is numbered and written as if the dropped values had never been saved."""
    whole = {"a": torch.ones(1), "opt": {"x": torch.ones(2)}, "b": torch.ones(3), "list": [1, torch.ones(4), 2]}
    got = edited(save(whole), [Drop((("opt",), ("a",), ("list", 1)))])
    assert list(got.storages) == ["0"]
    loaded = load(got)
    assert list(loaded) == ["b", "list"]
    assert loaded["list"] == [1, 2]
    assert torch.equal(loaded["b"], torch.ones(3))


def test_dropping_one_of_two_ties_keeps_the_storage():
    """A storage goes only when nothing views it any more."""
    weight = torch.ones(2, 2)
    got = edited(save({"a": weight, "b": weight.t(), "c": torch.zeros(1)}), [Drop((("a",),))])
    loaded = load(got)
    assert torch.equal(loaded["b"], torch.ones(2, 2))
    assert sorted(got.storages) == ["0", "1"]


def test_dropping_everything_from_a_dict_leaves_it_empty():
    """An emptied dict is an empty dict, written without steps."""
    assert load(edited(save({"a": {"x": 1, "y": 2}, "b": 1}), [Drop((("a", "x"), ("a", "y")))])) == {"a": {}, "b": 1}


def test_taking_a_root_gives_what_torch_would_have_saved_of_it():
    """The value at the path is the whole file afterwards, with its storages numbered from 0."""
    whole = {"epoch": 1, "opt": {"x": torch.ones(2)}, "model": {"w": torch.zeros(3)}}
    got = edited(save(whole), [TakeRoot(("model",))])
    assert got.storages == {"0": bytes(12)}
    assert torch.equal(load(got)["w"], torch.zeros(3))


def test_replacing_puts_plain_data_in_place():
    """None, numbers, text, bytes, lists, tuples and dicts can stand for any value."""
    value = {"x": [1, -2.5, None, True, "é", (1, 2, 3, 4)], "raw": b"\xff", 3: {}}
    for protocol in (2, 4):
        got = edited(save({"a": torch.ones(1), "b": 1}, protocol), [Replace(("a",), value)])
        loaded = load(got, weights_only=protocol == 2)
        assert loaded == {"a": value, "b": 1}


def test_edits_apply_one_after_another():
    """Each edit speaks of the contents as the ones before it left them."""
    saved = save({"state_dict": {"module.w": torch.ones(2), "module.b": torch.ones(1)}, "epoch": 2})
    edits = [
        TakeRoot(("state_dict",)),
        strip(["module.w", "module.b"]),
        Drop((("b",),)),
        Rename((), (("w", "weight"),)),
    ]
    got = edited(saved, edits)
    assert got.data == save({"weight": torch.ones(2)}).data or list(load(got)) == ["weight"]
    assert list(got.storages) == ["0"]


# ---- storages


def test_compacting_keeps_values_ties_and_strides():
    """A storage shrinks to the elements in view; overlapping views go on overlapping."""
    base = torch.arange(1000.0)
    value = {"a": base[10:20], "b": base[15:25], "c": base[500:520].view(4, 5).t(), "d": base[:0], "e": base[10:20]}
    got = edited(save(value), [Compact(("0",))])
    assert len(got.storages["0"]) == (15 + 20) * 4
    loaded = load(got)
    for key, tensor in value.items():
        assert torch.equal(loaded[key], tensor)
        assert loaded[key].stride() == tensor.stride()
    loaded["a"][5] = -1
    assert loaded["b"][0] == -1
    assert loaded["e"][5] == -1


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bfloat16, torch.complex128, torch.float8_e4m3fn])
def test_compacting_works_for_every_item_size(dtype):
    """Typed and untyped storages of every width are cut at the right byte."""
    value = [torch.arange(100).to(dtype)[30:40]]
    got = edited(save(value), [Compact(("0",))])
    assert len(got.storages["0"]) == 10 * dtype.itemsize
    assert torch.equal(load(got)[0].view(torch.uint8), value[0].contiguous().view(torch.uint8))


def test_compacting_twice_cuts_what_is_left():
    """A second Compact after a Drop works on the storage as the first one left it."""
    base = torch.arange(100)
    edits = [Compact(("0",)), Drop((("a",),)), Compact(("0",))]
    got = edited(save({"a": base[10:20], "b": base[50:60]}), edits)
    assert len(got.storages["0"]) == 80
    assert torch.equal(load(got)["b"], base[50:60])


def test_a_storage_saved_on_its_own_is_not_cut():
    """Where the file holds the storage itself, all of it is in use."""
    base = torch.arange(100, dtype=torch.uint8)
    got = edited(save([base.untyped_storage(), base[:3]]), [Compact(("0",))])
    assert len(got.storages["0"]) == 100


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.float64, torch.complex128, torch.uint16]),
)
def test_made_contiguous_equals_torch_contiguous(shape, random, dtype):
    """Any permuted, sliced or expanded view becomes what Tensor.contiguous() gives, byte for byte."""
    count = 1
    for size in shape:
        count *= size
    base = torch.arange(count * 2).to(dtype)[count:].view(shape)
    axes = list(range(len(shape)))
    random.shuffle(axes)
    view = base.permute(axes)
    index = tuple(slice(random.randrange(size), None, random.choice((1, 2))) for size in view.shape)
    view = view[index].unsqueeze(0).expand(2, *view[index].shape)
    got = edited(save({"x": view, "y": base}), [MakeContiguous((("x",),))])
    loaded = load(got)
    assert loaded["x"].is_contiguous()
    assert loaded["x"].storage_offset() == 0
    assert torch.equal(loaded["x"].view(torch.uint8), view.contiguous().view(torch.uint8))
    assert torch.equal(loaded["y"].view(torch.uint8), base.view(torch.uint8))


def test_ties_of_one_view_go_on_sharing_when_made_contiguous():
    """Equal views get one new storage together; another view of the old storage keeps that."""
    base = torch.arange(12.0).view(3, 4)
    value = {"a": base.t(), "b": base.t(), "c": base, "p": torch.nn.Parameter(base.t())}
    got = edited(save(value), [MakeContiguous((("a",), ("b",), ("p",)))])
    loaded = load(got)
    assert loaded["a"].untyped_storage()._cdata == loaded["b"].untyped_storage()._cdata
    assert loaded["a"].untyped_storage()._cdata == loaded["p"].untyped_storage()._cdata
    assert loaded["a"].untyped_storage()._cdata != loaded["c"].untyped_storage()._cdata
    assert isinstance(loaded["p"], torch.nn.Parameter)
    assert torch.equal(loaded["a"], base.t())
    assert list(got.storages) == ["0", "1"]


def test_one_tensor_at_two_paths_is_made_contiguous_at_one():
    """The tensor object that two keys share stays as it was under the key that was not named."""
    weight = torch.arange(6.0).view(2, 3).t()
    loaded = load(edited(save({"a": weight, "b": weight}), [MakeContiguous((("a",),))]))
    assert loaded["a"].is_contiguous()
    assert not loaded["b"].is_contiguous()
    assert torch.equal(loaded["a"], loaded["b"])


def test_state_of_an_object_can_be_renamed_and_dropped():
    """Paths lead through objects of unknown classes to their attributes."""
    net = torch.nn.Linear(2, 2)
    got = edited(save(net), [Drop((("_parameters", "bias"),)), Replace(("in_features",), 7)])
    loaded = load(got, weights_only=False)
    assert list(loaded._parameters) == ["weight"]
    assert loaded.in_features == 7


def test_attributes_of_a_dict_have_paths_of_their_own():
    """The _metadata of a state dict is reached by the step ._metadata."""
    net = torch.nn.Linear(2, 2)
    path = (Special("._metadata"), "", "version")
    loaded = load(edited(save(net.state_dict()), [Replace(path, 9)]))
    assert loaded._metadata[""]["version"] == 9


@pytest.mark.parametrize(
    "shared", [OrderedDict(a=1, b=2), [1, 2], {1, 2}, torch.Size([1, 2])], ids=lambda kind: type(kind).__name__
)
def test_what_two_places_share_is_replaced_in_one(shared):
    """A container behind two keys keeps its contents under the one that was not named, however it is pickled."""
    part = "a" if isinstance(shared, dict) else 0
    loaded = load(edited(save({"x": shared, "y": shared}), [Replace(("x", part), 7)]), weights_only=False)
    assert loaded["y"] == shared
    assert loaded["x"] != shared


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_is_edited(protocol):
    """Renames, drops and new tags give a sound pickle under every protocol, with frames and MEMOIZE."""
    value = {"module.w": tagged(torch.ones(2), "cuda:1"), "module.b": torch.zeros(1), "x" * 300: [1, "module.w"]}
    edits = [strip(["module.w", "module.b"]), Drop((("b",),)), Retag("cpu"), Rename((), (("x" * 300, "y"),))]
    loaded = load(edited(save(value, protocol), edits), weights_only=False)
    assert list(loaded) == ["w", "y"]
    assert loaded["w"].tolist() == [1.0, 1.0]
    assert loaded["y"] == [1, "module.w"]


def test_wrapper_subclasses_follow_their_tensors():
    """The device that a wrapper subclass states is retagged with the tensors in it."""
    got = contents_of_bytes(edited(save({"x": TwoTensor(torch.ones(2), torch.ones(2))}), [Retag("cuda:1")]).data)
    assert got.tensors[0].device == "cuda:1"
    assert [part.device for part in got.tensors[0].parts] == ["cuda:1", "cuda:1"]


def test_a_storage_with_a_hidden_view_is_not_shrunk():
    """What an attribute of a Parameter views would go with Compact, for the tree does not show it: that is refused."""
    base = torch.arange(100.0)
    weight = torch.nn.Parameter(base[:10])
    weight.tail = base[90:]
    with pytest.raises(RefusedError, match="a tensor that is not shown"):
        edited(save({"w": weight}), [Compact(("0",))])
    weight.tail = base[2:8]
    loaded = load(edited(save({"w": weight}), [Compact(("0",))]))
    assert loaded["w"].tail.tolist() == list(range(2, 8))
    assert loaded["w"].untyped_storage().nbytes() == 40


def test_dropping_one_key_of_two_equal_ones_drops_both():
    """A key that stands twice in one dict is gone from it afterwards."""
    data = b"\x80\x02}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00bK\x02X\x01\x00\x00\x00aK\x03u."
    assert load(edited(Saved(data, {}), [Drop((("a",),))])) == {"b": 2}
