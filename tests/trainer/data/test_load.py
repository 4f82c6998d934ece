"""From a configuration to a data set."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.errors import UnreadableError, UsageError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data.load import load, points
from tests.trainer.data.makers import cifar_set, write_idx_set


@pytest.mark.parametrize(("data", "shape"), [("points", (3,)), ("shapes", (1, 28, 28))])
@pytest.mark.parametrize(("images", "tests"), [(1, 1), (9, 1), (30, 6)])
def test_as_many_images_as_asked_for_and_a_fifth_to_test(data, shape, images, tests):
    """The first N images, and N // 5 of the test but at least one."""
    dataset = load(RunConfig(data=data, images=images))
    assert (dataset.name, dataset.shape, len(dataset.train), len(dataset.test)) == (data, shape, images, tests)


@pytest.mark.parametrize("data", ["points", "shapes"])
def test_the_data_do_not_depend_on_the_seed_of_the_run(data):
    """Another seed trains another network on the same images."""
    first, second = (load(RunConfig(data=data, images=20, seed=seed)) for seed in (1, 2))
    assert torch.equal(first.train.inputs, second.train.inputs) and torch.equal(first.test.labels, second.test.labels)


def test_more_images_than_there_are_is_all_of_them(tmp_path):
    """Asking for too many is no error."""
    assert len(load(RunConfig(data="points", images=10**6)).train) == 1024
    write_idx_set(tmp_path, train=12, test=5)
    dataset = load(RunConfig(data="mnist", data_dir=str(tmp_path), images=10**6))
    assert (len(dataset.train), len(dataset.test)) == (12, 5)


def test_files_are_read_from_the_data_directory(tmp_path):
    """mnist, fashion-mnist and cifar10 are looked for where --data-dir says, and cut as asked for."""
    write_idx_set(tmp_path)
    for name, data in cifar_set()[0].items():
        (tmp_path / name).write_bytes(data)
    for data, shape in (("mnist", (1, 28, 28)), ("fashion-mnist", (1, 28, 28)), ("cifar10", (3, 32, 32))):
        dataset = load(RunConfig(data=data, data_dir=str(tmp_path), images=10))
        assert (dataset.name, dataset.shape, len(dataset.train), len(dataset.test)) == (data, shape, 10, 2)
        assert len(dataset.classes) == 10 and len(dataset.mean) == len(dataset.std) == shape[0]


def test_impossible_requests_are_one_sentence(tmp_path):
    """An unknown set, no images, no directory."""
    for config, kind, words in (
        (
            RunConfig(data="imagenet"),
            UsageError,
            "choose one of points, shapes, mnist5k, mnist, fashion-mnist, cifar10",
        ),
        (RunConfig(images=0), UsageError, "at least 1 image, not 0"),
        (RunConfig(data="mnist"), UsageError, "--data-dir"),
        (RunConfig(data="cifar10", data_dir=str(tmp_path / "no")), UnreadableError, "does not exist"),
    ):
        with pytest.raises(kind, match=words):
            load(config)


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
