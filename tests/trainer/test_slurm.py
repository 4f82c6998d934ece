"""The sbatch script: what it asks for, and what really reaches the ranks when bash runs it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys

import pytest

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.slurm import GPUS_PER_NODE, nodes_for, script

COMMAND = ["ckptdoctor", "train", "lenet", "--out", "run", "--slurm"]

SRUN = """\
import json, os, sys
names = ("MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
told = {name: os.environ.get(name) for name in names}
with open("srun.json", "w") as file:
    json.dump({"arguments": sys.argv[1:], "environment": told}, file)
sys.exit(int(os.environ.get("SRUN_STATUS", "0")))
"""
SCONTROL = """\
import os, sys
assert sys.argv[1:] == ["show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], sys.argv
if os.environ["SLURM_JOB_NODELIST"] == "unknown":
    sys.exit("slurm_load_jobs error")
print("gpu07\\ngpu08\\ngpu11")
"""


@pytest.fixture
def submit(tmp_path):
    """Run a script as sbatch would, with executables srun and scontrol that say what they were given."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, code in (("srun", SRUN), ("scontrol", SCONTROL)):
        program = tools / name
        program.write_text(f"#!{sys.executable}\n{code}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def run(text, *, check=True, **environment):
        told = {"SLURM_JOB_ID": "1234567", "SLURM_JOB_NODELIST": "gpu[07-08,11]", **environment}
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        # on stdin, as "ckptdoctor train … --slurm | sbatch" gives it to sbatch
        done = subprocess.run(
            ["bash"], input=text, cwd=tmp_path, env={"PATH": path, **told}, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        seen = tmp_path / "srun.json"
        return done, json.loads(seen.read_text()) if seen.exists() else None

    return run


def config(strategy="ddp", world_size=16, device="cuda", **more):
    return RunConfig(strategy=strategy, world_size=world_size, device=device, out=more.pop("out", "run"), **more)


def header(text):
    """The options that sbatch reads: up to the first line that is a command."""
    lines = text.split("\n")
    assert lines[0] == "#!/bin/bash"
    end = lines.index("")
    return dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines[1:end])


def test_ranks_get_a_task_and_a_gpu_each():
    """Sixteen ranks of ddp are two nodes with eight tasks and eight GPUs."""
    asked = header(script(config(), nodes=2, gpus_per_node=8, command=COMMAND))
    assert asked["job-name"] == "ckptdoctor-lenet-ddp"
    assert (asked["nodes"], asked["ntasks"], asked["ntasks-per-node"], asked["gres"]) == ("2", "16", "8", "gpu:8")


def test_ranks_that_fill_no_whole_node_are_dealt_evenly():
    """Twelve ranks on two nodes are six and six, and no GPU is asked for that no rank uses."""
    asked = header(script(config(world_size=12), nodes=2, gpus_per_node=8, command=COMMAND))
    assert (asked["ntasks"], asked["ntasks-per-node"], asked["gres"]) == ("12", "6", "gpu:6")


@pytest.mark.parametrize("strategy", ["dp", "functional", "manual"])
def test_a_strategy_of_one_process_gets_one_task_with_all_gpus(strategy, submit):
    """The replicas of one process are one task that sees the GPUs of one node, as in the classic srun line."""
    text = script(config(strategy, 8), nodes=1, gpus_per_node=8, command=COMMAND)
    asked = header(text)
    assert (asked["nodes"], asked["ntasks"], asked["ntasks-per-node"], asked["gres"]) == ("1", "1", "1", "gpu:8")
    _, seen = submit(text)
    assert {"--ntasks=1", "--ntasks-per-node=1", "--gres=gpu:8", "--kill-on-bad-exit=1"} <= set(seen["arguments"])
    assert seen["environment"]["MASTER_ADDR"] is None


def test_the_cpu_needs_cores_and_no_gpus():
    """Without GPUs the job asks for a core for each replica of a task and for each process that prepares batches."""
    asked = header(script(config(world_size=4, device="cpu", workers=2), nodes=1, gpus_per_node=8, command=COMMAND))
    assert "gres" not in asked
    assert (asked["ntasks"], asked["cpus-per-task"]) == ("4", "3")
    alone = header(script(config("manual", 4, "cpu"), nodes=1, gpus_per_node=8, command=COMMAND))
    assert (alone["ntasks"], alone["cpus-per-task"]) == ("1", "4")


def test_the_run_is_told_before_its_time_is_up():
    """The ranks get SIGTERM two minutes before the end, and output of a restarted job is appended, not lost."""
    asked = header(script(config(), nodes=2, gpus_per_node=8, command=COMMAND))
    assert asked["signal"] == "TERM@120"
    assert re.fullmatch(r"\d\d:\d\d:\d\d", asked["time"])
    assert (asked["output"], asked["open-mode"], asked["requeue"]) == ("%x-%j.out", "append", "")


@pytest.mark.parametrize("strategy", ["single", "dp", "ddp", "exact"])
def test_bash_finds_no_fault(strategy):
    """bash -n reads the whole script without an error."""
    size = {"single": 1}.get(strategy, 8)
    text = script(config(strategy, size, out="it's $HOME"), nodes=1, gpus_per_node=8, command=[*COMMAND, "a'b\nc"])
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_ranks_learn_where_they_meet(submit):
    """srun is given the first node, a port of this job's own, and the resources that were asked for."""
    _, seen = submit(script(config(), nodes=2, gpus_per_node=8, command=COMMAND))
    assert seen["environment"] == {"MASTER_ADDR": "gpu07", "MASTER_PORT": "24567", "SLURM_JOB_ID": "1234567"}
    assert seen["arguments"] == [
        *("--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--cpus-per-task=1", "--gres=gpu:8"),
        *("--kill-on-bad-exit=1", "ckptdoctor", "train", "lenet", "--out", "run"),
    ]


@pytest.mark.parametrize("job", ["1", "9999", "10000", "67108863"])
def test_the_port_is_one_that_anybody_may_use(job, submit):
    """Whatever the number of the job, the port is neither reserved nor among those of outgoing connections."""
    _, seen = submit(script(config(), nodes=2, gpus_per_node=8, command=COMMAND), SLURM_JOB_ID=job)
    assert 20000 <= int(seen["environment"]["MASTER_PORT"]) < 30000


def test_every_word_of_the_command_arrives_as_it_was(submit):
    """Spaces, quotes, dollars, line ends and wildcards mean nothing to the shell; --slurm is left out."""
    words = ["a b", "it's", "$HOME", "`id`", "*", "x\ny", "", ";", '"']
    text = script(config(), nodes=2, gpus_per_node=8, command=["ckptdoctor", "train", "--slurm", *words])
    _, seen = submit(text)
    assert seen["arguments"][6:] == ["ckptdoctor", "train", *words]


def test_a_script_submitted_again_resumes(submit, tmp_path):
    """With a complete checkpoint in the folder the run goes on, with one that was not finished it begins."""
    out = tmp_path / "my $run"
    text = script(config(out=str(out)), nodes=2, gpus_per_node=8, command=COMMAND)
    (out / "epoch-0001.partial").mkdir(parents=True)
    (out / "epoch-0001.partial" / "training.pt").touch()
    assert "--resume" not in submit(text)[1]["arguments"]
    (out / "epoch-0001-step-0005").mkdir()
    (out / "epoch-0001-step-0005" / "training.pt").touch()
    assert submit(text)[1]["arguments"][-1] == "--resume"


def test_a_run_that_is_to_resume_says_so_once(submit):
    """--resume on the command line stays, without a look at the folder and without a repetition."""
    _, seen = submit(script(config(), nodes=2, gpus_per_node=8, command=[*COMMAND, "--resume"]))
    assert seen["arguments"].count("--resume") == 1


def test_the_status_of_the_ranks_is_that_of_the_job(submit):
    """Slurm calls the job failed when a rank failed."""
    done, _ = submit(script(config(), nodes=2, gpus_per_node=8, command=COMMAND), check=False, SRUN_STATUS="3")
    assert done.returncode == 3


def test_without_a_meeting_place_nothing_is_started(submit):
    """When scontrol does not know the nodes the job ends, with scontrol's own words."""
    text = script(config(), nodes=2, gpus_per_node=8, command=COMMAND)
    done, seen = submit(text, check=False, SLURM_JOB_NODELIST="unknown")
    assert done.returncode != 0
    assert "slurm_load_jobs error" in done.stderr
    assert seen is None


@pytest.mark.parametrize(
    ("settings", "nodes", "extra", "says"),
    [
        ({"device": "mps"}, 2, [], "not for --device mps"),
        ({}, 2, ["--gpus", "0,4"], "Slurm picks the GPUs"),
        ({}, 2, ["--gpus=auto"], "Slurm picks the GPUs"),
        ({}, 0, [], "at least one node"),
        ({"world_size": 2}, 3, [], "leave nodes idle"),
        ({"strategy": "dp"}, 2, [], "stays on one node, which holds 8 replicas, not 16; use --strategy ddp"),
        ({"strategy": "manual"}, 1, [], "stays on one node"),
        ({}, 1, [], "1 × 8 GPUs hold no 16 replicas; request 2 nodes"),
    ],
)
def test_what_cannot_run_is_refused_before_it_waits_in_a_queue(settings, nodes, extra, says):
    """A request that Slurm would hold for hours and then fail is a UsageError at once."""
    with pytest.raises(UsageError, match=re.escape(says)):
        script(config(**settings), nodes=nodes, gpus_per_node=8, command=[*COMMAND, *extra])


@pytest.mark.parametrize(("world_size", "nodes"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
def test_nodes_are_as_few_as_hold_the_replicas(world_size, nodes):
    """Eight GPUs a node unless it is said otherwise."""
    assert GPUS_PER_NODE == 8
    assert nodes_for(world_size) == nodes
    assert nodes_for(world_size, 4) == -(-world_size // 4)
