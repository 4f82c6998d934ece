"""Whether two tensors have the same bytes: probes, digests, and what can be read at all."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.checkpoint.sharing import compared, digest, is_readable, is_telling, probe, same
from ckptdoctor.formats import open_checkpoint


@pytest.fixture
def saved(tmp_path):
    """Saves tensors and gives those of the checkpoint, with its bytes."""

    def save(**tensors):
        path = str(tmp_path / "model.pt")
        torch.save(tensors, path)
        return open_checkpoint(path).tensors, FileSource(path)

    return save


@pytest.mark.parametrize("at", [0, 5_000, 9_999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_one_other_element_makes_another_tensor(saved, at, dtype):
    """Wherever it is; the same ones are the same."""
    one = torch.arange(10_000).remainder(251).to(dtype)
    other = one.clone()
    other[at] += 1
    (first, second, third), source = saved(a=one, b=one.clone(), c=other)
    with source:
        assert same(first, second, source)
        assert not same(first, third, source)
        assert digest(source, first) == digest(source, second) != digest(source, third)


def test_a_slice_is_read_where_it_lies(saved):
    """From its offset on, and no further."""
    base = torch.arange(100.0)
    (whole, part, copy), source = saved(whole=base, part=base[10:30], copy=base[10:30].clone())
    with source:
        assert same(part, copy, source)
        assert probe(source, part) == bytes(base[10:30].numpy().tobytes())
        assert not same(whole, part, source)


def test_constant_tensors_tell_nothing(saved):
    """Ones are ones, whoever made them."""
    (ones, numbers), source = saved(ones=torch.ones(8, 8), numbers=torch.arange(8.0))
    with source:
        assert not is_telling(probe(source, ones), ones)
        assert is_telling(probe(source, numbers), numbers)


def test_what_has_no_bytes_in_order_is_not_read(saved):
    """Transposed, sparse, empty and meta tensors."""
    tensors, source = saved(
        a=torch.randn(3, 4).t(), b=torch.eye(3).to_sparse(), c=torch.empty(0), d=torch.empty(3, device="meta")
    )
    source.close()
    assert [is_readable(each) for each in tensors] == [False] * len(tensors)


def test_any_two_tensors_can_be_asked_about(saved):
    """Where the bytes of one do not lie in a row there is no answer, whatever its values are."""
    (plain, copy, other, turned), source = saved(
        a=torch.eye(3), b=torch.eye(3), c=torch.ones(3, 3), d=torch.eye(3).clone().t()
    )
    with source:
        assert [compared(plain, each, source) for each in (copy, other, turned)] == [True, False, None]
