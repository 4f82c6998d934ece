"""The task of foonet."""

from __future__ import annotations

import torch

from ckptdoctor.trainer.data.points import points


def test_a_point_is_labelled_with_its_largest_coordinate():
    """Every label is the index of the largest of three float32 coordinates."""
    data = points()
    assert (len(data.train), len(data.test), data.shape, data.classes) == (1024, 256, (3,), ("x", "y", "z"))
    for split in (data.train, data.test):
        assert split.inputs.dtype == torch.float32 and split.labels.dtype == torch.int64
        assert all(
            row.index(max(row)) == label
            for row, label in zip(split.inputs.tolist(), split.labels.tolist(), strict=True)
        )


def test_points_are_normal_and_always_the_same():
    """Mean 0, deviation 1; twice the same; none of the test is in the training."""
    data = points()
    assert torch.equal(data.train.inputs, points().train.inputs)
    assert abs(data.train.inputs.mean()) < 0.1 and abs(data.train.inputs.std() - 1) < 0.1
    assert not set(map(tuple, data.test.inputs.tolist())) & set(map(tuple, data.train.inputs.tolist()))
