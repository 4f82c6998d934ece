"""XLA devices (TPUs and others) through torch_xla, an optional library that is imported when it is asked for.

torch_xla builds a graph of what a program does and runs it later, on whatever ``PJRT_DEVICE`` names: TPU, NEURON, …, or
CPU, which is the same processor as without XLA. Sources: https://docs.pytorch.org/xla ("PyTorch/XLA API") and the
modules ``torch_xla``, ``torch_xla.runtime`` and ``torch_xla.core.xla_model``; where torch_xla 2.2 differs from later
ones, both are served.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch


def missing() -> str | None:
    """Return why there is no XLA device here, as half a sentence, or None when there is one."""
    if find_spec("torch_xla") is None:
        return "torch_xla is not installed (pip install torch_xla)"
    try:
        return None if count() else "torch_xla finds no device"
    # it is a library built for one version of torch and one of the runtime: it fails to load, or to find its runtime
    except (ImportError, OSError, RuntimeError) as error:
        return f"torch_xla does not start ({short_message(error)})"


def count() -> int:
    """Return the number of devices that this process can address."""
    return int(import_module("torch_xla.runtime").addressable_device_count())


def hardware() -> str:
    """Return the hardware behind the devices, such as "TPU", "NEURON" or "CPU"."""
    return str(import_module("torch_xla.runtime").device_type() or "XLA")


def device(index: int) -> torch.device:
    """Return the device with that number; ``torch_xla.device`` since 2.3, ``xla_model.xla_device`` before."""
    library = import_module("torch_xla")
    found = library.device(index) if hasattr(library, "device") else _model().xla_device(index)
    return torch.device(found)


def cut() -> None:
    """End the graph and start running it; ``torch_xla.sync`` since 2.3, ``xla_model.mark_step`` before."""
    library = import_module("torch_xla")
    if hasattr(library, "sync"):
        library.sync()
    else:
        _model().mark_step()


def wait() -> None:
    """Wait until all that was begun has run."""
    _model().wait_device_ops()


def memory(place: torch.device) -> tuple[int | None, int | None]:
    """Free and total bytes; None and None where the runtime does not say."""
    try:
        known: dict[str, int] = _model().get_memory_info(str(place))
    except RuntimeError:  # not implemented for every kind of hardware
        return None, None
    if "bytes_limit" in known:
        return known["bytes_limit"] - known["bytes_used"], known["bytes_limit"]
    if "kb_total" in known:  # until torch_xla 2.2
        return known["kb_free"] * 1024, known["kb_total"] * 1024
    return None, None


def short_message(error: BaseException) -> str:
    """Return the message of a library's error, without the pages that may follow."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _model() -> Any:
    return import_module("torch_xla.core.xla_model")
