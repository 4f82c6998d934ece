"""Norms of older torch, and weight norm and spectral norm by their old and their new API."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from tests.real.bench import equal, without
from tests.real.networks import Detector, Normed

pytestmark = pytest.mark.filterwarnings("ignore")

IMAGES = torch.rand(2, 3, 6, 6)
SOUND = torch.rand(2, 4, 12)
APIS = {
    "weight norm": (weight_norm, parametrizations.weight_norm, "N412"),
    "spectral norm": (spectral_norm, parametrizations.spectral_norm, "N413"),
}


def vocoder(norm):
    """Two convolutions with a norm of their weights, and one without."""
    return nn.Sequential(norm(nn.Conv1d(4, 8, 3)), nn.ReLU(), norm(nn.Conv1d(8, 8, 3)), nn.Conv1d(8, 2, 1)).eval()


@pytest.mark.parametrize("back", [False, True], ids=["old to new", "new to old"])
@pytest.mark.parametrize("name", APIS)
def test_the_other_api_loads_it(name, back, bench):
    """Both APIs keep the same tensors: only names change, and the model computes the same."""
    old, new, code = APIS[name]
    model, target = (vocoder(new), vocoder(old)) if back else (vocoder(old), vocoder(new))
    expected = model(SOUND)
    assert bench.repair(model.state_dict(), target) == [code]
    assert torch.allclose(target(SOUND), expected, atol=1e-6)


@pytest.mark.parametrize("version", [True, False], ids=["with a version", "without"])
def test_batch_norm_without_its_counter(version, bench):
    """Files of torch before 0.4.1 have no counters; torch asks for them only where a version says so."""
    model, target = Normed(nn.BatchNorm2d(4)).eval(), Normed(nn.BatchNorm2d(4)).eval()
    old = OrderedDict(without(model.state_dict(), "num_batches_tracked"))
    if version:
        old._metadata = model.state_dict()._metadata
    assert bench.repair(old, target) == (["N416"] if version else [])
    assert torch.equal(target(IMAGES), model(IMAGES))


def test_a_frozen_batch_norm_keeps_no_counter(bench):
    """A target of a library's own frozen norm has no counters: they are dropped."""
    saved = Normed(nn.BatchNorm2d(4)).state_dict()
    status, _ = bench.auto(saved, without(saved, "num_batches_tracked"))
    assert status == 0
    assert list(bench.result()) == list(without(saved, "num_batches_tracked"))


def test_instance_norm_with_unused_running_stats(bench):
    """Old instance norm saved running stats that it did not use: a target without them loads the rest."""
    saved = without(Normed(nn.InstanceNorm2d(4, track_running_stats=True)).state_dict(), "num_batches_tracked")
    target = Normed(nn.InstanceNorm2d(4))
    assert bench.repair(saved, target) == ["N418"]
    assert torch.equal(target.first.weight, saved["first.weight"])


def test_running_stats_that_may_matter_are_a_choice(bench):
    """With parameters beside them the stats may be those of a batch norm: that is asked, not guessed."""
    saved = without(Normed(nn.BatchNorm2d(4)).state_dict(), "num_batches_tracked")
    target = Normed(nn.InstanceNorm2d(4, affine=True))
    assert "left over: norm.running_mean, norm.running_var" in bench.refuse(saved, target)
    assert "N418" in bench.findings()
    assert bench.repair(saved, target, "--unsafe-fixes") == ["N418"]


def test_heads_of_another_dataset(bench):
    """A detector trained on 80 classes: both heads are named, nothing is cut, and leaving them out is the offer."""
    model, target = Detector(80), Detector(5)
    saved = {"model": nn.DataParallel(model).state_dict(), "iteration": 3}
    said = bench.refuse(saved, target)
    assert "11 of 15 keys would fit" in said
    assert "shape mismatch: cls_score.weight, cls_score.bias, bbox_pred.weight, bbox_pred.bias" in said
    assert "[81, 16] here, [6, 16] in the model" in bench.findings()["S501"]


def test_the_same_detector_fits(bench):
    """With as many classes the very same file fits."""
    model, target = Detector(5), Detector(5)
    bench.repair({"model": nn.DataParallel(model).state_dict(), "iteration": 3}, target)
    assert equal(target.state_dict(), model.state_dict())
