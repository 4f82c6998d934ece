"""Headers tell the difference between two checkpoints."""

import json
import struct
from collections import OrderedDict
from functools import partial

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.differences import ABSENT
from ckptdoctor.errors import UnreadableError, UsageError
from tests.builders import saving_tags
from tests.work import growth


@pytest.fixture
def compared(tmp_path):
    """Saves two contents, and gives how they differ."""

    def compare(a, b, **options):
        for name, contents in (("a.pt", a), ("b.pt", b)):
            torch.save(contents, tmp_path / name)
        return ckptdoctor.diff(tmp_path / "a.pt", tmp_path / "b.pt", **options)

    return compare


def weights(**others):
    """The state dict of a small network."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(OrderedDict(conv=torch.nn.Conv2d(3, 8, 3), norm=torch.nn.BatchNorm2d(8)))
    return {**net.state_dict(), "fc.weight": torch.rand(10, 8), "fc.bias": torch.rand(10), **others}


def test_identical_headers(compared):
    """The same names, shapes and dtypes are the same, and that values were not compared is said."""
    found = compared(weights(), weights())
    assert found.same and not found.compared
    assert found.summary == "the same names, shapes and dtypes; values were not compared"


def test_added_and_removed(compared):
    """What only one has is named."""
    found = compared(weights(old=torch.ones(7, 11)), weights(new=torch.ones(2)))
    assert [each.name for each in found.removed] == ["old"] and [each.name for each in found.added] == ["new"]
    assert not found.same
    assert found.summary.endswith("1 tensor only in A, 1 tensor only in B")


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "model.", "net.backbone."])
def test_wrappers_are_renamings_either_way(compared, wrapper):
    """A wrapper's prefix on either side is a renaming, not a model removed and another one added."""
    wrapped = {f"{wrapper}{key}": value for key, value in weights().items()}
    for a, b in ((weights(), wrapped), (wrapped, weights())):
        found = compared(a, b)
        assert not found.removed and not found.added and not found.same
        assert {pair.name: pair.name_b for pair in found.pairs} == dict(zip(a, b, strict=True))
        assert found.steps
        assert found.summary == "the same tensors, but different names; values were not compared"


def test_a_name_inside_that_changed(compared):
    """A module that got another name, among others that did not, is found too."""
    renamed = {key.replace("conv.", "stem."): value for key, value in weights().items()}
    found = compared(weights(), renamed)
    assert {(pair.name, pair.name_b) for pair in found.pairs if pair.renamed} == {
        ("conv.weight", "stem.weight"),
        ("conv.bias", "stem.bias"),
    }


def test_unrelated_networks_are_not_renamings(compared):
    """Networks that have nothing in common are not brought together."""
    other = {f"blocks.{i}.attn.qkv.weight": torch.rand(30 + i, 7) for i in range(6)}
    found = compared(weights(), other)
    assert not found.pairs and len(found.added) == 6


def test_shape_and_dtype_and_device(compared):
    """Another shape, dtype or device tag is told, each as what it is."""
    changed = {key: value.half() if value.is_floating_point() else value for key, value in weights().items()}
    changed |= {"fc.weight": torch.rand(5, 8).half(), "fc.bias": torch.rand(5).half()}
    found = compared(weights(), changed)
    assert {pair.name for pair in found.pairs if pair.reshaped} == {"fc.weight", "fc.bias"}
    assert {pair.name for pair in found.pairs if not pair.recast} == {"norm.num_batches_tracked"}
    assert "2 tensors in fc have a different shape" in found.summary and "float32 → float16" in found.summary


def test_device_tags(tmp_path):
    """A file that was saved on a GPU differs from one of the CPU in its tags."""
    from tests.builders import T, save

    with saving_tags():
        for name, device in (("a.pt", "cuda:0"), ("b.pt", "cpu")):
            save({"w": T((2, 3), device=device), "b": T((2,), device=device)}, tmp_path / name)
    found = ckptdoctor.diff(tmp_path / "a.pt", tmp_path / "b.pt")
    assert all(pair.retagged for pair in found.pairs) and not found.same
    assert "different device tags" in found.summary


def test_other_contents(compared):
    """Epochs, hyper-parameters and arguments that changed are told by their places, with both values."""
    a = {"state_dict": weights(), "epoch": 1, "hparams": {"lr": 0.1, "betas": (0.9, 0.99)}, "nan": float("nan")}
    b = {"state_dict": weights(), "epoch": 2, "hparams": {"lr": 0.1, "betas": (0.9, 0.95)}, "nan": float("nan")}
    found = compared({**a, "gone": "x", "flag": 1}, {**b, "flag": True})
    told = {each.name: (each.a, each.b) for each in found.others}
    assert told == {"epoch": (1, 2), "hparams/betas/1": (0.99, 0.95), "gone": ("x", ABSENT), "flag": (1, True)}
    assert "other contents differ" in found.summary


def test_state_dicts_are_found_wherever_they_lie(compared):
    """Weights alone and the same in a training checkpoint are counterparts; the rest of the latter is added."""
    training = {"model": weights(), "epoch": 3, "optimizer": {"state": {0: {"m": torch.ones(3)}}, "param_groups": []}}
    found = compared(weights(), training)
    assert len(found.pairs) == len(weights()) and not any(pair.renamed for pair in found.pairs)
    assert [(each.a, each.b) for each in found.moved] == [((), ("model",))]
    assert {each.name for each in found.added} == {"optimizer/state/0/m"}
    assert "epoch" in {each.name for each in found.others}


def test_roots_choose(compared):
    """--root and --root-b say what is held against what, and what lies around it does not count."""
    a, b = {"model": weights(), "epoch": 1}, {"ema": weights(), "net": {"x": torch.ones(2)}, "epoch": 2}
    assert compared(a, b, root="model", root_b="ema").same
    assert not compared(a, b, root="model", root_b="net").same
    with pytest.raises(UsageError, match='The checkpoint has no "nothing"'):
        compared(a, b, root="nothing")


def test_optimizers_are_matched_by_role(compared):
    """Moments of optimizers are compared under their places, whatever the optimizer's own key is."""
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    a = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    optimizer.param_groups[0]["lr"] = 0.05
    b = {"model": net.state_dict(), "opt": optimizer.state_dict()}
    found = compared(a, b)
    assert not found.removed and not found.added
    assert [(each.name, each.a, each.b) for each in found.others] == [("optimizer/param_groups/0/lr", 0.1, 0.05)]
    assert {pair.name for pair in found.pairs if not pair.weights} >= {"optimizer/state/0/exp_avg"}


def test_safetensors_against_pt(tmp_path):
    """The container alone is no difference, nor what only one of the containers can hold."""
    torch.save(OrderedDict(weights()), tmp_path / "a.pt")
    save_file(weights(), tmp_path / "b.safetensors", metadata={"format": "pt"})
    assert ckptdoctor.diff(tmp_path / "a.pt", tmp_path / "b.safetensors").same


def test_folder_against_file(tmp_path):
    """A sharded folder with its index is compared as what it is: one checkpoint."""
    folder = tmp_path / "model"
    folder.mkdir()
    every = list(weights().items())
    shards = {f"model-0000{i + 1}-of-00002.safetensors": dict(every[i::2]) for i in range(2)}
    for name, tensors in shards.items():
        save_file(tensors, folder / name)
    index = {"metadata": {}, "weight_map": {key: name for name, tensors in shards.items() for key in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(weights(), tmp_path / "b.safetensors")
    found = ckptdoctor.diff(folder, tmp_path / "b.safetensors")
    assert found.same and len(found.pairs) == len(weights())


def test_versions_of_modules(compared):
    """A state dict's _metadata is compared where both have one and names are the same."""
    one, other = torch.nn.BatchNorm1d(3).state_dict(), torch.nn.BatchNorm1d(3).state_dict()
    assert compared(one, other).same
    other._metadata[""]["version"] = 1
    assert [each.name for each in compared(one, other).others] == ["._metadata/ /version".replace(" ", "")]
    assert compared(dict(one), other).same


def tied():
    """Two names of one matrix, and one that stands for itself."""
    table = torch.rand(6, 4)
    return {"wte.weight": table, "lm_head.weight": table, "fc.weight": torch.rand(3, 4)}


def test_ties(compared):
    """What is one tensor on one side and several on the other is told, either way, and is a difference."""
    apart = {key: value.clone() for key, value in tied().items()}
    for a, b, side in ((tied(), apart, "a"), (apart, tied(), "b")):
        found = compared(a, b)
        (tie,) = found.ties
        assert (tie.side, tie.names, tie.apart, tie.counts) == (side, ("wte.weight", "lm_head.weight"), True, True)
        assert not found.same and "different ties" in found.summary
    assert compared(tied(), tied()).same and not compared(tied(), tied()).ties


def test_containers_without_ties(tmp_path):
    """That safetensors has no ties is told, but is no difference of the contents; a name that is left out is one."""
    from safetensors.torch import save_model

    net = torch.nn.Module()
    net.wte, net.lm_head = torch.nn.Linear(4, 6, bias=False), torch.nn.Linear(4, 6, bias=False)
    net.lm_head.weight = net.wte.weight
    torch.save(net.state_dict(), tmp_path / "a.pt")
    save_model(net, tmp_path / "one.safetensors", metadata={"format": "pt"})
    save_file({key: value.clone() for key, value in net.state_dict().items()}, tmp_path / "both.safetensors")
    found = ckptdoctor.diff(tmp_path / "a.pt", tmp_path / "both.safetensors")
    assert found.same and [tie.counts for tie in found.ties] == [False]
    found = ckptdoctor.diff(tmp_path / "a.pt", tmp_path / "one.safetensors")
    assert not found.same and [(tie.apart, tie.missing) for tie in found.ties] == [(False, (found.removed[0].name,))]
    assert found.summary.endswith("1 tensor only in A, tied there to a tensor that both have")


def test_orders_of_memory(compared):
    """The same elements in another order of memory are told, and are no difference."""
    net = torch.nn.Conv2d(3, 8, 3)
    a = {**net.state_dict(), "square": torch.rand(4, 4), "one": torch.rand(1, 5)}
    b = {
        "weight": a["weight"].contiguous(memory_format=torch.channels_last),
        "bias": a["bias"],
        "square": a["square"].t().contiguous().t(),
        "one": a["one"].t().contiguous().t(),
    }
    for one, other in ((a, b), (b, a)):
        found = compared(one, other)
        assert found.same and [pair.name for pair in found.pairs if pair.relaid] == ["weight", "square"]


def test_shapes_of_transposed_matrices(compared):
    """Without values a transposed matrix is a possibility; a vector or another shape is none."""
    a = {"fc.weight": torch.rand(6, 4), "row": torch.rand(1, 4), "other": torch.rand(5, 3), "conv": torch.rand(2, 3, 4)}
    found = compared(a, {**a, "fc.weight": a["fc.weight"].t().contiguous()})
    assert [pair.name for pair in found.pairs if pair.perhaps_transposed] == ["fc.weight"]
    assert "1 tensor in fc has a different shape (perhaps transposed)" in found.summary and not found.same
    found = compared(a, {**a, "row": torch.rand(4, 1), "other": torch.rand(3, 4), "conv": torch.rand(4, 3, 2)})
    assert not any(pair.perhaps_transposed for pair in found.pairs)


@pytest.mark.parametrize("few", [600, pytest.param(2_000, marks=pytest.mark.slow)])
def test_many_tensors(few, tmp_path):
    """Comparing headers grows with the number of tensors, not with its square, also with a wrapper's prefix."""
    for number in (few, 10 * few):
        names = [f"blocks.{index // 10}.part{index % 10}.weight" for index in range(number)]
        for file, prefix in (("a", ""), ("b", ""), ("c", "module.")):
            header = {
                f"{prefix}{name}": {"dtype": "U8", "shape": [2, 2], "data_offsets": [4 * index, 4 * index + 4]}
                for index, name in enumerate(names)
            }
            text = json.dumps(header).encode()
            data = struct.pack("<Q", len(text)) + text + bytes(4 * number)
            (tmp_path / f"{file}{number}.safetensors").write_bytes(data)

    def compared(other, number):
        files = (str(tmp_path / f"{file}{number}.safetensors") for file in ("a", other))
        found = ckptdoctor.diff(*files)
        assert len(found.pairs) == number and not found.removed

    for other in "bc":
        assert growth(partial(compared, other), few, 10 * few, runs=1) < 40


def test_trouble(tmp_path):
    """A file that is not there, and tolerances that make no sense, are told as such."""
    torch.save(weights(), tmp_path / "a.pt")
    with pytest.raises(UnreadableError):
        ckptdoctor.diff(tmp_path / "a.pt", tmp_path / "b.pt")
    with pytest.raises(UsageError, match="rtol="):
        ckptdoctor.diff("a", "b", rtol=-1)
