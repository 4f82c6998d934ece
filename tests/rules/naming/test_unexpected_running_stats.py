"""N418 unexpected-running-stats."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from ckptdoctor.edits import Safety
from ckptdoctor.findings import Finding
from ckptdoctor.rules.examples import Odict, T
from tests.rules import nouns

NORMS = {1: torch.nn.InstanceNorm1d, 2: torch.nn.InstanceNorm2d, 3: torch.nn.InstanceNorm3d}
CONVS = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}


def _net(dims: int = 2, *, affine: bool = False, track: bool = False) -> torch.nn.Module:
    """Two convolutions with instance norms, as generators of images have them."""
    layers = [
        layer
        for inputs, outputs in ((3, 4), (4, 6))
        for layer in (CONVS[dims](inputs, outputs, 3), NORMS[dims](outputs, affine=affine, track_running_stats=track))
    ]
    return torch.nn.Sequential(*layers, CONVS[dims](6, 3, 3))


def _before_0_4(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What torch before 0.4 saved: no counters, and no versions."""
    return {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}


def _found(saved: dict[str, torch.Tensor], target: torch.nn.Module) -> Finding:
    metadata = getattr(saved, "_metadata", None)
    contents: object = nouns.described(saved)
    if metadata is not None:
        contents = Odict(nouns.described(saved), {name: dict(entry) for name, entry in metadata.items()})
    like = nouns.described(target.state_dict())
    assert nouns.findings("R002", contents, like) == []
    [found] = nouns.findings("N418", contents, like)
    assert found.fix is not None
    left = nouns.repaired(contents, found.fix).state_dicts[0].keys
    target.load_state_dict({key: saved[key] for key in left})
    return found


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_words_are_those_of_torch(dims: int) -> None:
    """Every line is torch's own, with the class that fits the convolutions before it."""
    saved, target = _before_0_4(_net(dims, track=True)), _net(dims)
    found = _found(saved, target)
    error = nouns.torch_error(target, saved)
    assert len(found.torch_says) == 2
    assert all(line in error for line in found.torch_says)
    assert f"InstanceNorm{dims}d with track_running_stats=False" in found.torch_says[0]


def test_stats_that_torch_before_0_4_saved_are_confirmed_to_be_useless() -> None:
    """No parameters, no counters, no versions: nothing else saved that."""
    found = _found(_before_0_4(_net(track=True)), _net())
    assert found.message == "4 of 10 keys are running stats of 2 layers that keep none in like.pt"
    assert found.fix is not None
    assert found.fix.safety is Safety.CONFIRMED
    assert found.fix.option == "--drop '1.*' --drop '3.*'"
    assert found.advice == ""


@pytest.mark.parametrize("affine", [False, True])
def test_stats_that_were_used_are_dropped_only_when_asked(affine: bool) -> None:
    """Layers with counters used their stats in evaluation: without them the model computes something else."""
    saved = dict(_net(affine=affine, track=True).state_dict())
    found = _found(saved, _net(affine=affine))
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert "build it with track_running_stats=True" in found.advice
    error = nouns.torch_error(_net(affine=affine), saved)
    assert len(found.torch_says) == 3
    assert all(line in error for line in found.torch_says)


def test_with_versions_torch_only_calls_them_unexpected() -> None:
    """InstanceNorm's own words come only where ``_metadata`` says nothing of it."""
    saved, target = _net(affine=True, track=True).state_dict(), _net(affine=True)
    found = _found(saved, target)
    with pytest.raises(RuntimeError) as error:
        target.load_state_dict(saved)
    assert "Unexpected running stats" not in str(error.value)
    assert len(found.torch_says) == 1
    assert found.torch_says[0].removesuffix(", …") in str(error.value)


def test_old_layers_with_parameters_could_be_batch_norms() -> None:
    """Nothing but the target's class tells InstanceNorm from BatchNorm: never dropped without asking."""
    found = _found(_before_0_4(_net(affine=True, track=True)), _net(affine=True))
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert "BatchNorm too" in found.cause


@pytest.mark.parametrize(
    "contents",
    [
        {"obs.running_mean": T((5,)), "obs.running_var": T((5,)), "fc.weight": T((2, 5)), "fc.bias": T((2,))},
        {"fc.weight": T((2, 5)), "fc.bias": T((2,)), "n.running_mean": T((7,)), "n.running_var": T((7,))},
        {"fc.weight": T((2, 5)), "fc.bias": T((2,)), "n.running_mean": T((5,)), "n.running_var": T((5,))},
        {"fc.weight": T((2, 5)), "fc.bias": T((2,)), "n.running_mean": T((2,)), "n.running_var": T((1,))},
        {"fc.weight": T((2, 5)), "fc.bias": T((2,)), "n.running_mean": T((2,), "int64")},
        {"fc.weight": T((2, 5)), "fc.bias": T((2,)), "n.running_mean": T((2,)), "n.count": T(())},
    ],
)
def test_running_stats_of_other_things_are_left_alone(contents: dict[str, T]) -> None:
    """A normalizer of inputs, and layers that do not follow one of as many channels, are not taken for norms."""
    like = {"fc.weight": T((2, 5)), "fc.bias": T((2,))}
    assert nouns.findings("N418", contents, like) == []
    assert len(nouns.findings("R002", contents, like)) == 1


def test_a_layer_that_the_target_lacks_is_not_this() -> None:
    """A whole norm layer, parameters and all, is R002's."""
    saved = nouns.described(_net(affine=True, track=True).state_dict())
    like = {key: value for key, value in saved.items() if not key.startswith("1.")}
    assert nouns.findings("N418", saved, like) == []


def test_renamed_layers_keep_their_versions() -> None:
    """Behind a wrapper the versions stand under the wrapped names, and the quoted keys are the target's."""
    saved = torch.nn.DataParallel(_net(affine=True, track=True)).state_dict()
    metadata = OrderedDict((name, dict(entry)) for name, entry in saved._metadata.items())
    contents = Odict(nouns.described(saved), metadata)
    [found] = nouns.findings("N418", contents, nouns.described(_net(affine=True).state_dict()))
    assert found.torch_says == (
        'Unexpected key(s) in state_dict: "1.running_mean", "1.running_var", "1.num_batches_tracked", …',
    )
    assert found.keys[0] == ("module.1.running_mean",)
