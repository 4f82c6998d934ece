"""The devices of this machine: what each is, hardware good for, and the table of ``--devices`` that shows it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

from ckptdoctor.trainer.devices import xla
from ckptdoctor.trainer.devices.kinds import KINDS, count, device, missing

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


_AMPERE = 8  # the first compute capability with bfloat16 in hardware


@dataclass(frozen=True)
class DeviceRow:
    """One device, or a kind that is not available. Memory in bytes, None where it is not known."""

    kind: str
    index: int | None = None
    """The logical number, as in "cuda:1"; None for a device without a number and for a kind that is not available."""
    physical: str | None = None
    """The entry of CUDA_VISIBLE_DEVICES behind the number, such as "4" or "GPU-8932f937"; None where it is not set."""
    name: str = ""
    free: int | None = None
    total: int | None = None
    good_for: str = ""
    runs: str = ""
    """The strategies that run on it, and the backend that carries gradients between processes."""
    missing: str | None = None
    """Why the kind is not available."""

    @property
    def label(self) -> str:
        """As torch writes the device: "cuda:1"."""
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


def rows() -> list[DeviceRow]:
    """Return every device that this process sees, and one row for each kind that it does not.

    Asking a GPU for its free memory starts CUDA on it, which takes some of it: this is for looking, not for a run.
    """
    describe = {"cpu": _cpu, "cuda": _cuda, "mps": _mps, "xla": _xla}
    found: list[DeviceRow] = []
    for kind in KINDS:
        reason = missing(kind)
        if reason is not None:
            found.append(DeviceRow(kind, missing=reason))
        else:
            found.extend(describe[kind](index) for index in range(count(kind) or 1))
    return found


def cores() -> int:
    """Return the CPU cores that this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu(_: int) -> DeviceRow:
    free, total = _cpu_memory()
    number = cores()
    return DeviceRow(
        kind="cpu",
        name=f"{_processor()}, {number} core{'' if number == 1 else 's'}",
        free=free,
        total=total,
        good_for="learning and testing: any number of virtual replicas",
        runs=f"every strategy; ddp, fsdp and exact over {_backend('gloo', lambda: distributed.is_gloo_available())}",
    )


def _cuda(index: int) -> DeviceRow:
    known = torch.cuda.get_device_properties(index)
    visible = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return DeviceRow(
        kind="cuda",
        index=index,
        physical=(visible[index] if index < len(visible) else "") or None,
        name=known.name,
        free=_cuda_free(index),
        total=known.total_memory,
        good_for=f"fast training; --amp {'bf16' if known.major >= _AMPERE else 'fp16 (bf16 is slow on it)'}",
        runs=f"every strategy; ddp, fsdp and exact over {_backend('NCCL', lambda: distributed.is_nccl_available())}",
    )


def _cuda_free(index: int) -> int | None:
    try:
        return int(torch.cuda.mem_get_info(index)[0])
    except RuntimeError:  # so full, or so exclusively another's, that CUDA cannot even start on it
        return None


def _mps(_: int) -> DeviceRow:
    # it shares the memory of the Mac; torch before 2.5 does not tell how much of it
    total = torch.mps.recommended_max_memory() if hasattr(torch.mps, "recommended_max_memory") else None
    return DeviceRow(
        kind="mps",
        name=f"Apple GPU ({platform.machine()})",
        free=None if total is None else total - torch.mps.driver_allocated_memory(),
        total=total,
        good_for="fast training on a Mac; only one exists",
        runs="single; dp, functional and manual with one replica",
    )


def _xla(index: int) -> DeviceRow:
    hardware = xla.hardware()
    free, total = xla.memory(device("xla", index))
    return DeviceRow(
        kind="xla",
        index=index,
        name=f"{hardware} through torch_xla",
        free=free,
        total=total,
        good_for="trying out XLA, not faster" if hardware == "CPU" else "large batches of one shape; --amp bf16",
        runs="single, dp, functional, manual: strategies of one process",
    )


def _backend(name: str, is_available: Callable[[], bool]) -> str:
    # a build without torch.distributed has not even the functions to ask, so they are looked up late
    if distributed.is_available() and is_available():
        return name
    return f"{name}, which this torch is built without"


def _processor() -> str:
    """Return the name of the processor: Linux knows it, ``platform`` on other systems."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cpu_memory() -> tuple[int | None, int | None]:
    """Free and total bytes: what Linux would give to a new program; elsewhere the total alone, where it is told."""
    information = Path("/proc/meminfo")
    if information.exists():
        lines = [line.split() for line in information.read_text(encoding="utf-8").splitlines()]
        kilobytes = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1}
        if "MemAvailable" in kilobytes:
            return kilobytes["MemAvailable"] * 1024, kilobytes["MemTotal"] * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return None, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None, None


_GIB = 2**30


def table() -> Table:
    """Return the devices of this machine; fits 80 columns, and is plain text where there is no terminal."""
    # rich is wanted for this one table, and every rank of a run would pay for it
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, leading=1)
    shown.add_column("device", no_wrap=True)
    shown.add_column("hardware", max_width=28)
    shown.add_column("strategies")
    for row in rows():
        shown.add_row(*_cells(row))
    return shown


def _cells(row: DeviceRow) -> list[Text]:
    """Return the cells as Text, not as str: a name with brackets in it would be taken for markup."""
    from rich.text import Text

    if row.missing is not None:
        return [Text(cell, style="dim") for cell in (row.label, "not available", row.missing)]
    physical = "" if row.physical is None else f"\nGPU {row.physical[:12]}"
    return [
        Text(row.label + physical, style="bold"),
        Text(f"{row.name}\n{_memory(row)}"),
        Text(f"{row.good_for}\n{row.runs}"),
    ]


def _memory(row: DeviceRow) -> str:
    if row.total is None:
        return "memory unknown"
    total = f"{row.total / _GIB:.1f} GiB"
    return total if row.free is None else f"{row.free / _GIB:.1f} of {total} free"
