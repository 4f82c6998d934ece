"""Virtual replicas on the CPU mean what ``torch.nn.parallel`` means by them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ckptdoctor.trainer.strategies.data_parallel import data_parallel, gather, replicate, scatter, watching

CPU = torch.device("cpu")


@pytest.mark.parametrize(("images", "replicas", "sizes"), [(16, 2, [8, 8]), (10, 4, [3, 3, 3, 1]), (3, 4, [1, 1, 1])])
def test_scatter_deals_contiguous_parts(images, replicas, sizes):
    """Each device gets one contiguous part, as even as chunk makes them, and gather puts them together again."""
    batch = torch.arange(images)
    parts = scatter(batch, [CPU] * replicas)
    assert [len(part) for part in parts] == sizes
    assert torch.equal(gather(parts), batch)


def test_replicas_share_no_memory():
    """No two replicas have a parameter in the same memory, nor in that of the module."""
    module = nn.Linear(3, 3)
    tensors = [module.weight, *(state["weight"] for state in replicate(module, 3))]
    assert len({tensor.data_ptr() for tensor in tensors}) == 4


def test_the_gradients_of_replicas_add_up_in_the_module():
    """The module's gradient is that of the whole batch."""
    torch.manual_seed(0)
    module, batch = nn.Linear(3, 2).double(), torch.randn(8, 3, dtype=torch.float64)
    module(batch).square().sum().backward()
    whole = module.weight.grad.clone()
    module.zero_grad()
    data_parallel(module, batch, [CPU] * 4).square().sum().backward()
    assert torch.allclose(module.weight.grad, whole, rtol=1e-14, atol=1e-14)


def test_only_the_first_replica_moves_the_running_stats():
    """As in nn.DataParallel, the module's batch norm counts what the first replica sees, and nothing else."""
    torch.manual_seed(0)
    norm, batch = nn.BatchNorm1d(3), torch.randn(8, 3)
    data_parallel(norm, batch, [CPU] * 2)
    alone = nn.BatchNorm1d(3)
    alone(batch[:4])
    assert torch.equal(norm.running_mean, alone.running_mean)
    assert norm.num_batches_tracked == 1


def test_watching_counts_what_replicas_see():
    """Inside the block each replica's batch is counted; afterwards no hook is left."""
    module = nn.Linear(3, 3)
    with watching(module) as seen:
        data_parallel(module, torch.ones(16, 3), [CPU] * 2)
        assert seen() == (8, 8)
    assert not module._forward_pre_hooks


def test_replicas_that_alias_would_destroy_training():
    """The reason for cloning: to(device) gives the same tensor on the same device, copy=True another."""
    weight = torch.ones(3)
    assert weight.to("cpu") is weight
    assert weight.to("cpu", copy=True) is not weight
