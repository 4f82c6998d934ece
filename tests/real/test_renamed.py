"""Well-known models whose parts have had other names: the keys are facts, and the values tell who became whom."""

from __future__ import annotations

import pytest
import torch

from tests.real import architectures
from tests.real.bench import under


def values_by_name(bench, names):
    """Whether each wanted name holds the very tensor that it is to hold."""
    result = bench.result()
    return all(torch.equal(result[name], value) for name, value in names.items())


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in DataParallel"])
def test_a_densenet_of_2017(wrapped, bench):
    """The names of today, without the counters, which torch sets itself."""
    today = architectures.densenet()
    saved = architectures.old_densenet(today)
    status, said = bench.auto({"state_dict": under("module.", saved)} if wrapped else saved, today)
    assert status == 0, said
    assert "606 of 727 keys fit" in said
    kept = {key: value for key, value in today.items() if not key.endswith("num_batches_tracked")}
    assert sorted(bench.result()) == sorted(kept)
    assert values_by_name(bench, kept)


def test_a_densenet_of_today_in_old_code(bench):
    """The other way round, with the counters dropped."""
    old = architectures.old_densenet(architectures.densenet())
    status, said = bench.auto(architectures.densenet(), old)
    assert status == 0, said
    assert sorted(bench.result()) == sorted(old)


def test_a_densenet_of_other_classes(bench):
    """The names are found all the same, and the head is what is left to decide."""
    said = bench.refuse(architectures.old_densenet(architectures.densenet(20)), architectures.densenet(10))
    assert "604 of 727 keys would fit" in said
    assert "shape mismatch: classifier.weight, classifier.bias" in said
    assert "S501" in bench.findings()


def test_a_backbone_for_detection(bench):
    """A prefix, stages for layers, and other names for attention and perceptron, all at once."""
    swin = architectures.swin(depths=(4,))
    bare = {key: value for key, value in swin.items() if not key.startswith(("head.", "norm."))}
    wanted = under("backbone.", architectures.detection_swin(swin))
    status, said = bench.auto(bare, wanted)
    assert status == 0, said
    assert sorted(bench.result()) == sorted(wanted)
    assert values_by_name(bench, wanted)


def test_a_backbone_whose_values_lie_in_another_order(bench):
    """Between the stages the detection library takes four neighbours in another order: names alone would be wrong."""
    swin = architectures.swin()
    said = bench.refuse(swin, architectures.detection_swin(swin), "--unsafe-fixes")
    assert "another code base arranged these values" in said


RENAMED = {
    "swin": (architectures.swin, architectures.timm_swin),
    "convnext": (architectures.convnext, architectures.timm_convnext),
}


@pytest.mark.parametrize("back", [False, True], ids=["to timm", "from timm"])
@pytest.mark.parametrize("name", RENAMED)
def test_what_timm_calls_otherwise_is_found(name, back, bench):
    """Numbers change their places, and parts of a list move on: all of it is found, and every value is in its place."""
    build, rename = RENAMED[name]
    theirs = build()
    ours = rename(theirs)
    saved, wanted = (ours, theirs) if back else (theirs, ours)
    status, said = bench.auto({"model": saved}, wanted)
    assert status == 0, said
    assert sorted(bench.result()) == sorted(wanted)
    assert values_by_name(bench, wanted)
