"""The choice of GPUs: syntax, what a scheduler allows, free memory as nvidia-smi tells it, and the right moment."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import types

import pytest
import torch

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer import devices, gpus
from ckptdoctor.trainer.gpus import Gpu, GpuSelection, parse_memory, parse_numbers, select

# What nvidia-smi prints for index,memory.free,memory.total,name, in the shapes its various cards and drivers give.
H200 = "0, 143085, 143771, NVIDIA H200\n1, 20411, 143771, NVIDIA H200\n"
A100 = "".join(f"{index}, {free}, 81920, NVIDIA A100-SXM4-80GB\n" for index, free in enumerate((81037, 1, 80998)))
CONSUMER = "0, 9911, 11264, NVIDIA GeForce RTX 2080 Ti\r\n1, 23670, 24576, NVIDIA GeForce RTX 4090\r\n"
GB10 = "0, [N/A], [N/A], NVIDIA GB10\n"
MIG = "0, [Insufficient Permissions], 40960, NVIDIA A100-SXM4-40GB\n1, 40326, 40960, NVIDIA A100-SXM4-40GB\n"
WARNED = "0, 15101, 15360, Tesla T4\nWARNING: infoROM is corrupted at gpu 0000:00:04.0\n"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA"
    " driver is installed and running.\n"
)
LOST = (
    "Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Put an executable nvidia-smi first on PATH: it prints, writes down its arguments, and ends as it is told."""

    def install(text, status=0, code=""):
        program = tmp_path / "nvidia-smi"
        (tmp_path / "text").write_bytes(text.encode())
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\nhere = Path({str(tmp_path)!r})\n"
            f"(here / 'arguments').write_text(' '.join(sys.argv[1:]))\n{code}\n"
            f"sys.stdout.write((here / 'text').read_text())\nsys.exit({status})\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "arguments"

    return install


def test_numbers_become_the_logical_order_and_the_map_is_said():
    """--gpus 0,4 makes physical 0 and 4 the logical 0 and 1, numbered along the PCI bus."""
    environ = {"HOME": "/"}
    chosen = select("0,4", None, environ)
    assert chosen == GpuSelection((0, 4))
    assert chosen.sentence() == "GPUs: physical 0 → cuda:0, physical 4 → cuda:1"
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["CUDA_DEVICE_ORDER"]) == ("0,4", "PCI_BUS_ID")


def test_a_second_choice_takes_effect():
    """What an earlier call chose neither stays nor limits a later call."""
    environ = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    select("0,4", None, environ)
    select("1", None, environ)
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")


def test_a_second_choice_is_still_held_to_the_scheduler():
    """What the environment allowed before the first choice goes on being the limit."""
    environ = {"CUDA_VISIBLE_DEVICES": "2,5,6"}
    select("5", None, environ)
    assert select("6,2", None, environ).physical == (6, 2)
    with pytest.raises(UsageError, match="GPU 1 is not visible here, CUDA_VISIBLE_DEVICES leaves 2, 5, 6;"):
        select("2,1", None, environ)


def test_what_others_set_after_a_choice_counts():
    """A variable that is no longer ours is a scheduler's, whatever was chosen before."""
    environ = {}
    select("0,1", None, environ)
    environ["CUDA_VISIBLE_DEVICES"] = "3"
    with pytest.raises(UsageError, match="GPU 0 is not visible"):
        select("0", None, environ)
    assert select("3", None, environ).physical == (3,)


def test_a_refused_choice_changes_nothing():
    """The environment stays as it was when the choice is an error."""
    environ = {"CUDA_VISIBLE_DEVICES": "2"}
    with pytest.raises(UsageError):
        select("0", None, environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "2"}


@pytest.mark.parametrize(
    "text", ["", ",", "0,", "0 4", "0-3", "-1", "a", "0;4", "٣", "1.5", "12345", "automatic", "0\n4"]
)
def test_what_is_no_list_of_numbers_is_refused(text):
    """Anything but numbers with commas between is a UsageError that shows the right form, on one line."""
    with pytest.raises(UsageError, match='such as "0,4", or "auto"') as caught:
        parse_numbers(text)
    assert caught.value.message.isprintable()


def test_a_gpu_named_twice_is_refused():
    """CUDA would show no GPU at all for a list with a repetition."""
    with pytest.raises(UsageError, match="GPU 4 is named twice"):
        parse_numbers("0,4,4")


def test_spaces_around_numbers_do_no_harm():
    """A quoted list with spaces means the same."""
    assert parse_numbers(" 0, 4 ") == (0, 4)


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", " "])
def test_an_environment_that_shows_no_gpu_says_so(value):
    """Where CUDA_VISIBLE_DEVICES hides every GPU the sentence says that, and what to do."""
    with pytest.raises(UsageError, match="leaves no GPU visible; ask the scheduler"):
        select("0", None, {"CUDA_VISIBLE_DEVICES": value})


def test_cuda_stops_reading_at_the_first_entry_that_is_no_number():
    """Of "0,-1,2" CUDA shows GPU 0 alone, and so GPU 2 cannot be chosen."""
    with pytest.raises(UsageError, match="leaves 0;"):
        select("2", None, {"CUDA_VISIBLE_DEVICES": "0,-1,2"})


def test_uuids_of_a_scheduler_are_looked_up(smi):
    """Where the environment names GPUs by UUID, nvidia-smi says their numbers; the start of a UUID is enough."""
    arguments = smi("0, GPU-aaaa-1111\n1, GPU-bbbb-2222\n2, GPU-cccc-3333\n")
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-cccc,GPU-aaaa-1111"}
    with pytest.raises(UsageError, match="GPU 1 is not visible here, CUDA_VISIBLE_DEVICES leaves 2, 0;"):
        select("1", None, environ)
    assert select("2", None, environ).physical == (2,)
    assert environ["CUDA_VISIBLE_DEVICES"] == "2"
    assert arguments.read_text() == "--query-gpu=index,uuid --format=csv,noheader,nounits"


def test_slices_of_a_gpu_cannot_be_chosen_by_number():
    """MIG slices have UUIDs only."""
    with pytest.raises(UsageError, match="slices of a GPU"):
        select("0", None, {"CUDA_VISIBLE_DEVICES": "MIG-1234"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (H200, (Gpu(0, 143085, 143771, "NVIDIA H200"), Gpu(1, 20411, 143771, "NVIDIA H200"))),
        (
            CONSUMER,
            (Gpu(0, 9911, 11264, "NVIDIA GeForce RTX 2080 Ti"), Gpu(1, 23670, 24576, "NVIDIA GeForce RTX 4090")),
        ),
        (GB10, (Gpu(0, None, None, "NVIDIA GB10"),)),
        (MIG, (Gpu(0, None, 40960, "NVIDIA A100-SXM4-40GB"), Gpu(1, 40326, 40960, "NVIDIA A100-SXM4-40GB"))),
        (WARNED, (Gpu(0, 15101, 15360, "Tesla T4"),)),
    ],
    ids=["H200", "consumer", "GB10", "MIG", "warned"],
)
def test_the_lines_of_nvidia_smi_are_read(text, expected):
    """Numbers, numbers that the driver does not give, other line ends, and a warning among the lines."""
    assert parse_memory(text) == expected


@pytest.mark.parametrize(
    "text", [NO_DRIVER, LOST, "No devices were found\n", "0, 12\n", "[N/A], 1, 2, x\n", "0, 1 MiB, 2, x"]
)
def test_other_text_is_an_error_that_quotes_it(text):
    """What is no line about a GPU is never taken for one."""
    with pytest.raises(TrainingError) as caught:
        parse_memory(H200 + text)
    assert " ".join(text.split()) in caught.value.message
    assert "--device cpu" in caught.value.message


def test_no_gpu_at_all_is_an_error():
    """An empty answer is a machine without GPUs."""
    with pytest.raises(TrainingError, match="lists no GPU"):
        parse_memory("\n")


def test_auto_takes_the_gpus_with_the_most_free_memory(smi):
    """A real process is asked with the documented query, and the fullest GPU comes last."""
    arguments = smi(A100)
    environ = {}
    assert select("auto", 2, environ).physical == (0, 2)
    assert environ["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert arguments.read_text() == "--query-gpu=index,memory.free,memory.total,name --format=csv,noheader,nounits"
    assert select("auto", None, environ).physical == (0, 2, 1)


def test_auto_puts_unknown_memory_last_and_keeps_equal_ones_in_order(smi):
    """A GPU whose free memory is not known is a last resort."""
    smi("0, [N/A], [N/A], A\n1, 5, 9, B\n2, 7, 9, C\n3, 7, 9, D\n")
    assert select("auto", None, {}).physical == (2, 3, 1, 0)


def test_auto_stays_within_what_the_scheduler_gave(smi):
    """nvidia-smi shows all GPUs of the machine, CUDA_VISIBLE_DEVICES those of the job."""
    smi(A100)
    assert select("auto", None, {"CUDA_VISIBLE_DEVICES": "1,2"}).physical == (2, 1)
    with pytest.raises(UsageError, match="3 GPUs requested, but CUDA_VISIBLE_DEVICES leaves visible 2"):
        select("auto", 3, {"CUDA_VISIBLE_DEVICES": "1,2"})


@pytest.mark.parametrize("count", [4, 0, -1])
def test_auto_refuses_a_count_that_is_not_there(smi, count):
    """More GPUs than there are, or none, is a UsageError that says the number."""
    smi(A100)
    with pytest.raises(UsageError, match=f"{count} GPUs requested"):
        select("auto", count, {})


def test_auto_without_nvidia_smi_says_what_to_do(monkeypatch, tmp_path):
    """On a machine without the tool the sentence names the two ways on."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TrainingError) as caught:
        select("auto", None, {})
    assert caught.value.message == (
        "--gpus auto needs nvidia-smi, which is not installed on this machine; name the GPUs by hand (--gpus "
        "0,1) or train on the CPU (--device cpu)"
    )


def test_auto_quotes_an_nvidia_smi_that_fails(smi):
    """Its own words, which it prints on stdout with status 9, on one line."""
    smi(NO_DRIVER, status=9)
    with pytest.raises(TrainingError) as caught:
        select("auto", None, {})
    assert f'nvidia-smi fails: "{NO_DRIVER.strip()}"; name the GPUs by hand' in caught.value.message


def test_auto_names_the_status_of_an_nvidia_smi_that_fails_silently(smi):
    """Without any words the exit status is told."""
    smi("", status=15)
    with pytest.raises(TrainingError, match="exit status 15"):
        select("auto", None, {})


def test_auto_does_not_wait_for_an_nvidia_smi_that_hangs(smi, monkeypatch):
    """A driver in trouble makes nvidia-smi hang; it is ended, and the sentence says how long was waited."""
    smi(A100, code="import time; time.sleep(60)")
    monkeypatch.setattr(gpus, "_PATIENCE", 0.5)
    with pytest.raises(TrainingError, match="did not answer"):
        select("auto", None, {})


def test_an_nvidia_smi_that_may_not_be_run_is_an_error(smi, tmp_path, monkeypatch):
    """A file of that name that is no program gives a sentence too."""
    smi(A100)
    (tmp_path / "nvidia-smi").write_bytes(b"\x00\x01")
    with pytest.raises(TrainingError, match="cannot be run"):
        select("auto", None, {})


def test_what_nvidia_smi_says_cannot_steer_the_terminal(smi):
    """Control characters in quoted text are taken out."""
    smi("\x1b[2J\x07oops\n")
    with pytest.raises(TrainingError) as caught:
        select("auto", None, {})
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("started", [True, False])
def test_a_choice_after_cuda_has_started_is_refused(monkeypatch, started):
    """CUDA reads the variable once; setting it later would be a silent mistake."""
    cuda = types.SimpleNamespace(is_initialized=lambda: started)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    environ = {}
    if started:
        with pytest.raises(UsageError, match="comes too late"):
            select("0", None, environ)
        assert environ == {}
    else:
        assert select("0", None, environ).physical == (0,)


def test_choosing_gpus_does_not_import_torch():
    """The choice is made before torch, in a process that has not loaded it."""
    code = (
        "import os, sys\nfrom ckptdoctor.trainer.gpus import select\nselect('0,4', None, os.environ)\n"
        "import ckptdoctor.trainer.slurm\nprint('torch' in sys.modules, os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "CKPTDOCTOR_"))}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0,4"]


def seen(monkeypatch, number):
    """torch sees so many GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)


def test_chosen_gpus_that_torch_sees_are_taken(monkeypatch):
    """As many GPUs as were chosen is what a run insists on."""
    seen(monkeypatch, 2)
    devices.require_gpus(GpuSelection((0, 4)))


def test_a_number_that_no_gpu_has_is_refused_with_those_there_are(monkeypatch, smi):
    """CUDA stops reading at a number that no GPU has and says nothing; the refusal lists the GPUs of the machine."""
    smi(CONSUMER)
    seen(monkeypatch, 1)
    with pytest.raises(UsageError) as refused:
        devices.require_gpus(GpuSelection((0, 9)))
    assert str(refused.value) == (
        "--gpus 0,9: this machine has no GPU 9. It has GPU 0 (NVIDIA GeForce RTX 2080 Ti), GPU 1 (NVIDIA "
        "GeForce RTX 4090); choose from these"
    )


def test_gpus_that_cuda_does_not_show_are_refused(monkeypatch, smi):
    """Where nvidia-smi knows the GPUs and CUDA shows fewer, both are said."""
    smi(CONSUMER)
    seen(monkeypatch, 1)
    with pytest.raises(
        UsageError, match=r"--gpus 0,1: CUDA shows 1 of these 2\. This machine has GPU 0 .*check nvidia-smi"
    ):
        devices.require_gpus(GpuSelection((0, 1)))
