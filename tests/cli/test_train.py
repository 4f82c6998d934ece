"""``ckptdoctor train``, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
import torch

from ckptdoctor.cli.main import run
from tests.trainer.forks import Forked
from tests.trainer.runs import finished, same, saved, wait_for
from tests.trainer.runs import started as training

SMALL = ["foonet", "--device", "cpu", "--epochs", "2"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests share the cores


def started(*words, **choices):
    """A run in a process of its own."""
    command = [sys.executable, "-m", "ckptdoctor", "train", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **choices)


def forked(*words):
    """The same, forked."""
    return Forked(run, ["train", *words])


def test_foonet_shows_what_each_replica_sees(tmp_path, capsys):
    """DataParallel on two replicas: 8 and 8 of a batch of 16; a checkpoint an epoch, and the next command to type."""
    assert run(["train", *SMALL, "--strategy", "dp", "--world-size", "2"]) == 0
    said = capsys.readouterr().out
    assert "replica 0 on cpu: batch of 8\nreplica 1 on cpu: batch of 8\n" in said
    assert "ckptdoctor check runs/foonet-dp/epoch-0002" in said
    assert sorted(path.name for path in (tmp_path / "runs/foonet-dp").glob("epoch-*")) == ["epoch-0001", "epoch-0002"]


def test_the_folder_holds_checkpoint_truth_and_curves(tmp_path):
    """Each checkpoint has training.pt, the styles asked for and truth.json; beside them metrics and curves."""
    assert run(["train", *SMALL, "--save", "plain", "--save", "wrapped", "--every", "2", "--out", "here"]) == 0
    files = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()}
    assert files == {
        "curves.html",
        "metrics.jsonl",
        "epoch-0002/training.pt",
        "epoch-0002/model.pt",
        "epoch-0002/wrapped.pt",
        "epoch-0002/truth.json",
    }


def test_a_second_run_into_the_same_folder_is_refused(capsys):
    """A run that is there already is not written over."""
    assert run(["train", *SMALL, "--out", "here"]) == 0
    capsys.readouterr()
    assert run(["train", *SMALL, "--out", "here"]) == 2
    assert capsys.readouterr().err == (
        "error: here already holds a run (epoch-0002): add --resume to continue it, or name another --out\n"
    )


@pytest.mark.parametrize("name", ["epoch-0001/model.pt", "epoch-0002", "epoch-0001-step-0004/notes.txt", "curves.html"])
def test_what_is_not_of_a_run_is_never_replaced(name, tmp_path, capsys):
    """Somebody else's file or folder may have the name of what the run would write."""
    other = tmp_path / "here" / name
    other.parent.mkdir(parents=True)
    other.write_text("precious", encoding="utf-8")
    assert run(["train", *SMALL, "--out", "here"]) == 2
    said = capsys.readouterr().err
    assert f"error: here/{name.split('/')[0]} is not a " in said and said.endswith("name another --out\n")
    assert [each for each in (tmp_path / "here").rglob("*") if each.is_file()] == [other]
    assert other.read_text(encoding="utf-8") == "precious"


def test_a_run_needs_a_folder(tmp_path, capsys):
    """A file, or a link to nothing, has its name: that is said before anything starts."""
    (tmp_path / "file").write_text("precious", encoding="utf-8")
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        assert run(["train", *SMALL, "--out", name]) == 2
        assert capsys.readouterr().err == f"error: {name} is not a folder: name another --out\n"
    assert (tmp_path / "file").read_text(encoding="utf-8") == "precious" and len(list(tmp_path.iterdir())) == 2


def test_a_run_is_not_resumed_over_an_incomplete_checkpoint(tmp_path, capsys):
    """One before the newest complete one is in nobody's way."""
    assert run(["train", *SMALL, "--out", "here"]) == 0
    (tmp_path / "here/epoch-0001/training.pt").unlink()
    assert run(["train", *SMALL, "--epochs", "3", "--out", "here", "--resume"]) == 0
    (tmp_path / "here/epoch-0003/training.pt").unlink()
    capsys.readouterr()
    assert run(["train", *SMALL, "--epochs", "3", "--out", "here", "--resume"]) == 2
    assert capsys.readouterr().err == (
        "error: here/epoch-0003 is not a complete checkpoint, but has the name of one that this run will save: move it "
        "away, or name another --out\n"
    )


def test_resume_without_a_checkpoint_is_refused(capsys):
    """There is nothing to go on from."""
    assert run(["train", *SMALL, "--out", "nothing", "--resume"]) == 2
    assert capsys.readouterr().err == ("error: nothing has no complete checkpoint to resume from: leave out --resume\n")


SMALL_VGG = {"network": "vgg", "width": 2, "images": 400, "batch_size": 8, "epochs": 2}


def test_a_run_that_is_stopped_and_resumed_ends_as_one_that_never_stopped(tmp_path):
    """Stopped by Ctrl-C in mid-epoch and resumed, a run with dropout ends in the same bits: weights, momentum, RNG."""
    finished(**SMALL_VGG, out="whole")
    process = training(**SMALL_VGG, out="half")
    wait_for((tmp_path / "half/epoch-0001").exists)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "continue: the same command with --resume" in said
    assert list((tmp_path / "half").glob("epoch-0001-step-*"))
    finished(**SMALL_VGG, out="half", resume=True)
    assert same(saved("whole/epoch-0002"), saved("half/epoch-0002"))


def test_devices_lists_what_is_here_and_why_the_rest_is_not(capsys):
    """The table names every kind of device."""
    assert run(["train", "--devices"]) == 0
    said = capsys.readouterr().out
    assert all(kind in said for kind in ("cpu", "cuda", "mps", "xla"))


def test_slurm_prints_a_script_that_bash_understands(capsys):
    """The script repeats the command line, without --slurm, and is valid."""
    assert run(["train", "resnet", "--strategy", "ddp", "--world-size", "16", "--out", "a b", "--slurm"]) == 0
    script = capsys.readouterr().out
    assert "ckptdoctor train resnet --strategy ddp --world-size 16 --out 'a b' ${resume:+" in script
    assert "#SBATCH --nodes=2" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert run(["train", "--strategy", "ddp", "--slurm", "--", "resnet"]) == 0
    assert "ckptdoctor train --strategy ddp resnet ${resume:+" in capsys.readouterr().out  # --resume stays an option


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--strategy", "single", "--world-size", "2"], "--strategy single trains one replica, not 2"),
        (["--world-size", "0"], "--world-size 0: a run has at least one replica"),
        (["foonet", "--data", "shapes"], "foonet takes three numbers, not the images of shapes"),
        (["--data", "mnist"], "--data-dir"),
        (["--tag-device", "nonsense!"], "nonsense!"),
        (["--strategy", "manual", "--save", "whole"], "whole"),
        (["--strategy", "ddp", "--show-work"], "--show-work prints the first step of manual and dp"),
        (["--gpus", "0"], "--gpus chooses GPUs, and --device cpu uses none"),
    ],
)
def test_what_cannot_be_is_one_sentence(words, sentence, tmp_path, capsys):
    """A request that makes no sense ends with status 2 and one line, and leaves nothing behind."""
    assert run(["train", "--device", "cpu", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ") and said.err.count("\n") == 1
    assert sentence in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_here_is_one_sentence(capsys):
    """--device cuda on a machine without a GPU says why it is not there."""
    assert run(["train", "--device", "cuda"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("start", [forked, pytest.param(started, marks=pytest.mark.slow)])
def test_gpus_that_are_not_there_are_refused(start, tmp_path):
    """--gpus on a machine without GPUs says what --device cuda says, and trains nothing."""
    gpus, cuda = start("--gpus", "9", "--devices"), forked("--device", "cuda")
    said, complaint = gpus.communicate(timeout=120)
    assert (gpus.returncode, said) == (2, "")
    assert cuda.communicate(timeout=120)[1] == complaint.replace("--gpus 9", "--device cuda")
    assert complaint.startswith("error: --gpus 9: ") and complaint.endswith("; or train on the CPU: --device cpu\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpus_cannot_be_chosen_where_there_are_none(monkeypatch, capsys):
    """--gpus auto does not send those without a GPU to numbers: it says what --device cuda says."""
    monkeypatch.setenv("PATH", "")  # no nvidia-smi
    assert run(["train", "--device", "cuda"]) == run(["train", "--gpus", "auto"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert second == first.replace("--device cuda", "--gpus auto", 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_gpus_are_chosen_before_torch_starts(tmp_path):
    """--gpus sets CUDA_VISIBLE_DEVICES and says which GPU is which; the table then speaks of those."""
    process = started("--gpus", "0", "--devices")
    said, narrated = process.communicate(timeout=120)
    assert narrated == "GPUs: physical 0 → cuda:0\n"
    assert "cuda" in said


def of_torchrun(rank, port):
    """What torchrun sets for one of two processes on one machine."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    return {name: str(value) for name, value in {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items()}


def test_what_torchrun_starts_is_the_same_run(tmp_path):
    """With the variables of torchrun each process is a rank of the run; the first one speaks.

    torch.distributed.launch also puts the local rank before the command, spelled in one of two ways.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    words = ["train", *SMALL, "--strategy", "ddp", "--out", "here", "--save", "wrapped"]
    processes = [
        Forked(run, [option, *words], environ={**os.environ, **of_torchrun(rank, port)})
        for rank, option in enumerate(("--local-rank=0", "--local_rank=1"))
    ]
    said = []
    for process in processes:
        out, complaint = process.communicate(timeout=120)
        assert process.returncode == 0, complaint
        said.append(out)
    assert_two_ranks_trained(tmp_path / "here", "".join(said))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torch.distributed.run", "torch.distributed.launch"])
def test_torchrun_starts_the_same_run(launcher, tmp_path):
    """The same under torchrun itself, and under what came before it."""
    command = [sys.executable, "-m", launcher, "--standalone", "--nproc-per-node", "2"]
    words = ["-m", "ckptdoctor", "train", *SMALL, "--strategy", "ddp", "--out", "here", "--save", "wrapped"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, env=quiet, check=False)
    assert process.returncode == 0, process.stderr
    assert_two_ranks_trained(tmp_path / "here", process.stdout)


def test_the_first_step_is_shown_at_work(capsys):
    """--show-work prints each replica's part and gradient, and then their sum, once and within 80 columns."""
    words = ["--strategy", "dp", "--world-size", "2", "--epochs", "1", "--show-work", "--out", "here"]
    assert run(["train", "foonet", "--device", "cpu", *words]) == 0
    said = capsys.readouterr().out
    shown = said[said.index("first step:") : said.index("epoch 1/1:")]
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("(8, 3), labels") == 2 and said.count("first step:") == said.count("replica 1 on cpu:") / 2 == 1


def assert_two_ranks_trained(out, said):
    """One of them said so, and the checkpoint is that of DistributedDataParallel."""
    assert said.count("strategy: ddp, 2 processes on cpu") == 1
    truth = json.loads((out / "epoch-0002/truth.json").read_text(encoding="utf-8"))
    assert truth["made"]["world_size"] == 2
    assert next(iter(torch.load(out / "epoch-0002/wrapped.pt", weights_only=True))).startswith("module.")
