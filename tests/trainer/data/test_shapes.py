"""The drawn shapes: always the same, and as hard as they should be."""

from __future__ import annotations

import hashlib

import pytest
import torch

from ckptdoctor.trainer.data import shapes as module
from ckptdoctor.trainer.data.shapes import SHAPES, shapes


@pytest.fixture(scope="module")
def whole():
    """All 12,000 images."""
    return shapes()


def test_there_are_ten_classes_of_small_grey_images(whole):
    """10,000 and 2,000 images of one channel and 28×28 pixels, as many of each class."""
    assert whole.classes == (
        *("disk", "ring", "square", "frame", "triangle"),
        *("plus", "cross", "bars", "stairs", "crescent"),
    )
    assert whole.train.inputs.shape == (10_000, 1, 28, 28) and whole.test.inputs.shape == (2_000, 1, 28, 28)
    assert whole.train.inputs.dtype == torch.uint8 and whole.train.labels.dtype == torch.int64
    assert whole.train.labels.bincount().tolist() == [1000] * 10
    assert whole.test.labels.bincount().tolist() == [200] * 10


@pytest.mark.parametrize("count", [1, 249, 250, 251, 300])
def test_the_first_images_do_not_depend_on_how_many_there_are(whole, count):
    """A small set is the beginning of the large one."""
    few = shapes(count, count)
    for small, large in ((few.train, whole.train), (few.test, whole.test)):
        assert len(small) == count
        assert small.labels.bincount(minlength=10).max() - small.labels.bincount(minlength=10).min() <= 1
        assert torch.equal(small.inputs, large.inputs[:count]) and torch.equal(small.labels, large.labels[:count])


def test_no_more_are_drawn_than_are_needed(monkeypatch):
    """For 300 images two blocks of 250 are drawn, and for 60 of the test one."""
    drawn = []
    picture = module.picture
    monkeypatch.setattr(module, "picture", lambda shape, *rest: drawn.append(shape) or picture(shape, *rest))
    shapes(300, 60)
    assert drawn == [*SHAPES] * 3


def test_the_bits_do_not_depend_on_the_number_of_threads():
    """One thread and four draw the same images."""
    threads = torch.get_num_threads()
    try:
        drawn = []
        for count in (1, 4):
            torch.set_num_threads(count)
            drawn.append(shapes(500, 1).train.inputs)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*drawn)


def test_the_bits_are_these():
    """The data set is a fact: other images would make every quoted accuracy another one."""
    train = shapes(250, 1).train
    assert hashlib.sha256(bytes(train.inputs.flatten().tolist()) + bytes(train.labels.tolist())).hexdigest() == GOLDEN


GOLDEN = "29e3e88a0232c8357f411c693350a917bcd0ddafac92d7dc7341012da3534adc"


def test_mean_and_deviation_are_the_measured_ones(whole):
    """Prepared images have mean 0 and deviation 1."""
    values = whole.train.inputs.float() / 255
    assert values.mean().item() == pytest.approx(whole.mean[0], abs=1e-3)
    assert values.std().item() == pytest.approx(whole.std[0], abs=1e-3)


def test_no_image_is_there_twice(whole):
    """Test and training have no image in common, nor one twice."""
    images = torch.cat([whole.train.inputs, whole.test.inputs]).flatten(1)
    assert len({bytes(row) for row in images.numpy()}) == 12_000


def test_comparing_pixels_is_not_enough(whole):
    """The nearest known image has the right class in about five of six cases: a network has something to learn."""
    known, asked = whole.train.inputs.flatten(1).float(), whole.test.inputs[:500].flatten(1).float()
    nearest = ((known * known).sum(1) - 2 * asked @ known.T).argmin(1)
    right = (whole.train.labels[nearest] == whole.test.labels[:500]).float().mean().item()
    assert 0.78 < right < 0.88


def test_weighing_pixels_is_not_enough(whole):
    """A least-squares linear classifier is right in fewer than five of six cases, and in more than a half."""

    def rows(split):
        pixels = split.inputs.flatten(1).float() / 255
        return torch.cat([pixels, torch.ones(len(split), 1)], dim=1)

    known = rows(whole.train)
    squares = known.T @ known + 10 * torch.eye(known.shape[1])
    weights = torch.linalg.solve(squares, known.T @ torch.nn.functional.one_hot(whole.train.labels).float())
    right = ((rows(whole.test) @ weights).argmax(1) == whole.test.labels).float().mean().item()
    assert 0.5 < right < 0.84


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_shape_has_an_inside_and_fits_its_frame(shape):
    """Each covers between a tenth and nine tenths of the square around it, and nothing beyond twice its size."""
    line = torch.linspace(-2, 2, 81)
    inside = shape(line[None, :].expand(81, 81), line[:, None].expand(81, 81)) > 0
    assert not inside[:, [0, -1]].any() and not inside[[0, -1]].any()
    within = inside[20:61, 20:61].float().mean().item()
    assert 0.1 < within < 0.9
    assert inside.sum().item() <= 1.2 * inside[20:61, 20:61].sum().item()
