"""Every place in every container from which some loader unpickles, with a call planted in it.

``PLACES`` has a maker for each: it writes files into a folder and returns what is to be checked. The call would make
the file ``CANARY``. ``mend`` is given the bytes that hold the pickle, and may break them behind the call.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from tests.formats.arrays.pickled.joblib_writer import joblib_bytes
from tests.formats.torch.tar.support import members_of, packed

Mend = Callable[[bytes], bytes]
Maker = Callable[[Path, Mend], Path]

CANARY = "canary-of-the-planted-call"
CALLED: tuple[object, ...] = os.system, (f"touch {CANARY}",)
_AFTER = "BREAK-HERE"
_TEXT = re.compile(rb"[X\x8cV](?=(?:\x0a\0\0\0|\x0a)?" + _AFTER.encode() + rb")")


class Call:
    """Pickles as a call of ``os.system``, or of what tests put in its place."""

    def __reduce__(self) -> tuple[object, ...]:
        return CALLED


def contents() -> list[object]:
    """A planted call, and behind it what can be broken."""
    return [Call(), _AFTER]


def whole(data: bytes) -> bytes:
    """The bytes as they are."""
    return data


def broken(data: bytes) -> bytes:
    """The same with an opcode that there is not, behind the call."""
    made, count = _TEXT.subn(b"\xff", data)
    assert count == 1, "there is one text behind the call"
    return made


def cut(data: bytes) -> bytes:
    """The same as far as the middle of what is behind the call."""
    assert data.count(_AFTER.encode()) == 1
    return data[: data.index(_AFTER.encode()) + 3]


def hostile(protocol: int = 2) -> bytes:
    """The plain pickle."""
    return pickle.dumps(contents(), protocol)


def saved(value: object, *, new: bool = True, protocol: int = 2) -> bytes:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
    return file.getvalue()


def _written(name: str, make: Callable[[], bytes]) -> Maker:
    def maker(folder: Path, mend: Mend) -> Path:
        (folder / name).write_bytes(mend(make()))
        return folder / name

    return maker


def _packed(name: str, make: Callable[[Mend], bytes]) -> Maker:
    """The same where what is broken lies in something else."""

    def maker(folder: Path, mend: Mend) -> Path:
        (folder / name).write_bytes(make(mend))
        return folder / name

    return maker


# ---- one file


def _numpy(value: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=True)
    return file.getvalue()


def _objects() -> np.ndarray:
    made = np.empty(2, dtype=object)
    made[:] = contents()
    return made


def _structure() -> np.ndarray:
    made = np.zeros(2, dtype=[("GEO_ID", "i4"), ("what", "O")])
    made["what"] = contents()
    return made


def _npz(mend: Mend, compress: bool) -> bytes:
    return _zip({"a.npy": _numpy(np.zeros(3)), "b.npy": mend(_numpy(_objects()))}, compress)


def _zip(members: dict[str, bytes], compress: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def _tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _with_record(data: bytes, ending: str, new: bytes) -> bytes:
    """The archive with other data in the record whose name ends so, or with one more such record."""
    members = _members(data)
    name = next((each for each in members if each.endswith(ending)), None)
    if name is None:
        name = f"{next(iter(members)).partition('/')[0]}/{ending}"
    return _zip({**members, name: new})


def _script() -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), file)
    return file.getvalue()


def _program() -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), file)
    return file.getvalue()


def _configured(mend: Mend) -> bytes:
    """A program with a weight that its list says to be pickled."""
    members = _members(_program())
    config = next(name for name in members if name.endswith("_weights_config.json"))
    said = json.loads(members[config])
    first = next(iter(said["config"].values()))
    first["use_pickle"], first["tensor_meta"] = True, None
    members[config] = json.dumps(said).encode()
    members[f"{config.rpartition('/')[0]}/{first['path_name']}"] = mend(saved(contents()))
    return _zip(members)


def _legacy(place: int, mend: Mend) -> bytes:
    """A legacy file with the call in one of its five pickles: magic number, protocol, system, object, keys."""
    parts: list[Any] = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"w": 1}, []]
    made = [pickle.dumps(part, 2) for part in parts]
    made[place] = pickle.dumps({"a": contents()} if place < 4 else contents(), 2)
    return mend(b"".join(made))


def _of_tar(member: str, mend: Mend) -> bytes:
    members = members_of({"w": torch.ones(2), "v": torch.zeros(3)})
    number = len(pickle.dumps(2, 2))  # how many tensors or storages follow
    if member in ("pickle", "sys_info"):
        members[member] = mend(pickle.dumps({"a": contents()}, 2))
    else:
        members[member] = members[member][:number] + mend(pickle.dumps(contents(), 2) + members[member][number:])
    return packed(members)


def _behind(first: bytes, mend: Mend, protocol: int = 2) -> bytes:
    return first + mend(hostile(protocol))


def _inside(value: Callable[[bytes], object], mend: Mend, pack: Callable[[object], bytes], protocol: int = 4) -> bytes:
    return pack({"w": [1, 2], "blob": value(mend(hostile(protocol)))})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _nested(data: bytes) -> bytes:
    return pickle.dumps([1, pickle.dumps({"inner": data}, 4)], 4)


def _first_text(first: bytes) -> Callable[[], bytes]:
    """A pickle of protocol 0 that begins with something harmless, as a text would."""

    def make() -> bytes:
        call = pickle.dumps(Call(), 0)[:-1]
        return first + b"0(l" + call + b"aV" + _AFTER.encode() + b"\na."

    return make


_WRAPPERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip.compress),
    "bzip2": (".bz2", bz2.compress),
    "xz": (".xz", lzma.compress),
}


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.compress(data)


# ---- folders


def _dcp(folder: Path, mend: Mend, part: str) -> Path:
    path = folder / "dcp"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extra = contents() if part == "entry" else [1]
        dcp.save({"w": torch.ones(3), "extra": extra}, checkpoint_id=str(path))
    if part == "entry":
        (file,) = path.glob("*.distcp")
        file.write_bytes(mend(file.read_bytes()))
        return path
    metadata = path / ".metadata"
    if part == "payload":
        metadata.write_bytes(mend(hostile(4)))
    else:
        made = pickle.loads(metadata.read_bytes())
        made.planner_data = {**made.planner_data, "x": contents()}
        metadata.write_bytes(mend(pickle.dumps(made, 4)))
    return metadata if part == "by itself" else path


def _folder(folder: Path, kind: str) -> Path:
    """A folder of weights of this kind, without anything wrong."""
    path = folder / kind
    path.mkdir()
    weights = {"a.weight": torch.ones(2, 2)}, {"b.weight": torch.ones(2, 2)}
    if kind in ("sharded", "trainer"):
        names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        for name, each in zip(names, weights, strict=True):
            save_file(each, path / name, {"format": "pt"})
        table = {"a.weight": names[0], "b.weight": names[1]}
        (path / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": 32}, "weight_map": table})
        )
    else:
        save_file(weights[0], path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text("{}")
    if kind == "trainer":
        (path / "trainer_state.json").write_text("{}")
    if kind == "accelerate":
        torch.save({"step": 1}, path / "random_states_0.pkl")
        torch.save({"state": {}, "param_groups": []}, path / "optimizer.bin")
    return path


def _companion(kind: str, name: str, make: Callable[[], bytes]) -> Maker:
    def maker(folder: Path, mend: Mend) -> Path:
        path = _folder(folder, kind)
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(mend(make()))
        return path

    return maker


def _shard(make: Callable[[], bytes], named: bool) -> Maker:
    """A shard that is hostile, beside one that is not; ``named``: an index names both."""

    def maker(folder: Path, mend: Mend) -> Path:
        path = folder / "shards"
        path.mkdir()
        names = [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
        torch.save({"a.weight": torch.ones(2, 2)}, path / names[0])
        (path / names[1]).write_bytes(mend(make()))
        if named:
            table = {"weight_map": {"a.weight": names[0], "b.weight": names[1]}}
            (path / "pytorch_model.bin.index.json").write_text(json.dumps(table))
        return path

    return maker


def _deepspeed(name: str) -> Maker:
    def maker(folder: Path, mend: Mend) -> Path:
        path = folder / "deepspeed"
        (path / "global_step2").mkdir(parents=True)
        (path / "global_step1").mkdir()
        (path / "latest").write_text("global_step2")
        torch.save({"module": {"w": torch.ones(2)}}, path / "global_step2/mp_rank_00_model_states.pt")
        (path / name).write_bytes(mend(saved(contents())))
        return path

    return maker


def _megatron(name: str) -> Maker:
    def maker(folder: Path, mend: Mend) -> Path:
        path = folder / "megatron"
        for rank in ("mp_rank_00", "mp_rank_01"):
            (path / rank).mkdir(parents=True)
            torch.save({"model": {"w": torch.ones(2)}}, path / rank / "model_optim_rng.pt")
        (path / name).write_bytes(mend(saved(contents())))
        return path

    return maker


def _unpacked(beside: bool) -> Maker:
    def maker(folder: Path, mend: Mend) -> Path:
        path = folder / "unpacked"
        members = _members(saved({"w": torch.ones(2)} if beside else contents()))
        for name, data in members.items():
            file = path / name.partition("/")[2]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(mend(data) if file.name == "data.pkl" and not beside else data)
        if beside:
            (path / "args.bin").write_bytes(mend(saved(contents())))
        return path

    return maker


# ---- the table

_ZIP_BEHIND = _members(saved({"w": [1]}))

PLACES: dict[str, Maker] = {
    **{f"pickle of protocol {each}": _written("m.pkl", lambda each=each: hostile(each)) for each in range(6)},
    "pickle that begins with a string": _written("m.pkl", _first_text(b"S'words'\n")),
    "pickle that begins with a text": _written("m.pkl", _first_text(b"Vwords\n")),
    "pickle that begins with a long text": _written("m.pkl", _first_text(b"V" + b"words " * 2000 + b"\n")),
    "pickle that begins with a list": _written("m.bin", _first_text(b"(l")),
    "pickle that begins with a number": _written("m.pt", _first_text(b"I1\n")),
    "pickle behind another": _packed("m.pkl", lambda mend: _behind(pickle.dumps({"a": 1}, 4), mend)),
    "old pickle behind another": _packed("m.pkl", lambda mend: _behind(pickle.dumps({"a": 1}, 4), mend, 0)),
    "third pickle": _packed("m.pkl", lambda mend: _behind(pickle.dumps(1) + pickle.dumps("b"), mend, 4)),
    "torch zip": _written("m.pt", lambda: saved({"w": torch.ones(2), "x": contents()})),
    "torch zip of protocol 4": _written("m.pt", lambda: saved({"w": torch.ones(2), "x": contents()}, protocol=4)),
    "torch zip, behind the pickle": _packed(
        "m.pt",
        lambda mend: _with_record(
            saved({"w": [1]}), "data.pkl", _behind(_ZIP_BEHIND["archive/data.pkl"], mend)
        ),
    ),
    "torch zip, another record": _packed(
        "m.pt", lambda mend: _with_record(saved({"w": torch.ones(2)}), "extra/more.pkl", mend(hostile()))
    ),
    **{
        f"legacy file, pickle {place}": _packed("m.pt", lambda mend, place=place: _legacy(place, mend))
        for place in range(1, 5)
    },
    "legacy file of torch": _written("m.pt", lambda: saved({"w": torch.ones(2), "x": contents()}, new=False)),
    "legacy file, behind the storages": _packed(
        "m.pt", lambda mend: _behind(saved({"w": torch.ones(2)}, new=False), mend)
    ),
    "legacy file, behind another": _packed(
        "m.pt", lambda mend: saved({"w": torch.ones(2)}, new=False) + mend(saved(contents(), new=False))
    ),
    **{
        f"tar of torch, {member}": _packed("m.pt", lambda mend, member=member: _of_tar(member, mend))
        for member in ("pickle", "tensors", "storages", "sys_info")
    },
    **{
        f"TorchScript, {record}": _packed(
            "m.pt", lambda mend, record=record: _with_record(_script(), record, mend(hostile()))
        )
        for record in ("/data.pkl", "constants.pkl", "attributes.pkl", "extra/more.pkl")
    },
    "exported program, constants": _packed(
        "m.pt2", lambda mend: _with_record(_program(), "data/constants/custom_obj_0", mend(saved(contents())))
    ),
    "exported program, sample inputs": _packed(
        "m.pt2", lambda mend: _with_record(_program(), "data/sample_inputs/model.pt", mend(saved(contents())))
    ),
    "exported program, pickled weight": _packed("m.pt2", _configured),
    "torch.package": _packed("m.pt", lambda mend: _zip({"p/.data/python_version": b"3", "p/m/m.pkl": mend(hostile())})),
    "array of objects": _written("m.npy", lambda: _numpy(_objects())),
    "array of structures with objects": _written("m.npy", lambda: _numpy(_structure())),
    "pickle behind an array": _packed("m.npy", lambda mend: _behind(_numpy(np.zeros(3)), mend)),
    "array behind an array": _packed("m.npy", lambda mend: _numpy(np.zeros(3)) + mend(_numpy(_objects()))),
    "archive of arrays": _packed("m.npz", lambda mend: _npz(mend, False)),
    "compressed archive of arrays": _packed("m.npz", lambda mend: _npz(mend, True)),
    "joblib": _written("m.joblib", lambda: joblib_bytes({"a": np.zeros(9), "x": contents()})),
    "joblib, array of objects": _written("m.joblib", lambda: joblib_bytes({"a": np.zeros(9), "x": _objects()})),
    "joblib, compressed": _packed("m.joblib", lambda mend: zlib.compress(mend(joblib_bytes({"x": contents()})))),
    **{
        f"{kind} of {what}": _packed(
            f"m{suffix}{ending}", lambda mend, pack=pack, make=make: pack(mend(make()))
        )
        for kind, (ending, pack) in {**_WRAPPERS, "zstd": (".zst", _zstd)}.items()
        for what, suffix, make in (
            ("a torch zip", ".pt", lambda: saved({"w": torch.ones(2), "x": contents()})),
            ("a pickle", ".pkl", hostile),
            ("an old pickle", ".pkl", lambda: hostile(0)),
        )
    },
    "cut gzip": _packed("m.pkl.gz", lambda mend: gzip.compress(mend(hostile()) + os.urandom(99_999))[:50_000]),
    "zip of a torch zip": _packed("m.zip", lambda mend: _zip({"m.pt": mend(saved(contents()))}, True)),
    "zip of two pickles": _packed("m.zip", lambda mend: _zip({"a.pkl": pickle.dumps(1), "b.pkl": mend(hostile())})),
    "zip of other things": _packed("m.zip", lambda mend: _zip({"a.md": b"words", "b.dat": mend(hostile())}, True)),
    "tar of two pickles": _packed("m.tar", lambda mend: _tar({"a.pkl": pickle.dumps(1), "b.pkl": mend(hostile())})),
    "tar.gz of two torch zips": _packed(
        "m.tar.gz", lambda mend: _tar({"a.pt": saved({"w": 1}), "b.pt": mend(saved(contents()))}, "w:gz")
    ),
    "zip of a zip of two": _packed(
        "m.zip", lambda mend: _zip({"a.zip": _zip({"a.pkl": pickle.dumps(1), "b.pkl": mend(hostile())})})
    ),
    **{
        f"{how} in {where}": _packed(
            name,
            lambda mend, value=value, pack=pack, protocol=protocol: _inside(value, mend, pack, protocol),
        )
        for how, value, protocol in (
            ("bytes", bytes, 4),
            ("a bytearray", bytearray, 4),
            ("Base64", _base64, 4),
            ("Base64 with a prefix", lambda data: f"data:application/octet-stream;base64,{_base64(data)}", 4),
            ("pickles in pickles", _nested, 4),
            ("lines in Base64", _base64, 0),
        )
        for where, name, pack in (
            ("a torch zip", "m.pt", saved),
            ("a torch zip of protocol 5", "m.pt", lambda value: saved(value, protocol=5)),
            ("a legacy file", "m.pt", lambda value: saved(value, new=False)),
            ("a pickle", "m.pkl", lambda value: pickle.dumps(value, 4)),
            ("an old pickle", "m.pkl", lambda value: pickle.dumps(value, 0)),
            ("a tar of torch", "m.pt", lambda value: packed({**members_of({}), "pickle": pickle.dumps(value, 2)})),
        )
    },
    "old pickle in a text": _packed(
        "m.pt", lambda mend: _inside(lambda data: data.decode("latin-1"), mend, saved, 0)
    ),
    "DCP, list of contents": lambda folder, mend: _dcp(folder, mend, "metadata"),
    "DCP, nothing but a call": lambda folder, mend: _dcp(folder, mend, "payload"),
    "DCP, list of contents by itself": lambda folder, mend: _dcp(folder, mend, "by itself"),
    "DCP, entry of bytes": lambda folder, mend: _dcp(folder, mend, "entry"),
    "shard": _shard(lambda: saved({"b.weight": torch.ones(2, 2), "x": contents()}), True),
    "shard without weights": _shard(lambda: saved(contents()), True),
    "shard that is a pickle": _shard(hostile, True),
    "shard without an index": _shard(lambda: saved(contents()), False),
    **{
        f"{name} in a {kind} folder": _companion(kind, name, make)
        for kind, name, make in (
            *[
                ("sharded", name, lambda: saved(contents()))
                for name in (
                    *("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth"),
                    *("rng_state_0.pth", "anything.bin", "checkpoint-5/optimizer.pt", "global_step9/states.pt"),
                )
            ],
            ("sharded", "extra.pkl", hostile),
            ("sharded", "old.pkl", lambda: hostile(0)),
            ("sharded", "arrays.npy", lambda: _numpy(_objects())),
            ("sharded", "no suffix", hostile),
            *[
                ("trainer", name, lambda: saved(contents()))
                for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "rng_state_0.pth")
            ],
            *[
                ("accelerate", name, lambda: saved(contents()))
                for name in ("random_states_0.pkl", "custom_checkpoint_0.pkl", "optimizer.bin", "sampler.bin", "x.pkl")
            ],
            ("single", "training_args.bin", lambda: saved(contents())),
            ("single", "old.pkl", lambda: hostile(0)),
            ("single", "arrays.npy", lambda: _numpy(_objects())),
        )
    },
    **{
        f"DeepSpeed, {name}": _deepspeed(name)
        for name in (
            "global_step2/mp_rank_00_model_states.pt",
            "global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "global_step2/other.pt",
            "global_step1/mp_rank_00_model_states.pt",
            "beside.pt",
        )
    },
    **{
        f"Megatron, {name}": _megatron(name)
        for name in ("mp_rank_01/model_optim_rng.pt", "mp_rank_00/other.pt", "beside.pkl")
    },
    "unpacked archive": _unpacked(False),
    "file in an unpacked archive": _unpacked(True),
}  # fmt: skip
