"""Runs with planted faults of which the right answer is known, each from a number alone.

Every file is written by torch or safetensors. What a run should answer follows from what was planted in it, and from
nothing that ``latest`` uses.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import safetensors.torch
import torch

WIDTH = 24


@dataclass
class Saved:
    """One checkpoint of a run: where it is, and what is true of it."""

    path: Path
    step: int
    intact: bool = True  # headers and members
    sound: bool = True  # bytes and values
    resumable: bool = True


@dataclass
class Run:
    """A run in a folder: its checkpoints in the order in which they were saved, and what was planted."""

    folder: Path
    kind: str
    saved: list[Saved] = field(default_factory=list)
    planted: list[str] = field(default_factory=list)

    def newest(self, *, resumable=False, verified=False):
        """The path that is right, or None."""
        good = [
            each
            for each in self.saved
            if each.intact and (each.resumable or not resumable) and (each.sound or not verified)
        ]
        return max(good, key=lambda each: each.step).path if good else None


# ---- what libraries write


def weights(seed=0):
    """Weights without zeros."""
    generator = torch.Generator().manual_seed(seed)
    return {
        f"layers.{at}.{name}": torch.rand(*shape, generator=generator) + 0.1
        for at in range(2)
        for name, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,)))
    }


def adam(*, zero=False):
    """The state of Adam as torch saves it."""
    moments = {"exp_avg": torch.zeros, "exp_avg_sq": torch.zeros} if zero else {
        "exp_avg": lambda *shape: torch.rand(*shape) + 0.1,
        "exp_avg_sq": lambda *shape: torch.rand(*shape) + 0.1,
    }  # fmt: skip
    shapes = [tuple(each.shape) for each in weights().values()]
    state = {
        at: {"step": torch.tensor(3.0), **{name: make(*shape) for name, make in moments.items()}}
        for at, shape in enumerate(shapes)
    }
    group = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "params": list(range(len(shapes)))}
    return {"state": state, "param_groups": [group]}


@cache
def in_torch(what):
    """The bytes of ``torch.save`` of a part that is the same in all checkpoints."""
    made = {
        "adam": adam,
        "zero adam": lambda: adam(zero=True),
        "scheduler": lambda: {"last_epoch": 3, "_step_count": 4, "base_lrs": [0.1], "_last_lr": [0.1]},
        "rng": lambda: {"cpu": torch.get_rng_state()},
        "args": lambda: {"lr": 0.1},
        "weights": weights,
        "states of accelerate": lambda: {"step": 0, "torch_manual_seed": torch.get_rng_state()},
        "partition": lambda: {
            "optimizer_state_dict": {
                "zero_stage": 2,
                "partition_count": [2],
                "single_partition_of_fp32_groups": [torch.rand(9) + 0.1],
                "base_optimizer_state": {"state": adam()["state"], "param_groups": adam()["param_groups"]},
            },
            "ds_version": "0.17.0",
        },
    }[what]()
    return saved(made)


def saved(contents):
    """The bytes of ``torch.save``."""
    stream = io.BytesIO()
    torch.save(contents, stream)
    return stream.getvalue()


@cache
def in_safetensors(part=None):
    """The bytes of the weights, or of those whose names begin with ``part``."""
    return safetensors.torch.save(
        {name: each for name, each in weights().items() if part is None or name.startswith(part)}, {"format": "pt"}
    )


def write(path, data):
    """Write a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())


def trainer(run, step, chance):
    """``Trainer._save_checkpoint``, with its weights in one file, in shards or as an adapter."""
    folder = run.folder / f"checkpoint-{step}"
    way = run.way if hasattr(run, "way") else "single"
    if way == "sharded":
        names = {f"layers.{at}": f"model-0000{at + 1}-of-00002.safetensors" for at in range(2)}
        for part, name in names.items():
            write(folder / name, in_safetensors(part))
        index = {"metadata": {}, "weight_map": {name: names[name[:8]] for name in weights()}}
        write(folder / "model.safetensors.index.json", index)
    elif way == "adapter":
        write(folder / "adapter_model.safetensors", in_safetensors())
    else:
        write(folder / "model.safetensors", in_safetensors())
    write(folder / "optimizer.pt", in_torch("adam"))
    write(folder / "scheduler.pt", in_torch("scheduler"))
    for name in ("rng_state_0.pth", "rng_state_1.pth", "rng_state_2.pth") if way == "sharded" else ("rng_state.pth",):
        write(folder / name, in_torch("rng"))
    write(folder / "training_args.bin", in_torch("args"))
    write(folder / "trainer_state.json", {"epoch": step / 100, "global_step": step, "log_history": []})
    return folder


def accelerate(run, step, chance):
    """``Accelerator.save_state`` with automatic_checkpoint_naming: the number is that of the save."""
    folder = run.folder / "checkpoints" / f"checkpoint_{len(run.saved)}"
    write(folder / "model.safetensors", in_safetensors())
    write(folder / "optimizer.bin", in_torch("adam"))
    for rank in range(3):
        write(folder / f"random_states_{rank}.pkl", in_torch("states of accelerate"))
    return folder


def lightning(run, step, chance):
    """``ModelCheckpoint``, in the folder of a logger."""
    folder = run.folder / "lightning_logs" / "version_0" / "checkpoints"
    contents = {
        "epoch": step // 100,
        "global_step": step,
        "pytorch-lightning_version": "2.6.0",
        "state_dict": weights(),
        "loops": {},
        "optimizer_states": [adam()],
        "lr_schedulers": [],
    }
    path = folder / f"epoch={step // 100}-step={step}.ckpt"
    write(path, saved(contents))
    return path


def deepspeed(run, step, chance):
    """``DeepSpeedEngine.save_checkpoint`` of two ranks, which writes ``latest`` at last."""
    folder = run.folder / f"global_step{step}"
    states = {
        "module": weights(),
        "ds_version": "0.17.0",
        "ds_config": {"zero_optimization": {"stage": 2}},
        "dp_world_size": 2,
        "mp_world_size": 1,
        "global_steps": step,
    }
    write(folder / "mp_rank_00_model_states.pt", saved(states))
    for rank in range(2):
        write(folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", in_torch("partition"))
    (run.folder / "latest").write_text(folder.name)
    return folder


def megatron(run, step, chance):
    """``save_checkpoint`` of Megatron-LM with two tensor-parallel ranks."""
    folder = run.folder / f"iter_{step:07}"
    for rank in range(2):
        states = {
            "args": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1},
            "checkpoint_version": 3.0,
            "iteration": step,
            "model": weights(),
            "optimizer": {"optimizer": adam()},
            "opt_param_scheduler": {"num_steps": step},
            "rng_state": [{"torch_rng_state": torch.get_rng_state()}],
        }
        write(folder / f"mp_rank_0{rank}" / "model_optim_rng.pt", saved(states))
    (run.folder / "latest_checkpointed_iteration.txt").write_text(str(step))
    return folder


@cache
def distributed_bytes():
    """The files of ``torch.distributed.checkpoint.save``."""
    import tempfile

    import torch.distributed.checkpoint as dcp

    contents = {"model": weights(), "optimizer": adam(), "lr_scheduler": {"last_epoch": 3}}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process
        dcp.save(contents, checkpoint_id=folder, no_dist=True)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def torchtitan(run, step, chance):
    """``CheckpointManager``: a folder of torch.distributed.checkpoint for each step."""
    folder = run.folder / "checkpoint" / f"step-{step}"
    for name, data in distributed_bytes().items():
        write(folder / name, data)
    return folder


def script(run, step, chance):
    """What nanoGPT and its kin save, each under its own name."""
    path = run.folder / run.pattern.format(step)
    contents = {"model": weights(), "optimizer": adam(), "iter_num": step, "best_val_loss": 1.5, "config": {"lr": 0.1}}
    write(path, saved(contents))
    return path


PATTERNS = ("ckpt_{}.pt", "model_{:06}.pt", "step_{}.pth", "out-{}.pt", "checkpoint.{}.pth.tar")
KINDS = {each.__name__: each for each in (trainer, accelerate, lightning, deepspeed, megatron, torchtitan, script)}


# ---- what goes wrong


def cut(path):
    """Cut a file off, as a full disk or a killed process does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def zeroed_tail(path):
    """Zeros where the end of a file was preallocated, and never written."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little") if path.suffix == ".safetensors" else len(data) // 2
    path.write_bytes(data[:start] + bytes(len(data) - start))


def flipped(path, at):
    """One bit of a value that is not what it was."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(bytes(data))


def _main_file(each):
    if each.path.is_file():
        return each.path
    files = [path for path in sorted(each.path.rglob("*")) if path.suffix in (".safetensors", ".pt", ".distcp")]
    names = ("model", "adapter_model", "mp_rank", "__0")
    return next(path for path in files if path.name.startswith(names))


def truncated(run, each, chance):
    """A file of the checkpoint ends early."""
    cut(_main_file(each))
    each.intact = False


def zeroed(run, each, chance):
    """The end of a file is zeros: in safetensors no header shows it."""
    path = _main_file(each)
    zeroed_tail(path)
    each.intact = each.intact and path.suffix == ".safetensors"
    each.sound = False


def empty(run, each, chance):
    """A file has no bytes."""
    _main_file(each).write_bytes(b"")
    each.intact = False


def member_missing(run, each, chance):
    """A file of the checkpoint was not copied."""
    if each.path.is_file():
        truncated(run, each, chance)
        return
    if run.kind == "deepspeed":
        (each.path / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    elif run.kind == "megatron":
        shutil.rmtree(each.path / "mp_rank_01")
    elif run.kind == "torchtitan":
        _main_file(each).unlink()
    elif (each.path / "model-00002-of-00002.safetensors").exists():
        (each.path / "model-00002-of-00002.safetensors").unlink()
    else:
        cut(each.path / ("optimizer.pt" if run.kind == "trainer" else "optimizer.bin"))
    each.intact = False


def stale_index(run, each, chance):
    """The index is of a save with another number of shards."""
    index = each.path / "model.safetensors.index.json"
    if not index.exists():
        truncated(run, each, chance)
        return
    said = json.loads(index.read_text())
    said["weight_map"] = {name: file.replace("of-00002", "of-00003") for name, file in said["weight_map"].items()}
    index.write_text(json.dumps(said))
    each.intact = False


def last_missing(run, each, chance):
    """The file that is written last is not there yet."""
    last = {"trainer": "trainer_state.json", "torchtitan": ".metadata"}
    if run.kind == "accelerate":
        for path in each.path.glob("random_states_*"):
            path.unlink()
    elif run.kind in last:
        (each.path / last[run.kind]).unlink()
    else:
        truncated(run, each, chance)
        return
    each.intact = False


def not_announced(run, each, chance):
    """The file that names the last complete checkpoint still names the one before."""
    before = [other for other in run.saved if other.step < each.step]
    if run.kind not in ("deepspeed", "megatron") or not before or each is not run.saved[-1]:
        truncated(run, each, chance)
        return
    if run.kind == "deepspeed":
        (run.folder / "latest").write_text(before[-1].path.name)
    else:
        (run.folder / "latest_checkpointed_iteration.txt").write_text(str(before[-1].step))
    each.intact = False


def optimizer_missing(run, each, chance):
    """Only weights are left of it."""
    if run.kind == "trainer":
        (each.path / "optimizer.pt").unlink()
    elif run.kind == "accelerate":
        # its folder is a model's then, as ``save_model`` leaves it
        for path in each.path.iterdir():
            if path.name != "model.safetensors":
                path.unlink()
    elif run.kind in ("lightning", "script"):
        contents = torch.load(each.path, weights_only=False)
        contents = {key: value for key, value in contents.items() if not key.startswith("optimizer")}
        each.path.write_bytes(saved(contents))
    else:
        truncated(run, each, chance)
        return
    each.resumable = False


def zero_moments(run, each, chance):
    """The optimizer's moments are all zero."""
    if run.kind == "trainer":
        write(each.path / "optimizer.pt", in_torch("zero adam"))
    elif run.kind == "accelerate":
        write(each.path / "optimizer.bin", in_torch("zero adam"))
    elif run.kind in ("lightning", "script"):
        contents = torch.load(each.path, weights_only=False)
        name = "optimizer" if run.kind == "script" else "optimizer_states"
        contents[name] = adam(zero=True) if run.kind == "script" else [adam(zero=True)]
        each.path.write_bytes(saved(contents))
    else:
        truncated(run, each, chance)
        return
    each.resumable = False


def rank_missing(run, each, chance):
    """The random state of a process between others was not copied."""
    for name in ("rng_state_1.pth", "random_states_1.pkl"):
        if each.path.is_dir() and (each.path / name).exists():
            (each.path / name).unlink()
            each.resumable = False
            return
    member_missing(run, each, chance)


def bit(run, each, chance):
    """One bit of a value changed on the disk, which only a checksum shows."""
    path = _main_file(each)
    if path.suffix == ".safetensors":
        zeroed(run, each, chance)
        return
    data = path.read_bytes()
    at = data.find(weights()["layers.0.weight"].numpy().tobytes()[:64])
    if at < 0:
        truncated(run, each, chance)
        return
    flipped(path, at + 5)
    each.sound = False


def nan(run, each, chance):
    """A weight is NaN."""
    if run.kind not in ("lightning", "script"):
        bit(run, each, chance)
        return
    contents = torch.load(each.path, weights_only=False)
    contents["model" if run.kind == "script" else "state_dict"]["layers.1.weight"][3, 5] = float("nan")
    each.path.write_bytes(saved(contents))
    each.sound = False


FAULTS = (
    *(truncated, zeroed, empty, member_missing, stale_index, last_missing, not_announced),
    *(optimizer_missing, zero_moments, rank_missing, bit, nan),
)


# ---- what misleads


def temporary(run, chance):
    """A checkpoint that is still being written, further than all others."""
    step = run.saved[-1].step + 100
    if run.kind == "trainer":
        shutil.copytree(run.saved[-1].path, run.folder / f"tmp-checkpoint-{step}")
    elif run.saved[-1].path.is_file():
        path = run.saved[-1].path
        shutil.copy(path, path.with_name(f"{path.stem}-{step}{path.suffix}.tmp"))
    else:
        path = run.saved[-1].path
        shutil.copytree(path, path.with_name(f"{path.name}.partial"))


def last_file(run, chance):
    """Lightning's last.ckpt, which may be older or newer than the numbered ones."""
    if run.kind != "lightning":
        return
    folder = run.saved[-1].path.parent
    step = run.saved[-1].step + 50 if chance.random() < 0.5 else run.saved[0].step - 50
    made = lightning(run, step, chance)
    made.rename(folder / "last.ckpt")
    run.saved.append(Saved(folder / "last.ckpt", step))


def names_exchanged(run, chance):
    """The newest has the name of the first, and the other way round: contents know better."""
    if run.kind not in ("lightning", "script") or len(run.saved) < 2:
        return
    first, last = run.saved[0], run.saved[-1]
    if first.path.name == "last.ckpt" or last.path.name == "last.ckpt":
        return
    spare = first.path.with_name("spare")
    first.path.rename(spare)
    last.path.rename(first.path)
    spare.rename(last.path)
    first.path, last.path = last.path, first.path


def times(run, chance):
    """Modification times as a copy leaves them: in any order."""
    for each in run.saved:
        at = 1_700_000_000 + chance.randrange(10**6)
        os.utime(each.path, (at, at))


def weights_next_to_them(run, chance):
    """The final model at the top of the run, and files that are not checkpoints."""
    write(run.folder / "config.json", {"model_type": "bert"})
    write(run.folder / "model.safetensors", in_safetensors())
    write(run.folder / "training_args.bin", in_torch("args"))
    (run.folder / "logs").mkdir(exist_ok=True)


MISLEADING = (temporary, last_file, names_exchanged, times, weights_next_to_them)


def make(number, folder):
    """The run of this number, in an empty folder."""
    chance = random.Random(number)
    kind = list(KINDS)[number % len(KINDS)]
    run = Run(Path(folder), kind)
    run.way = chance.choice(("single", "sharded", "adapter"))
    run.pattern = chance.choice(PATTERNS)
    step = 0
    for _ in range(chance.randint(1, 4)):
        step += chance.choice((50, 100, 250))
        run.saved.append(Saved(KINDS[kind](run, step, chance), step))
    misleading = [each for each in MISLEADING if chance.random() < 0.35]
    faulty = list(reversed(run.saved))[: chance.randint(0, 2)]
    for each in faulty:
        fault = chance.choice(FAULTS)
        fault(run, each, chance)
        run.planted.append(f"{fault.__name__} in {each.path.name}")
    for each in misleading:
        if each is names_exchanged and any(not saved.intact for saved in run.saved):
            continue  # what cannot be read does not say which step it is
        each(run, chance)
        run.planted.append(each.__name__)
    return run
