"""A store of any size that is computed: listings, sizes, times and the bytes of headers follow from names alone.

``simulated://SEED-RUNS-PER`` has so many runs with so many checkpoints each (at most ``MOST``): files of safetensors
and of torch with declared sizes up to 100 GB, and folders of transformers' Trainer. Faults are planted by the same
numbers, so that the truth of each checkpoint is known. Values are zeros that nobody has to read. Each request takes
SIMULATED_LATENCY seconds.

A process of its own finds the file system by an entry point (``installed``), as it finds any that pip installs.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import time
import zlib
from functools import cache
from pathlib import Path

import fsspec
from fsspec.spec import AbstractFileSystem

STEP = 500
MOST = 40  # checkpoints of a run
_BEGUN = 1_750_000_000.0
_TEAM = 250  # runs in the folder of a team
# of a thousand checkpoints
_FAULTS = (
    *("cut",) * 8,  # fewer bytes than its header declares
    *("empty",) * 3,
    *("page",) * 2,  # a web page under the name of a checkpoint
    *("lost",) * 7,  # a file of its folder is missing, or its header
)
_ODD = (*("unfinished",) * 6, *("slow",) * 2, *("later",) * 40)


def planted(run, number, seed=0):
    """What is wrong with a checkpoint, "" for nothing; and what is odd about it, and no fault."""
    drawn = zlib.crc32(f"{seed}/{run}/{number}".encode()) % 1000
    fault = _FAULTS[drawn] if drawn < len(_FAULTS) else ""
    odd = _ODD[drawn - 500] if 500 <= drawn < 500 + len(_ODD) else ""
    return fault, odd


def kind(run):
    """How the checkpoints of a run are saved."""
    return ("safetensors", "torch", "trainer")[run % 3]


@cache
def _header(layers, width):
    """A header of safetensors with a few tensors of so many bytes each, and the bytes that are declared."""
    tensors, at = {}, 0
    for layer in range(layers):
        for name, shape in (("weight", [width, width]), ("bias", [width])):
            length = 4 * width * (width if len(shape) == 2 else 1)
            tensors[f"layers.{layer}.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + length]}
            at += length
    text = json.dumps(tensors).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, at


@cache
def _store(name):
    return tuple([int(each) for each in name.split("-")])


@cache
def _torch_file(step):
    """The bytes of torch.save; checkpoints of one step are the same file in all runs.

    They are written once: the processes that examine them, and their memory, are without torch.
    """
    path = Path(os.environ["SIMULATED_STORE"]) / f"{step}.pt"
    if not path.exists():
        path.write_bytes(_saved(step))
    return path.read_bytes()


def _saved(step):
    import torch

    generator = torch.Generator().manual_seed(step)
    weights = {f"layers.{at}.weight": torch.rand(16, 16, generator=generator) + 0.1 for at in range(4)}
    file = io.BytesIO()
    torch.save({"model": weights, "global_step": step}, file)
    return file.getvalue()


class SimulatedStore(AbstractFileSystem):
    """Answers as an object store does. ``requests`` counts what this process asked for."""

    protocol = "simulated"
    cachable = False
    requests = {"ls": 0, "info": 0, "get": 0}  # noqa: RUF012 - of all instances

    def _asked(self, what):
        self.requests[what] += 1
        if "SIMULATED_LATENCY" in os.environ:
            time.sleep(float(os.environ["SIMULATED_LATENCY"]))

    def _parsed(self, path):
        store, *rest = path.removeprefix("simulated://").strip("/").split("/")
        return (store, *_store(store)), rest

    def ls(self, path, detail=True, **kwargs):
        """What is directly in a folder."""
        self._asked("ls")
        return self._listed(path, detail)

    def _listed(self, path, detail=True):
        (store, seed, runs, per), rest = self._parsed(path)
        base = "/".join([store, *rest])
        found = []
        if not rest:
            found = [self._folder(f"{base}/team{team}") for team in range(-(-runs // _TEAM))]
        elif len(rest) == 1:
            first = int(rest[0].removeprefix("team")) * _TEAM
            found = [self._folder(f"{base}/run{run}") for run in range(first, min(runs, first + _TEAM))]
        elif len(rest) == 2:
            run = int(rest[1].removeprefix("run"))
            for number in range(per):
                found += self._checkpoint(base, run, number, seed)
        else:
            found = self._inside(base, int(rest[1].removeprefix("run")), _number(rest[2]), seed)
        if not found:
            raise FileNotFoundError(path)
        return found if detail else [each["name"] for each in found]

    def _folder(self, name):
        return {"name": name, "size": 0, "type": "directory"}

    def _file(self, name, size, modified):
        etag = f'"{zlib.crc32(f"{name}{size}".encode()):08x}"'
        return {"name": name, "size": size, "type": "file", "mtime": modified, "ETag": etag}

    def _time(self, run, number, odd):
        late = 10**6 if odd == "later" else 0  # copied, and not in the order of steps
        return _BEGUN + 3600.0 * number + run + late

    def _checkpoint(self, base, run, number, seed):
        step = STEP * (number + 1)
        fault, odd = planted(run, number, seed)
        if kind(run) == "trainer":
            name = f"{'tmp-' if odd == 'unfinished' else ''}checkpoint-{step}"
            return [self._folder(f"{base}/{name}")]
        suffix = ".safetensors" if kind(run) == "safetensors" else ".pt"
        name = f"{base}/model_step{step}{suffix}{'.tmp' if odd == 'unfinished' else ''}"
        return [self._file(name, _size(kind(run), _shape(run), step, fault), self._time(run, number, odd))]

    def _inside(self, base, run, number, seed):
        fault, odd = planted(run, number, seed)
        modified = self._time(run, number, odd)
        sizes = _sizes(_shape(run), STEP * (number + 1), fault)
        return [self._file(f"{base}/{name}", size, modified) for name, size in sizes]

    def info(self, path, **kwargs):
        """What is known of one name."""
        self._asked("info")
        return self._known(path)

    def _known(self, path):
        (store, seed, _, per), rest = self._parsed(path)
        if not rest:
            return self._folder(store)
        above = "/".join([store, *rest[:-1]])
        if len(rest) == 3 and _number(rest[2]) < per:
            found = self._checkpoint(above, int(rest[1].removeprefix("run")), _number(rest[2]), seed)
        else:
            found = self._listed(above)
        for each in found:
            if each["name"] == f"{above}/{rest[-1]}":
                return each
        raise FileNotFoundError(path)

    def cat_file(self, path, start=None, end=None, **kwargs):
        """These bytes of a file."""
        self._asked("get")
        (_, seed, _, _), rest = self._parsed(path)
        run = int(rest[1].removeprefix("run"))
        name = rest[-1]
        step = STEP * (_number(rest[2]) + 1)
        fault, odd = planted(run, _number(rest[2]), seed)
        whole = self._known(path)["size"]
        start, end = start or 0, whole if end is None else min(end, whole)
        if odd == "slow" and "slow" not in _MET:  # a connection that breaks once is asked again
            _MET.add("slow")
            raise ConnectionError("503 SlowDown")
        if name == "trainer_state.json":
            head = _state(step)
        elif fault == "page" and name.startswith("model"):
            head = _PAGE
        elif name.endswith((".safetensors", ".safetensors.tmp")):
            head = _header(*_shape(run))[0]
        else:
            head = _torch_file(step)
        data = head[start:end]
        return data + bytes(end - start - len(data))


_MET = set()
_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"


@cache
def _number(name):
    """Which checkpoint of its run one of this name is, from 0; -1 where no number is in it."""
    return int("0" + "".join(filter(str.isdigit, name))) // STEP - 1


@cache
def _size(how, shape, step, fault):
    if fault == "empty":
        return 0
    if fault == "page":
        return len(_PAGE)
    whole = len(_torch_file(step)) if how == "torch" else sum(_weights(shape))
    if fault == "cut" or (fault == "lost" and how != "trainer"):
        return whole * 3 // 4
    return whole


@cache
def _sizes(shape, step, fault):
    """The files of a folder of the Trainer."""
    sizes = {
        "model.safetensors": _size("trainer", shape, step, "" if fault == "lost" else fault),
        "optimizer.pt": len(_torch_file(step)),
        "scheduler.pt": len(_torch_file(step)),
        "rng_state.pth": len(_torch_file(step)),
        "trainer_state.json": len(_state(step)),
    }
    if fault == "lost":
        del sizes["model.safetensors"]
    return tuple(sizes.items())


@cache
def _state(step):
    return json.dumps({"global_step": step, "epoch": step / 1000, "log_history": []}).encode()


def _shape(run):
    return (3, (64, 1024, 90_000)[run // 3 % 3])


def _weights(shape):
    header, declared = _header(*shape)
    return len(header), declared


def truth(path):
    """Whether a checkpoint of a simulated store is valid, and its step."""
    store, _, run, name = path.partition("://")[2].split("/")[:4]
    step = int("".join(filter(str.isdigit, name)))
    fault, odd = planted(int(run.removeprefix("run")), step // STEP - 1, int(store.split("-")[0]))
    return not fault and odd != "unfinished", step


def installed(folder: Path) -> None:
    """Make the file system known, here and to the processes that this one starts."""
    fsspec.register_implementation("simulated", SimulatedStore, clobber=True)
    info = folder / "simulated-0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text("[fsspec.specs]\nsimulated = tests.stores.simulated:SimulatedStore\n")
    sys.path.append(str(folder))
    os.environ["SIMULATED_STORE"] = str(folder)
    for number in range(MOST):
        _torch_file(STEP * (number + 1))
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.append(root)
    os.environ.setdefault("PYTHONPATH", root)
