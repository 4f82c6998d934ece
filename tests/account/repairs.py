"""Right repairs of real files, at least one for every kind of edit, with much beside what the edits are about.

Every file holds what a wrong edit could touch by mistake: tensors that are alike, tied, views of one storage in two
places and transposed, with a gradient; numbers, texts and lists; ``_metadata``, an optimizer, a way back to the root.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from ckptdoctor import edits as kinds
from ckptdoctor.edits import Compute, Dequantize, Edit, FuseNorm, Tie
from ckptdoctor.edits.computing import LOW_RANK, MASKED
from ckptdoctor.repair.plan import Plan, plan
from tests.builders import moved, saving_tags, tagged
from tests.repair.applying import planned
from tests.rules.sick import SICK, Case, request_for

Contents = dict[object, object]


def contents(device: str = "cpu", **more: object) -> Contents:
    """A checkpoint of a run, and ``more`` beside it."""
    torch.manual_seed(0)
    state = OrderedDict((f"module.{name}", torch.randn(4, 6)) for name in ("a.weight", "b.weight", "c.weight"))
    state["module.head.weight"] = state["module.a.weight"]
    shared = torch.randn(96)
    state["module.one"], state["module.two"] = shared[8:32].view(4, 6), shared[40:64].view(4, 6)
    state["module.turned"] = torch.randn(6, 4).t()
    state["module.a.bias"], state["module.b.bias"] = torch.randn(6), torch.randn(6)
    state._metadata = OrderedDict(
        (name, {"version": 1}) for name in ("", "module", "module.a", "module.b", "module.c", "module.head")
    )
    for tensor in state.values():
        tagged(tensor, device)
    names = [name for name in state if name.endswith(("weight", "bias"))]
    made: Contents = {
        "model": state,
        "optimizer": {
            "state": {number: {"step": torch.tensor(3.0), "exp_avg": torch.randn(4, 6)} for number in range(3)},
            "param_groups": [{"lr": 0.1, "param_names": names[:3], "params": [0, 1, 2]}],
        },
        "epoch": 41,
        "best": [0.5, "module.a.weight", (1, None, b"bytes")],
        "parameter": nn.Parameter(torch.randn(4, 6)),
        "sizes": [torch.randn(3), torch.randn(3)],
        "graph": torch.eye(3).to_sparse(),
        7: "seven",
        **more,
    }
    made["self"] = made
    return made


def torch_file(path: Path, found: object, **options: object) -> Path:
    """The contents in a file of ``torch.save``."""
    with saving_tags():
        torch.save(found, path, **options)
    return path


def flat(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    """Tensors for a safetensors file."""
    torch.manual_seed(0)
    return {"a": torch.randn(4, 6), "b": torch.randn(4, 6), "c": torch.randn(6), **more}


Made = tuple[Path, Sequence[Edit]]
Maker = Callable[[Path], Made]
CASES: dict[str, tuple[tuple[type, ...], Maker]] = {}  # name → which kinds, and what makes the file and the edits


def case(*of: type) -> Callable[[Maker], Maker]:
    """A repair with these kinds of edits, by the name of its function."""

    def add(maker: Maker) -> Maker:
        CASES[maker.__name__.strip("_")] = (of, maker)
        return maker

    return add


@case(kinds.Rename, kinds.Transpose, kinds.Fuse, kinds.Cast, kinds.Retag, kinds.Drop, kinds.Replace, kinds.Compact)
def _a_chain(folder: Path) -> Made:
    found = contents("cuda:1", rows=torch.randn(100, 8)[10:12], lists=[torch.ones(2), {"x": 1}, torch.zeros(2)])
    names = tuple((key, key.removeprefix("module.")) for key in found["model"])
    path = _file(folder, found)
    (bloated,) = _keys(path, ("rows",))
    return path, [
        kinds.Rename(("model",), names),
        kinds.Transpose(("model", "b.weight")),
        kinds.Transpose(("model", "c.weight")),
        kinds.Fuse((("model", "b.weight"), ("model", "c.weight")), "bc.weight", 1),
        kinds.Retag("cpu", ("cuda:1",)),
        kinds.Drop((("lists", 0), ("model", "one"))),
        kinds.Replace(("lists", 0, "x"), "y"),
        kinds.Rename(("model",), (("bc.weight", "a.extra"), ("a.weight", "weight"))),
        kinds.Compact((bloated,)),
        kinds.Cast((("model", "weight"), ("model", "head.weight"), ("model", "two"), ("rows",)), "bfloat16"),
    ]


# what only files of their own show: examples of rules, each with the option that repairs it
EXAMPLES: dict[str, tuple[tuple[type, ...], tuple[str, str]]] = {
    "unwrap": ((kinds.Unwrap,), ("X810", "saved by the only process")),
    "write_index": ((kinds.WriteIndex,), ("X804", "a tensor in another shard")),
    "repickle_of_python_2": ((kinds.Convert, kinds.Repickle), ("P208", "a key in Latin-1")),
    "dequantize_parts_of_one": ((Dequantize, kinds.Drop), ("Q954", "a scale for each channel")),
}


def plan_of(name: str, folder: Path) -> Plan:
    """The plan of a repair by its name."""
    if name in CASES:
        path, edits = CASES[name][1](folder)
        return planned(path, edits)
    example = Case(*SICK[EXAMPLES[name][1]], folder)
    (folder / "out").mkdir()
    return plan(request_for(example.path, folder / "out", example.fixes[0]))


def _file(folder: Path, found: object = None, **options: object) -> Path:
    return torch_file(folder / "model.pt", contents() if found is None else found, **options)


def _model(*keys: str) -> tuple[tuple[str, str], ...]:
    return tuple(("model", f"module.{key}") for key in keys)


@case(kinds.Rename)
def _rename(folder: Path) -> Made:
    names = list(contents()["model"])
    return _file(folder), [kinds.Rename(("model",), tuple((key, key.removeprefix("module.")) for key in names))]


@case(kinds.Rename)
def _rename_of_safetensors(folder: Path) -> Made:
    save_file(flat(), folder / "model.safetensors", {"format": "pt", "note": "x"})
    return folder / "model.safetensors", [kinds.Rename((), (("a", "x.a"), ("c", "x.c")))]


@case(kinds.Rename)
def _rename_of_containers(folder: Path) -> Made:
    return _file(folder), [kinds.Rename((), (("model", "state_dict"), ("optimizer", "best"), ("best", "optimizer")))]


@case(kinds.RenameModules)
def _rename_modules(folder: Path) -> Made:
    return _file(folder), [kinds.RenameModules(("model",), (("module.a", "a"), ("module.b", "b")))]


@case(kinds.Renumber)
def _renumber(folder: Path) -> Made:
    return _file(folder), [kinds.Renumber(("optimizer", "state"), ((0, 1), (1, 5)))]


@case(kinds.Reorder)
def _reorder(folder: Path) -> Made:
    return _file(folder), [kinds.Reorder(("model",), tuple(reversed(contents()["model"])))]


@case(kinds.Retag)
def _retag(folder: Path) -> Made:
    return _file(folder, contents("cuda:1")), [kinds.Retag("cpu", ("cuda:1",))]


@case(kinds.Retag)
def _retag_of_one(folder: Path) -> Made:
    found = contents("cuda:1", sparse=tagged(torch.ones(2), "cuda:1"))
    found["model"]["module.c.weight"] = tagged(torch.randn(4, 6), "mps")
    return _file(folder, found), [kinds.Retag("cuda:0", ("mps",), None)]


@case(kinds.MoveToCpu)
def _move_to_cpu(folder: Path) -> Made:
    array, copy = (moved(torch.randn(4, 6), saved_as=how) for how in ("array", "copy"))
    other = moved(nn.Parameter(torch.randn(4, 6)))
    return _file(folder, contents(array=array, copy=copy, other=other, same=array)), [kinds.MoveToCpu()]


@case(kinds.Drop)
def _drop(folder: Path) -> Made:
    return _file(folder), [kinds.Drop((*_model("b.weight", "one"), ("best", 0), ("sizes", 0), (7,)))]


@case(kinds.TakeRoot)
def _take_root(folder: Path) -> Made:
    return _file(folder), [kinds.TakeRoot(("model",))]


@case(kinds.TakeRoot, kinds.Drop, kinds.Rename)
def _take_root_and_more(folder: Path) -> Made:
    names = tuple((key, key.removeprefix("module.")) for key in contents()["model"] if key != "module.two")
    return _file(folder), [kinds.TakeRoot(("model",)), kinds.Drop((("module.two",),)), kinds.Rename((), names)]


@case(kinds.Drop, kinds.Compact)
def _compact(folder: Path) -> Made:
    rows = torch.randn(100, 8)
    found = contents(first=rows[10:12], second=rows[11:14], third=rows[60:62].t(), empty=rows[70:70])
    path = _file(folder, found)
    return path, [kinds.Drop((("second",),)), kinds.Compact(tuple(_keys(path, ("first",), ("model", "module.one"))))]


def _keys(path: Path, *wanted: tuple[object, ...]) -> list[str]:
    original = planned(path, []).original
    return [each.storage.key for each in original.tensors if each.path in wanted and each.storage is not None]


@case(kinds.MakeContiguous)
def _make_contiguous(folder: Path) -> Made:
    rows = torch.randn(6, 4)
    found = contents(left=rows.t(), right=rows.t(), wide=torch.ones(1, 4).expand(6, 4))
    return _file(folder, found), [kinds.MakeContiguous((("left",), ("right",), ("wide",), *_model("turned")))]


@case(kinds.Clone)
def _clone(folder: Path) -> Made:
    return _file(folder), [kinds.Clone(_model("head.weight", "one", "two"))]


@case(kinds.Densify)
def _densify(folder: Path) -> Made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR tensors beta
        sparse = {
            "x": torch.eye(4).to_sparse(),
            "y": torch.eye(4).mul(2).to_sparse(),
            "z": torch.eye(4).to_sparse_csr(),
        }
    return _file(folder, contents(**sparse)), [kinds.Densify((("x",), ("y",), ("z",)))]


@case(kinds.Replace)
def _replace(folder: Path) -> Made:
    value = {"a": [1, 2.0, (None, "x")], 2**70: b"b", (1, 2): 1j}
    return _file(folder), [kinds.Replace(("epoch",), 42), kinds.Replace(("best", 1), value), kinds.Replace((7,), None)]


@case(kinds.MakeTensors)
def _make_tensors(folder: Path) -> Made:
    arrays = {"x": np.arange(24.0).reshape(4, 6), "y": np.arange(24.0, 48.0).reshape(6, 4).T, "z": [np.ones(3, ">i4")]}
    edit = kinds.MakeTensors((("arrays", "x"), ("arrays", "y"), ("arrays", "z", 0)))
    return _file(folder, contents(arrays=arrays)), [edit]


@case(kinds.Repickle)
def _repickle(folder: Path) -> Made:
    return _file(folder, contents(arrays=np.arange(3)), pickle_protocol=4), [kinds.Repickle()]


@case(kinds.Flatten)
def _flatten(folder: Path) -> Made:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(6, 4), nn.BatchNorm1d(4))
    model[1].weight = model[0].weight
    keys = [(at, name) for at in "01" for name in ("weight", "bias")]
    ways = tuple((f"{at}.{name}", ("_modules", at, "_parameters", name)) for at, name in keys)
    ways = (*ways, ("2.running_mean", ("_modules", "2", "_buffers", "running_mean")))
    return _file(folder, contents(net=model)), [kinds.Flatten(("net",), ways)]


@case(kinds.TakeRoot, kinds.Flatten)
def _flatten_the_whole(folder: Path) -> Made:
    parts = {"encoder": {"w": torch.randn(4, 6)}, "decoder": {"w": torch.randn(4, 6), "b": torch.randn(4)}}
    ways = tuple((f"{part}.{key}", (part, key)) for part, some in parts.items() for key in some)
    return _file(folder, {"parts": parts, "epoch": 3}), [kinds.TakeRoot(("parts",)), kinds.Flatten((), ways)]


@case(kinds.Reshape)
def _reshape(folder: Path) -> Made:
    paths, shapes = _model("a.weight", "turned", "two"), ((24,), (2, 12), (6, 4))
    return _file(folder), [kinds.Reshape(path, shape) for path, shape in zip(paths, shapes, strict=True)]


@case(kinds.Transpose)
def _transpose(folder: Path) -> Made:
    paths = (*_model("a.weight", "head.weight", "turned", "two"), ("parameter",))
    return _file(folder), [kinds.Transpose(path) for path in paths]


@case(kinds.Fill)
def _fill(folder: Path) -> Made:
    fills: list[tuple[str, str, tuple[int, ...], float]] = [
        ("a.extra", "float32", (4, 6), 1.0),
        ("b.count", "int64", (), -3),
        ("b.scale", "bfloat16", (3,), 0.5),
        ("last", "uint8", (), 255),
        ("new", "bool", (2,), True),
        ("half", "float16", (1, 2), 2.0),
        ("wave", "complex64", (2,), 1.5),
    ]
    made = [kinds.Fill(("model", f"module.{key}"), *rest) for key, *rest in fills]
    return _file(folder), [*made, kinds.Fill(("model", "other"), "float32", (2,), 0.0, "cuda:0")]


@case(kinds.Split)
def _split(folder: Path) -> Made:
    three = (("module.q", 0, 1), ("module.k", 1, 2), ("module.q", 2, 3), ("module.k", 3, 4))
    (first, second, third) = _model("a.weight", "turned", "two")
    return _file(folder), [
        kinds.Split(first, three),
        kinds.Split(second, (("module.x", 0, 2), ("module.y", 2, 6)), 1),
        kinds.Split(third, (("module.u", 0, 1), ("module.v", 1, 4))),
    ]


@case(kinds.Fuse)
def _fuse(folder: Path) -> Made:
    order = ((0, 0, 2), (1, 0, 2), (0, 2, 4), (1, 2, 4))
    return _file(folder), [
        kinds.Fuse(_model("b.weight", "c.weight"), "module.bc"),
        kinds.Fuse(_model("one", "turned"), "module.both", 0, order),
        kinds.Fuse(_model("a.bias", "b.bias"), "module.bias"),
    ]


@case(FuseNorm)
def _fuse_norm(folder: Path) -> Made:
    found = contents()
    found["model"] |= {f"{name}.{part}": torch.randn(4, size) for name in "xy" for part, size in (("v", 6), ("g", 1))}
    pairs = [FuseNorm((("model", f"{name}.v"), ("model", f"{name}.g")), f"{name}.weight", "weight") for name in "xy"]
    return _file(folder, found), pairs


@case(Dequantize)
def _dequantize(folder: Path) -> Made:
    found = contents()
    for name in "xy":
        found["model"][f"{name}.weight"] = torch.randint(-9, 9, (4, 6), dtype=torch.int8)
        found["model"][f"{name}.scale"] = torch.rand(4, 1)
    paths = [(("model", f"{name}.weight"), ("model", f"{name}.scale")) for name in "xy"]
    made = [Dequantize(each, each[0][1], "scaled", "float32", ("model",), (1, 0)) for each in paths]
    return _file(folder, found), made


@case(Compute)
def _compute(folder: Path) -> Made:
    found = contents()
    for name in "xy":
        shapes = {
            "weight_orig": (4, 6),
            "weight_mask": (4, 6),
            "lora.weight": (4, 6),
            "lora.A": (2, 6),
            "lora.B": (4, 2),
        }
        found["model"] |= {f"{name}.{part}": torch.randn(shape) for part, shape in shapes.items()}
    made: list[Edit] = []
    for name in "xy":
        mask = tuple(("model", f"{name}.{part}") for part in ("weight_orig", "weight_mask"))
        lora = tuple(("model", f"{name}.lora.{part}") for part in ("weight", "A", "B"))
        made.append(Compute(mask, f"{name}.weight", MASKED, "float32", ("model",)))
        made.append(Compute(lora, f"{name}.lora.weight", LOW_RANK, "float32", ("model",), (0.5,)))
    return _file(folder, found), made


@case(kinds.Drop, Tie)
def _tie(folder: Path) -> Made:
    found = contents()
    found["model"]["module.c.weight"] = found["model"]["module.b.weight"].clone()
    (owner, other) = _model("b.weight", "c.weight")
    return _file(folder, found), [kinds.Drop((other,)), Tie(owner, other[1]), Tie(owner, "module.d.weight")]


@case(Tie)
def _tie_in_safetensors(folder: Path) -> Made:
    save_file(flat(), folder / "model.safetensors", {"format": "pt"})
    return folder / "model.safetensors", [Tie(("a",), "d"), Tie(("b",), "e")]


@case(kinds.Cast)
def _cast(folder: Path) -> Made:
    paths = (*_model("a.weight", "head.weight", "one", "turned", "b.bias"), ("parameter",))
    return _file(folder), [kinds.Cast(paths, "bfloat16")]


@case(kinds.Cast)
def _cast_of_all_views(folder: Path) -> Made:
    return _file(folder), [kinds.Cast(_model("one", "two", "b.weight", "c.weight"), "float16")]


@case(kinds.SetMetadata)
def _set_metadata(folder: Path) -> Made:
    save_file(flat(), folder / "model.safetensors", {"format": "tf", "note": "x"})
    return folder / "model.safetensors", [kinds.SetMetadata("format", "pt")]


@case(kinds.TextMetadata)
def _text_metadata(folder: Path) -> Made:
    path = folder / "model.safetensors"
    save_file(flat(), path, {"format": "pt", "step": "three"})
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"] |= {"step": 3, "none": None}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    return path, [kinds.TextMetadata((("step", "3"), ("none", None)))]


@case(kinds.SetSuffix)
def _set_suffix(folder: Path) -> Made:
    return _file(folder), [kinds.SetSuffix(".bin")]


@case(kinds.Truncate)
def _truncate(folder: Path) -> Made:
    path = folder / "model.safetensors"
    save_file(flat(), path, {"format": "pt"})
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0" * 10)
    return path, [kinds.Truncate(size)]


@case(kinds.Convert)
def _convert(folder: Path) -> Made:
    return _file(folder, _use_new_zipfile_serialization=False), [kinds.Convert("torch zip")]
