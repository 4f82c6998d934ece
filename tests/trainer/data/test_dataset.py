"""Splits and the preparation of images."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.trainer.data.dataset import Dataset, DataSplit, generator, prepared


def dataset(channels=3, count=40):
    random = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (count, channels, 5, 7), generator=random, dtype=torch.uint8)
    split = DataSplit(images, torch.arange(count) % 10)
    mean, std = (0.4914, 0.4822, 0.4465)[:channels], (0.2470, 0.2435, 0.2616)[:channels]
    return Dataset("made", split, split, tuple("0123456789"), mean, std)


@pytest.mark.parametrize("channels", [1, 3])
def test_prepared_values_are_what_the_formula_says(channels):
    """A byte becomes (byte / 255 - mean) / std of its channel."""
    data = dataset(channels)
    values = prepared(data.train.inputs, data, torch.float64)
    for channel in range(channels):
        byte = data.train.inputs[7, channel, 2, 3].item()
        expected = (byte / 255 - data.mean[channel]) / data.std[channel]
        assert values[7, channel, 2, 3].item() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_image_has_the_same_bits_alone_and_among_others(dtype):
    """Preparing a batch gives bit for bit what preparing the whole split gives for its images."""
    data = dataset()
    whole = prepared(data.train.inputs, data, dtype)
    assert whole.dtype == dtype
    for part in (slice(0, 1), slice(3, 20), slice(39, 40)):
        assert torch.equal(prepared(data.train.inputs[part], data, dtype), whole[part])
    assert torch.equal(prepared(data.train.inputs.flip(0), data, dtype).flip(0), whole)


def test_preparing_leaves_the_images_alone():
    """The bytes of a split are not changed."""
    data = dataset()
    before = data.train.inputs.clone()
    prepared(data.train.inputs, data, torch.float32)
    assert torch.equal(data.train.inputs, before)


def test_points_only_change_their_dtype():
    """Inputs that are numbers already keep their values."""
    points = torch.randn(6, 3)
    data = Dataset(
        "points",
        DataSplit(points, torch.zeros(6).long()),
        DataSplit(points, torch.zeros(6).long()),
        ("x",),
        (5.0,),
        (9.0,),
    )
    assert torch.equal(prepared(points, data, torch.float64), points.double())
    assert data.shape == (3,)


def test_no_images_stay_no_images():
    """An empty part of a batch is prepared too: a rank may have nothing to test."""
    data = dataset()
    assert prepared(data.train.inputs[:0], data, torch.float32).shape == (0, 3, 5, 7)


def test_the_first_images_are_a_copy_and_no_more_than_there_are():
    """``first`` lets the rest of the memory go, and gives all when asked for more."""
    split = dataset().train
    few = split.first(5)
    assert len(few) == 5 and torch.equal(few.inputs, split.inputs[:5]) and torch.equal(few.labels, split.labels[:5])
    assert few.inputs.untyped_storage().nbytes() == few.inputs.numel()
    assert len(split.first(1000)) == len(split)


def test_the_shape_is_that_of_one_input():
    """``shape`` has no dimension for the number of images."""
    assert dataset().shape == (3, 5, 7)


def draw(*purpose):
    return torch.randint(0, 2**62, (4,), generator=generator(*purpose)).tolist()


def test_the_same_purpose_gives_the_same_numbers():
    """Twice the same generator, twice the same numbers, and always these."""
    assert draw("a", 1, 2) == draw("a", 1, 2)


def test_other_purposes_give_other_numbers():
    """Seed and epoch do not add up: all pairs are different."""
    drawn = {tuple(draw("permutation", seed, epoch)) for seed in range(8) for epoch in range(8)}
    assert len(drawn) == 64


def test_negative_and_huge_seeds_are_fine():
    """Any integer is a seed."""
    assert draw("a", -1) != draw("a", 1)
    assert len(draw("a", 2**200)) == 4


def test_the_global_generator_is_left_alone():
    """Drawing for a purpose takes nothing from the numbers that dropout uses."""
    before = torch.get_rng_state()
    draw("a")
    assert torch.equal(torch.get_rng_state(), before)
