"""Devices: what ``.to`` does, which kinds are here and why others are not, replicas, clocks, and the table.

Here are only CPUs for certain. Tests of CUDA and MPS replace the functions of torch that ask the hardware, and tests of
XLA import a small torch_xla from a folder.
"""

from __future__ import annotations

import io
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from torch import nn

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer import devices
from ckptdoctor.trainer.devices import inventory

# torch_xla as far as it is used, once as it is today and once as it was in 2.2; calls are written down in LOG.
XLA_TODAY = """
import os, torch
LOG = []
def device(index=None): return torch.device("xla", index or 0)
def sync(wait=False): LOG.append("sync")
"""
XLA_BEFORE = "LOG = []\n"
XLA_RUNTIME = """
import os
def addressable_device_count():
    count = os.environ["FAKE_XLA"]
    if not count.isdecimal(): raise RuntimeError(count + ".\\nC++ stack trace follows")
    return int(count)
def device_type(): return os.environ.get("PJRT_DEVICE")
"""
XLA_MODEL = """
import os, torch, torch_xla
def xla_device(n=None): return torch.device("xla", n or 0)
def mark_step(): torch_xla.LOG.append("mark_step")
def wait_device_ops(devices=[]): torch_xla.LOG.append("wait")
def get_memory_info(device):
    answer = {"new": {"bytes_used": 2**30, "bytes_limit": 2**34}, "old": {"kb_free": 3, "kb_total": 4}, "other": {}}
    if os.environ["FAKE_MEMORY"] == "none": raise RuntimeError("not implemented")
    return answer[os.environ["FAKE_MEMORY"]]
"""


@pytest.fixture
def no_xla(monkeypatch):
    """torch_xla is not installed, whatever else is on this machine."""
    monkeypatch.setattr("ckptdoctor.trainer.devices.xla.find_spec", lambda name: None)


@pytest.fixture
def xla(tmp_path, monkeypatch):
    """Install the small torch_xla with so many devices of a kind; returns the list of its calls."""

    def install(count="4", kind="TPU", memory="new", code=XLA_TODAY):
        package = tmp_path / "torch_xla"
        (package / "core").mkdir(parents=True)
        (package / "core" / "__init__.py").touch()
        (package / "__init__.py").write_text(code)
        (package / "runtime.py").write_text(XLA_RUNTIME)
        (package / "core" / "xla_model.py").write_text(XLA_MODEL)
        monkeypatch.syspath_prepend(str(tmp_path))
        for name, value in (("FAKE_XLA", count), ("PJRT_DEVICE", kind), ("FAKE_MEMORY", memory)):
            monkeypatch.setenv(name, value)
        return lambda: sys.modules["torch_xla"].LOG

    forget()
    yield install
    forget()


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_xla"]:
        del sys.modules[name]


@pytest.fixture
def no_cuda(monkeypatch):
    """A build of torch with CUDA on a machine where CUDA starts with the given words."""

    def install(words):
        def start():
            raise RuntimeError(words)

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "init", start)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return install


@pytest.fixture
def gpus(monkeypatch):
    """So many GPUs, as torch.cuda would show them; the second is so full that CUDA does not start on it."""

    def properties(index):
        return SimpleNamespace(name=f"NVIDIA [h{index}]", total_memory=80 * 2**30, major=9 if index else 7)

    def free(index):
        if index == 1:
            raise RuntimeError("CUDA error: out of memory")
        return 60 * 2**30, 80 * 2**30

    def install(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(torch.cuda, "mem_get_info", free)

    return install


@pytest.fixture
def mac(monkeypatch):
    """A Mac whose GPU is in use a little."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 16 * 2**30)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 4 * 2**30)


def test_to_copies_a_tensor():
    """The result is a new object and the old one stays where it was."""
    tensor = torch.ones(2)
    for moved in (tensor.to("meta"), tensor.to(torch.float64)):
        assert moved is not tensor
        assert id(moved) != id(tensor)
    assert (tensor.device.type, tensor.dtype) == ("cpu", torch.float32)


def test_to_returns_a_tensor_that_is_there_already():
    """No copy is made of a tensor on the device, so replicas on one device would be one."""
    tensor = torch.ones(2)
    replica = tensor.to("cpu")
    assert replica is tensor
    replica.add_(1)
    assert tensor.tolist() == [2, 2]
    assert tensor.to("cpu", copy=True) is not tensor


def test_to_moves_a_module_in_place():
    """The same module comes back, and what it holds is on the device."""
    module = nn.Linear(2, 2)
    before = id(module)
    assert id(module.to(torch.float64)) == before
    assert module.weight.dtype == torch.float64
    assert id(module.to("meta")) == before
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}


def test_auto_prefers_cuda_then_mps_then_xla_then_the_cpu(gpus, xla, monkeypatch):
    """The best kind that is here is taken."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    xla()
    gpus(1)
    assert devices.settle("auto") == "cuda"
    gpus(0)
    assert devices.settle("auto") == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.settle("auto") == "xla"
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    assert devices.settle("auto") == "cpu"
    assert devices.settle("xla") == "xla"


def test_the_cpu_is_always_here():
    """A kind that is named and here is taken as it is."""
    assert devices.settle("cpu") == "cpu"
    assert devices.missing("cpu") is None


def test_an_unknown_kind_is_a_usage_error():
    """The sentence names the kinds there are."""
    with pytest.raises(UsageError, match="choose one of auto, cpu, cuda, mps, xla"):
        devices.settle("tpu")


def test_a_cpu_build_of_torch_is_named_as_the_reason(monkeypatch):
    """Where torch has no CUDA in it the way out is another build, not a driver."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(TrainingError) as caught:
        devices.settle("cuda")
    assert caught.value.message == (
        f"--device cuda: this torch ({torch.__version__}) is built for the CPU; install a build with CUDA"
        " (https://pytorch.org/get-started/locally); or train on the CPU: --device cpu"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU …", "has no NVIDIA driver"),
        ("No CUDA GPUs are available", "the NVIDIA driver sees no GPU"),
        (
            "The NVIDIA driver on your system is too old (found version 11040).\nMore",
            "too old (found version 11040)); look",
        ),
    ],
)
def test_a_build_with_cuda_that_finds_none_says_which_of_the_troubles_it_is(no_cuda, words, says):
    """No driver, no GPU and an old driver are told apart, by what CUDA says on its start."""
    no_cuda(words)
    with pytest.raises(TrainingError) as caught:
        devices.settle("cuda")
    assert says in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("value", ["", "-1"])
def test_gpus_that_are_hidden_are_not_called_missing(no_cuda, monkeypatch, value):
    """An empty CUDA_VISIBLE_DEVICES is named as the reason."""
    no_cuda("No CUDA GPUs are available")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    with pytest.raises(TrainingError, match="hides every GPU"):
        devices.settle("cuda")


def test_the_warning_of_torch_about_an_old_driver_is_not_repeated(no_cuda, monkeypatch):
    """torch warns of it on stderr when it is asked; the sentence says it already."""

    def warn():
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old", stacklevel=1)
        return False

    no_cuda("The NVIDIA driver on your system is too old (found version 11040)")
    monkeypatch.setattr(torch.cuda, "is_available", warn)
    assert "too old" in devices.missing("cuda")


@pytest.mark.parametrize(("built", "says"), [(False, "built without MPS"), (True, "update macOS")])
def test_a_torch_without_mps_and_a_mac_without_it_are_told_apart(monkeypatch, built, says):
    """A build for another system, or a Mac that is too old."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: built)
    with pytest.raises(TrainingError, match=says):
        devices.settle("mps")


def test_xla_that_is_not_installed_says_so(no_xla):
    """The sentence names the library and how to get it."""
    with pytest.raises(TrainingError, match="torch_xla is not installed"):
        devices.settle("xla")


@pytest.mark.parametrize(
    ("count", "code", "says"),
    [
        ("0", XLA_TODAY, "torch_xla finds no device"),
        ("TPU initialization failed", XLA_TODAY, r"does not start \(TPU initialization failed\);"),
        ("1", "raise ImportError('undefined symbol: _ZN3c10')", r"does not start \(undefined symbol: _ZN3c10\)"),
    ],
)
def test_xla_that_does_not_work_says_what_it_says(xla, count, code, says):
    """No device, a runtime that fails and a library for another torch are reasons, not tracebacks."""
    xla(count, code=code)
    with pytest.raises(TrainingError, match=says):
        devices.settle("xla")
    assert devices.settle("auto") == "cpu" or torch.cuda.is_available() or torch.backends.mps.is_available()


@pytest.mark.parametrize("code", [XLA_TODAY, XLA_BEFORE], ids=["today", "2.2"])
def test_xla_devices_and_marks_through_both_interfaces(xla, code):
    """A device, the end of a step and the wait before a clock work with torch_xla of today and of 2.2."""
    log = xla(code=code)
    place = devices.device("xla", 2)
    assert place == torch.device("xla", 2)
    devices.finish_step(place)
    mark = "sync" if code is XLA_TODAY else "mark_step"
    assert log() == [mark]
    devices.synchronize(place)
    assert log() == [mark, mark, "wait"]


def test_devices_are_those_of_torch():
    """A kind and a number make a device; the number means nothing where there is one."""
    assert devices.device("cuda", 3) == torch.device("cuda:3")
    assert devices.device("cpu", 3) == torch.device("cpu")
    assert devices.device("mps", 0) == torch.device("mps")


def test_the_cpu_has_no_number_of_devices(gpus, xla):
    """Replicas on the CPU are virtual, any number; elsewhere there are as many as there are."""
    gpus(3)
    xla("4")
    assert (devices.count("cpu"), devices.count("cuda"), devices.count("mps"), devices.count("xla")) == (None, 3, 1, 4)


@pytest.mark.parametrize(
    ("strategy", "kind", "there", "expected"),
    [
        ("single", "cpu", 0, 1),
        ("single", "cuda", 8, 1),
        ("manual", "cpu", 0, 2),
        ("ddp", "cpu", 0, 2),
        ("exact", "cpu", 0, 2),
        ("dp", "cuda", 1, 1),
        ("dp", "cuda", 6, 6),
        ("fsdp", "cuda", 8, 8),
        ("exact", "cuda", 6, 4),
        ("exact", "cuda", 16, 8),
        ("dp", "mps", 0, 1),
    ],
)
def test_a_run_takes_every_gpu_or_two_virtual_replicas(gpus, strategy, kind, there, expected):
    """The default number of replicas, which always passes the check."""
    gpus(there)
    assert devices.default_world_size(strategy, kind) == expected
    devices.require_world_size(strategy, kind, expected)


@pytest.mark.parametrize(
    ("strategy", "kind", "size", "nodes", "says"),
    [
        ("manual", "cpu", 0, 1, "at least one replica"),
        ("single", "cpu", 2, 1, "trains one replica, not 2; leave --world-size out"),
        ("exact", "cpu", 3, 1, "choose a --world-size of 1, 2, 4, 8"),
        ("exact", "cpu", 16, 1, "choose a --world-size of 1, 2, 4, 8"),
        ("dp", "cuda", 3, 1, "there are 2 GPUs here; ask for fewer"),
        ("ddp", "cuda", 5, 2, "there are 2 GPUs on each of 2 machines"),
        ("dp", "mps", 2, 1, "there is one MPS device here"),
        ("manual", "cuda", 4, 2, "stays on one machine; use --strategy ddp"),
        ("ddp", "mps", 1, 1, "neither NCCL nor gloo carries gradients between processes for an MPS device"),
        ("fsdp", "xla", 1, 1, "or --device cpu"),
    ],
)
def test_replicas_that_cannot_be_are_refused(gpus, strategy, kind, size, nodes, says):
    """Each sentence says what does not fit, and what would."""
    gpus(2)
    with pytest.raises(UsageError) as caught:
        devices.require_world_size(strategy, kind, size, nodes=nodes)
    assert says in caught.value.message


def test_replicas_that_can_be_are_not_refused(gpus):
    """As many as there are GPUs, on every machine; any number on the CPU."""
    gpus(2)
    devices.require_world_size("dp", "cuda", 2)
    devices.require_world_size("ddp", "cuda", 4, nodes=2)
    devices.require_world_size("manual", "cpu", 64)
    devices.require_world_size("exact", "cpu", 8)


def test_replicas_of_one_process_live_on_the_first_devices(xla):
    """One GPU each, or all on the CPU."""
    xla()
    assert devices.replicas("cuda", 2) == (torch.device("cuda:0"), torch.device("cuda:1"))
    assert devices.replicas("xla", 2) == (torch.device("xla:0"), torch.device("xla:1"))
    assert devices.replicas("cpu", 3) == (torch.device("cpu"),) * 3


def test_a_clock_waits_for_the_device_that_was_asked_about(monkeypatch):
    """CUDA is waited for on that GPU, MPS as a whole, and the CPU not at all."""
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    for device in (torch.device("cuda:1"), torch.device("mps"), torch.device("cpu")):
        devices.synchronize(device)
        devices.finish_step(device)
    assert waited == [torch.device("cuda:1"), "mps"]


def test_the_rows_of_this_machine_begin_with_its_cpu():
    """The CPU has a name, cores and memory; every kind has at least one row."""
    first, *others = devices.rows()
    assert (first.label, first.missing) == ("cpu", None)
    assert f"{inventory.cores()} core" in first.name
    assert first.total is not None
    assert first.total > 2**28
    assert first.free is None or 0 < first.free <= first.total
    assert {row.kind for row in others} == {"cuda", "mps", "xla"}
    assert "gloo" in first.runs


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    """A process that is bound to one core counts one, whatever the machine has."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5}, raising=False)
    assert inventory.cores() == 1
    assert ", 1 core" in devices.rows()[0].name
    assert "1 cores" not in devices.rows()[0].name


def test_the_rows_of_gpus_say_which_physical_one_each_is(gpus, monkeypatch):
    """Logical and physical numbers stand beside each other, and a GPU that is too full has no free memory to tell."""
    gpus(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, 4")
    first, second = [row for row in devices.rows() if row.kind == "cuda"]
    assert [(row.label, row.physical) for row in (first, second)] == [("cuda:0", "0"), ("cuda:1", "4")]
    assert (first.free, first.total, second.free) == (60 * 2**30, 80 * 2**30, None)
    assert "bf16 is slow" in first.good_for
    assert second.good_for.endswith("--amp bf16")
    assert "NCCL" in first.runs
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert {row.physical for row in devices.rows() if row.kind == "cuda"} == {None}


def test_the_row_of_a_mac_tells_its_share_of_memory(mac):
    """What may be used of the memory that CPU and GPU share, less what is in use."""
    (row,) = [row for row in devices.rows() if row.kind == "mps"]
    assert (row.label, row.free, row.total) == ("mps", 12 * 2**30, 16 * 2**30)


def test_a_mac_with_an_old_torch_has_no_memory_to_tell(mac, monkeypatch):
    """Without the function that tells it the row is there all the same."""
    monkeypatch.delattr(torch.mps, "recommended_max_memory")
    (row,) = [row for row in devices.rows() if row.kind == "mps"]
    assert (row.free, row.total) == (None, None)


@pytest.mark.parametrize(
    ("memory", "free", "total"),
    [("new", 15 * 2**30, 2**34), ("old", 3072, 4096), ("other", None, None), ("none", None, None)],
)
def test_the_rows_of_xla_tell_the_hardware_behind_it(xla, memory, free, total):
    """One row for each device, with memory in any of the forms that torch_xla gives it in."""
    xla("2", memory=memory)
    found = [row for row in devices.rows() if row.kind == "xla"]
    assert [(row.label, row.name) for row in found] == [(f"xla:{index}", "TPU through torch_xla") for index in (0, 1)]
    assert (found[0].free, found[0].total) == (free, total)


def printed(width=80, **terminal):
    file = io.StringIO()
    Console(file=file, width=width, **terminal).print(devices.table())
    return file.getvalue()


def test_the_table_is_plain_text_of_80_columns_when_piped(gpus, monkeypatch, no_xla, mac):
    """No escape sequences, no line that wraps, nothing cut off, and brackets in a name are no markup."""
    gpus(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,4")
    text = printed()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for words in ("cuda:1", "GPU 4", "NVIDIA [h1]", "60.0 of 80.0 GiB free", "12.0 of 16.0 GiB free", "not available"):
        assert words in text
    assert "torch_xla is not installed" in text


def test_the_table_is_whole_on_a_narrow_terminal(gpus, no_xla):
    """At 50 columns words go to the next line, and every device keeps its name."""
    gpus(2)
    text = printed(50)
    assert max(map(len, text.splitlines())) <= 50
    assert all(word in text for word in ("cuda:0", "cuda:1", "mps", "xla", "cpu"))


def test_the_table_says_when_memory_is_not_known(gpus, monkeypatch):
    """A device without a count of its memory is shown with those words."""
    gpus(1)
    monkeypatch.setattr(inventory, "_cpu_memory", lambda: (None, None))
    assert "memory unknown" in printed()


def test_a_missing_backend_is_told_in_the_row(monkeypatch):
    """Where torch is built without gloo the row does not promise ddp."""
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: False)
    assert "gloo, which this torch is built without" in devices.rows()[0].runs
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_gloo_available")
    assert "gloo, which this torch is built without" in devices.rows()[0].runs
