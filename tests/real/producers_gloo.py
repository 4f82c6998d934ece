"""What two processes write together: shards, whole state dicts, and folders of torch.distributed.checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.commands import leave_gloo

PROCESSES = 2

# folders of torch.distributed.checkpoint
FOLDERS = ("fsdp2", "fsdp2_async", "fsdp1", "tensor_parallel", "mixed", "one_file_each")


def work(rank: int, folder: str) -> None:
    """One of the processes."""
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/store", PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    _fsdp2(rank, Path(folder))
    _fsdp1(Path(folder))
    _tensors(rank, Path(folder))
    leave_gloo()


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(4, 8) * torch.arange(4.0)[:, None]).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def _fsdp2(rank: int, folder: Path) -> None:
    model: Any = _net()
    mesh = init_device_mesh("cpu", (PROCESSES,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    _step(model, optimizer)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": moments, "step": 3, "lr": 0.1}, checkpoint_id=folder / "fsdp2")
    dcp.async_save(get_model_state_dict(model), checkpoint_id=folder / "fsdp2_async").result()
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(whole, folder / "fsdp2_whole.pt")
    torch.save(model.state_dict(), folder / f"fsdp2_rank{rank}.pt")


def _fsdp1(folder: Path) -> None:
    model = FullyShardedDataParallel(_net(), device_id=torch.device("cpu"))
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        dcp.save(model.state_dict(), checkpoint_id=folder / "fsdp1")


def _tensors(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (PROCESSES,), mesh_dim_names=("tp",))
    parallel = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    parallelize_module(parallel, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    dcp.save(parallel.state_dict(), checkpoint_id=folder / "tensor_parallel")
    numbers = torch.arange(10.0)
    mixed = {
        "rows": distribute_tensor(numbers.reshape(5, 2), mesh, [Shard(0)]),
        "columns": distribute_tensor(numbers.reshape(2, 5), mesh, [Shard(1)]),
        "everywhere": distribute_tensor(numbers, mesh, [Replicate()]),
        "plain": torch.arange(3),
        "others": {"list": [1, 2]},
    }
    dcp.save(mixed, checkpoint_id=folder / "mixed")
    torch.save(mixed["everywhere"], folder / f"everywhere_rank{rank}.pt")
    writer = dcp.FileSystemWriter(folder / "one_file_each", single_file_per_rank=False)
    dcp.save(mixed, storage_writer=writer)
