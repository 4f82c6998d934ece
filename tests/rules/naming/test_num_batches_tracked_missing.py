"""N416 num-batches-tracked-missing."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from ckptdoctor.edits import Fill, Safety
from ckptdoctor.findings import Finding
from ckptdoctor.rules.examples import Odict, T
from tests.rules import nouns


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(OrderedDict(conv=torch.nn.Conv2d(3, 4, 3), bn=torch.nn.BatchNorm2d(4)))


def _cut(model: torch.nn.Module, suffix: str = "num_batches_tracked") -> OrderedDict[str, torch.Tensor]:
    """Its state dict without some keys, as ``del`` leaves it: ``_metadata`` stays."""
    state_dict = model.state_dict()
    for key in [key for key in state_dict if key.endswith(suffix)]:
        del state_dict[key]
    return state_dict


def _found(state_dict: OrderedDict[str, torch.Tensor], model: torch.nn.Module) -> list[Finding]:
    metadata = {name: dict(entry) for name, entry in state_dict._metadata.items()}
    checkpoint = nouns.checkpoint(Odict(nouns.described(state_dict), metadata))
    like = nouns.reference(nouns.described(model.state_dict()))
    assert nouns.findings_in("R001", checkpoint, like) == []
    return nouns.findings_in("N416", checkpoint, like)


@pytest.mark.parametrize("wrap", [lambda net: net, torch.nn.DataParallel], ids=["bare", "wrapped"])
def test_a_counter_that_torch_asks_for_is_filled_in(wrap: type[torch.nn.Module]) -> None:
    """Keys that were deleted from a state dict are missed as torch says, and come back under the file's own names."""
    state_dict = _cut(wrap(_net()))
    [found] = _found(state_dict, _net())
    bare = OrderedDict((key.removeprefix("module."), value) for key, value in state_dict.items())
    bare._metadata = _net().state_dict()._metadata
    with pytest.raises(RuntimeError) as error:
        _net().load_state_dict(bare)
    assert found.torch_says[0] in str(error.value)
    assert found.message == "1 norm layer lacks the batch counter that like.pt has"
    prefix = "module." if any(key.startswith("module.") for key in state_dict) else ""
    assert found.fix is not None
    assert found.fix.edits == (Fill((f"{prefix}bn.num_batches_tracked",), "int64", (), 0),)
    assert found.fix.safety is Safety.CONFIRMED


def test_without_a_reference_the_versions_tell() -> None:
    """torch asks every BatchNorm of version 2; nobody confirms that the target has one, so the repair is unsafe."""
    metadata = {name: dict(entry) for name, entry in _net().state_dict()._metadata.items()}
    [found] = nouns.findings("N416", {"model": Odict(nouns.described(_cut(_net())), metadata)})
    assert found.message == "1 norm layer of model lacks the batch counter that torch expects"
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.UNSAFE, "--select N416")


def test_the_counter_lies_where_the_running_stats_lie() -> None:
    """On the device of the layer's other buffers: a mixed state dict would be a new trouble."""
    stats = {f"bn.{name}": T((4,), device="cuda:1") for name in ("running_mean", "running_var")}
    [found] = nouns.findings("N416", Odict({**stats}, {"bn": {"version": 2}}))
    assert found.fix is not None
    assert [edit.device for edit in found.fix.edits if isinstance(edit, Fill)] == ["cuda:1"]


@pytest.mark.parametrize("version", [None, 1, 3, True, "2"])
def test_another_version_is_not_torchs(version: object) -> None:
    """A frozen BatchNorm of somebody else's says 3 and never had a counter; below 2 torch sets it itself."""
    contents = nouns.described(_cut(_net()))
    metadata = {"bn": {"version": version}} if version is not None else None
    assert nouns.findings("N416", Odict(contents, metadata)) == []  # type: ignore[arg-type]


def test_a_layer_without_running_stats_is_not_this() -> None:
    """Where the stats are missing too, R001 lists all three."""
    model = _net()
    state_dict = _cut(_cut(model) and model, "running_mean")
    for key in [key for key in state_dict if "running" in key or "num_batches" in key]:
        del state_dict[key]
    metadata = {name: dict(entry) for name, entry in state_dict._metadata.items()}
    checkpoint = nouns.checkpoint(Odict(nouns.described(state_dict), metadata))
    like = nouns.reference(nouns.described(model.state_dict()))
    assert nouns.findings_in("N416", checkpoint, like) == []
    [found] = nouns.findings_in("R001", checkpoint, like)
    assert len(found.keys) == 3
