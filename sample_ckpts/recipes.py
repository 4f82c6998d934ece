"""How each sample is made, and what ``check`` must say of it."""

from __future__ import annotations

import argparse
import io
import os
import pathlib
import sys
import types
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nets
import numpy as np
import torch
from reproducible import naming_paths_alike
from safetensors.torch import save, save_file
from tags import by_tensor, everywhere, saving_with_tags


@dataclass(frozen=True)
class Sample:
    """One file: its name, how to write it, and the codes that ``check`` with ``options`` must report."""

    name: str
    write: Callable[[Path], None]
    codes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    about: str = ""


SAMPLES: list[Sample] = []


def sample(name: str, *codes: str, options: tuple[str, ...] = ()) -> Callable[[Callable[[Path], None]], None]:
    """Register the decorated writer; its docstring says what the file is."""

    def register(write: Callable[[Path], None]) -> None:
        SAMPLES.append(Sample(name, write, codes, options, (write.__doc__ or "").strip()))

    return register


def training(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a training script saves."""
    return {"epoch": 41, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "best_acc": 0.93}


def prefixed(state_dict: dict[str, torch.Tensor], prefix: str) -> OrderedDict[str, torch.Tensor]:
    """The same tensors under keys that begin with ``prefix``."""
    return OrderedDict((prefix + key, value) for key, value in state_dict.items())


def zip_bytes(contents: Any, path: Path) -> bytes:
    """The bytes of torch.save."""
    torch.save(contents, path)
    return path.read_bytes()


def legacy_bytes(contents: Any, path: Path) -> bytes:
    """The bytes of torch.save before 1.6, with storage keys counted instead of taken from memory addresses."""
    numbers: dict[int, int] = {}

    def counted(storage: torch.UntypedStorage) -> int:
        return 94_000_000_000_000 + numbers.setdefault(storage.data_ptr(), len(numbers))

    genuine = torch.UntypedStorage._cdata
    torch.UntypedStorage._cdata = property(counted)
    try:
        torch.save(contents, path, _use_new_zipfile_serialization=False)
    finally:
        torch.UntypedStorage._cdata = genuine
    return path.read_bytes()


# --- healthy ---------------------------------------------------------------------------------------------------------


@sample("healthy/state_dict.pt")
def _(path: Path) -> None:
    """The state dict of a bare model."""
    torch.save(nets.net().state_dict(), path)


@sample("healthy/training.pt", "W301")
def _(path: Path) -> None:
    """Model, AdamW optimizer, scheduler and epoch of a training run; nothing is wrong with it."""
    model, optimizer = nets.trained()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    torch.save({**training(model, optimizer), "scheduler": scheduler.state_dict()}, path)


@sample("healthy/model.safetensors")
def _(path: Path) -> None:
    """A safetensors file with the format metadata that loaders ask for."""
    save_file(dict(nets.net().state_dict()), path, metadata={"format": "pt"})


@sample("healthy/dtypes.pt")
def _(path: Path) -> None:
    """One tensor of many dtypes."""
    names = (
        "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 complex64 int64 int32 int16 int8 uint8 uint16 bool"
    )
    torch.save({name: torch.zeros(4, dtype=getattr(torch, name)) for name in names.split()}, path)


@sample("healthy/head100.pt")
def _(path: Path) -> None:
    """The same network with a head of a hundred classes: a reference for --like."""
    torch.save(nets.net(100).state_dict(), path)


@sample("healthy/layers.pt")
def _(path: Path) -> None:
    """Three layers in a row: a reference for --like."""
    torch.save(nets.layers().state_dict(), path)


# --- F: the file itself ----------------------------------------------------------------------------------------------


@sample("sick/F001-git-lfs-pointer.pt", "F001")
def _(path: Path) -> None:
    """What a clone without Git LFS leaves in place of the weights."""
    oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 102530333\n")


@sample("sick/F002-html-error-page.pth", "F002")
def _(path: Path) -> None:
    """A page that a browser or wget saved instead of the file."""
    path.write_text(
        "<!DOCTYPE html><html><head><title>Google Drive - Quota exceeded</title></head><body></body></html>\n"
    )


@sample("sick/F003-text-error-body.safetensors", "F003")
def _(path: Path) -> None:
    """The error message of a server, saved under the name of the weights."""
    path.write_text('{"error":"Entry not found"}')


@sample("sick/F004-empty-file.pt", "F004")
def _(path: Path) -> None:
    """Nothing at all: a save that was killed as it began."""
    path.write_bytes(b"")


@sample("sick/F005-truncated-zip.pt", "F005")
def _(path: Path) -> None:
    """Half a download."""
    data = zip_bytes(nets.net().state_dict(), path)
    path.write_bytes(data[: len(data) // 2])


@sample("sick/F006-truncated-legacy.pt", "C105", "F006")
def _(path: Path) -> None:
    """Half a file in the format before torch 1.6."""
    path.write_bytes(legacy_bytes(nets.net().state_dict(), path)[:-9000])


@sample("sick/F007-truncated-safetensors.safetensors", "F007")
def _(path: Path) -> None:
    """Half a safetensors file."""
    data = save(dict(nets.net().state_dict()), metadata={"format": "pt"})
    path.write_bytes(data[: len(data) // 2])


@sample("sick/F008-trailing-bytes.safetensors", "F008")
def _(path: Path) -> None:
    """A download that was resumed once too often."""
    path.write_bytes(save(dict(nets.net().state_dict()), metadata={"format": "pt"}) + b"\x00" * 4096)


@sample("sick/F009-crc-mismatch.pt", "F009", options=("--deep",))
def _(path: Path) -> None:
    """One flipped bit in the values: torch loads it without a word."""
    data = bytearray(zip_bytes(nets.net().state_dict(), path))
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


@sample("sick/F010-zero-filled-region.pt", "F010")
def _(path: Path) -> None:
    """A file whose blocks were reserved but never written."""
    path.write_bytes(bytes(65536))


@sample("sick/F011-storage-size-mismatch.pt", "F011")
def _(path: Path) -> None:
    """An archive that was packed again with half a record: data/0 has fewer bytes than the pickle asks for."""
    original = io.BytesIO(zip_bytes({"weight": torch.arange(200, dtype=torch.float32)}, path))
    with zipfile.ZipFile(original) as archive, zipfile.ZipFile(path, "w") as packed:
        for name in archive.namelist():
            data = archive.read(name)
            packed.writestr(zipfile.ZipInfo(name), data[: len(data) // 2] if name.endswith("data/0") else data)


# --- C: container ----------------------------------------------------------------------------------------------------


@sample("sick/C101-extension-format-mismatch.pt", "C101")
def _(path: Path) -> None:
    """A safetensors file with the suffix of torch."""
    save_file(dict(nets.net().state_dict()), path, metadata={"format": "pt"})


@sample("sick/C105-legacy-format.pt", "C105")
def _(path: Path) -> None:
    """The format before torch 1.6."""
    path.write_bytes(legacy_bytes(nets.net().state_dict(), path))


# --- P: what the pickle names ----------------------------------------------------------------------------------------


@sample("sick/P201-weights-only-blocked-global.pt", "P201", "W301")
def _(path: Path) -> None:
    """Command line arguments saved beside the weights."""
    args = argparse.Namespace(lr=0.1, arch="resnet50", epochs=90)
    torch.save({"state_dict": nets.net().state_dict(), "args": args}, path)


@sample("sick/P202-numpy-module-drift.pt", "P202", "W301")
def _(path: Path) -> None:
    """A NumPy scalar saved as the best accuracy."""
    torch.save({"state_dict": nets.net().state_dict(), "best_acc": np.float64(0.93)}, path)


@sample("sick/P203-path-object.pt", "P203", "W301")
def _(path: Path) -> None:
    """A path object: it loads neither on Windows nor with weights_only."""
    root = pathlib.PurePosixPath("data", "train")  # in parts, as it is pickled: Python 3.13 leaves a text whole
    with naming_paths_alike():
        torch.save({"state_dict": nets.net().state_dict(), "root": root}, path)


@sample("sick/P204-whole-module-pickle.pt", "P204")
def _(path: Path) -> None:
    """A whole model: it loads only where the code that defined it can be imported."""
    torch.save(nets.net(), path)


@sample("sick/P205-unimportable-class-junk.pt", "P205", "W301")
def _(path: Path) -> None:
    """A helper object of the training script beside the weights."""
    meter = type("RecorderMeter", (), {"__module__": "train_utils"})
    module = types.ModuleType("train_utils")
    module.RecorderMeter = meter
    sys.modules["train_utils"] = module
    recorder = meter()
    recorder.total_epoch, recorder.history = 90, [0.1, 0.5, 0.9]
    torch.save({"state_dict": nets.net().state_dict(), "recorder": recorder}, path)


class _Harmless:
    """Pickles to a call of os.system that would do nothing."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


@sample("sick/P206-dangerous-global.pt", "P206", "W301")
def _(path: Path) -> None:
    """A call of os.system (of the command "true") hidden beside the weights."""
    torch.save({"state_dict": nets.net().state_dict(), "extra": _Harmless()}, path)


# --- W: structure ----------------------------------------------------------------------------------------------------


@sample("sick/W303-optimizer-file-as-model.pt", "W303")
def _(path: Path) -> None:
    """An optimizer's state dict, easily taken for the model."""
    torch.save(nets.trained()[1].state_dict(), path)


@sample("sick/W310-empty-state-dict.pt", "W310")
def _(path: Path) -> None:
    """A save that had nothing to save."""
    torch.save(OrderedDict(), path)


# --- N: names of keys ------------------------------------------------------------------------------------------------


@sample("sick/N401-module-prefix.pt", "N401")
def _(path: Path) -> None:
    """The state dict of a model in DataParallel."""
    torch.save(torch.nn.DataParallel(nets.net()).state_dict(), path)


@sample("sick/N401-training-on-gpu.pt", "D601", "N401", "W301")
def _(path: Path) -> None:
    """DataParallel on a GPU, with its optimizer and epoch: the tutorial's checkpoint."""
    model, optimizer = nets.trained()
    with saving_with_tags(everywhere("cuda:0")):
        torch.save(training(torch.nn.DataParallel(model), optimizer), path)


@sample("sick/N401-doubly-wrapped.pt", "N401", "N404")
def _(path: Path) -> None:
    """DataParallel around a compiled DataParallel model: module._orig_mod.module."""
    inner = torch.nn.DataParallel(nets.net())
    torch.save(torch.nn.DataParallel(torch.compile(inner)).state_dict(), path)


@sample("sick/N404-compile-prefix.pt", "N404")
def _(path: Path) -> None:
    """torch.compile's wrapper left in the keys."""
    torch.save(torch.compile(nets.net()).state_dict(), path)


@sample("sick/N405-fsdp-prefix.pt", "N405")
def _(path: Path) -> None:
    """FSDP1's wrapper left in the keys."""
    torch.save(prefixed(nets.net().state_dict(), "_fsdp_wrapped_module."), path)


@sample("sick/N407-checkpoint-wrapper-prefix.pt", "N407")
def _(path: Path) -> None:
    """Activation checkpointing's wrapper left inside the keys."""
    state = nets.net().state_dict()
    torch.save(
        OrderedDict((f"{key.replace('.', '._checkpoint_wrapped_module.', 1)}", state[key]) for key in state), path
    )


@sample("sick/N411-swa-ema-prefix.pt", "N411")
def _(path: Path) -> None:
    """An AveragedModel: module. and a counter."""
    torch.save(torch.optim.swa_utils.AveragedModel(nets.net()).state_dict(), path)


@sample("sick/N420-profiler-buffers.pt", "N420")
def _(path: Path) -> None:
    """A model that was profiled with thop before it was saved."""
    model = nets.net()
    for module in model.modules():
        module.register_buffer("total_ops", torch.zeros(1, dtype=torch.float64))
        module.register_buffer("total_params", torch.zeros(1, dtype=torch.float64))
    torch.save(model.state_dict(), path)


# --- D: devices ------------------------------------------------------------------------------------------------------


@sample("sick/D601-cuda-tag.pt", "D601")
def _(path: Path) -> None:
    """Saved from the first GPU."""
    with saving_with_tags(everywhere("cuda:0")):
        torch.save(nets.net().state_dict(), path)


@sample("sick/D602-cuda-index-out-of-range.pt", "D602")
def _(path: Path) -> None:
    """Saved from the second GPU."""
    with saving_with_tags(everywhere("cuda:1")):
        torch.save(nets.net().state_dict(), path)


@sample("sick/D603-mixed-device-tags.pt", "D602", "D603")
def _(path: Path) -> None:
    """A model split over two GPUs."""
    model = nets.net()
    halves = {"cuda:0": [*model.conv1.parameters(), *model.bn1.parameters()], "cuda:1": list(model.fc.parameters())}
    with saving_with_tags(by_tensor(halves, "cuda:0")):
        torch.save(model.state_dict(), path)


@sample("sick/D604-foreign-backend-tag.pt", "D604")
def _(path: Path) -> None:
    """Saved from a backend that most machines do not have."""
    with saving_with_tags(everywhere("npu:0")):
        torch.save(nets.net().state_dict(), path)


@sample("sick/D607-rng-on-cuda.pt", "D607", "W301")
def _(path: Path) -> None:
    """A random number state that was moved to the GPU with everything else."""
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with saving_with_tags(by_tensor({"cuda:0": [state]})):
        torch.save({"state_dict": nets.net().state_dict(), "rng_state": state}, path)


# --- A: storages -----------------------------------------------------------------------------------------------------


@sample("sick/A701-shared-tensors.pt", "A701")
def _(path: Path) -> None:
    """Input embedding and output head are one tensor."""
    torch.save(nets.settled(nets.TiedLM()).state_dict(), path)


@sample("sick/A705-storage-bloat.pt", "A705")
def _(path: Path) -> None:
    """Ten rows of a large table, saved with the whole table."""
    table = torch.arange(300_000, dtype=torch.float32).reshape(30_000, 10)
    torch.save({"rows": table[:10], "more": table[20:25]}, path)


@sample("sick/A707-non-contiguous.pt", "A707")
def _(path: Path) -> None:
    """A transposed weight."""
    torch.save({"weight": torch.arange(12.0).reshape(3, 4).t()}, path)


# --- M: metadata -----------------------------------------------------------------------------------------------------


@sample("sick/M971-missing-format-metadata.safetensors", "M971")
def _(path: Path) -> None:
    """What save_file writes unless told otherwise."""
    save_file(dict(nets.net().state_dict()), path)


@sample("sick/M973-state-dict-metadata-prefix.pt", "M973")
def _(path: Path) -> None:
    """Keys stripped by hand, their module versions not."""
    state = torch.nn.DataParallel(nets.net()).state_dict()
    stripped = OrderedDict((key[len("module.") :], value) for key, value in state.items())
    stripped._metadata = state._metadata
    torch.save(stripped, path)


# --- against a reference ---------------------------------------------------------------------------------------------

LIKE = ("--like", "healthy/state_dict.pt")


@sample("sick/R001-missing-keys.pt", "R001", options=LIKE)
def _(path: Path) -> None:
    """A checkpoint without its classifier."""
    state = nets.net().state_dict()
    torch.save(OrderedDict((key, state[key]) for key in state if not key.startswith("fc.")), path)


@sample("sick/R002-unexpected-keys.pt", "R002", options=LIKE)
def _(path: Path) -> None:
    """A checkpoint with an auxiliary head that the model does not have."""
    torch.save(OrderedDict([*nets.net().state_dict().items(), ("aux.weight", torch.zeros(10, 16))]), path)


@sample("sick/R003-shape-mismatch.pt", "R003", options=LIKE)
def _(path: Path) -> None:
    """A convolution with another kernel than the model has."""
    state = nets.net().state_dict()
    state["conv2.weight"] = torch.zeros(16, 8, 5, 5)
    torch.save(state, path)


@sample("sick/S501-head-size-mismatch.pt", "S501", options=LIKE)
def _(path: Path) -> None:
    """A head of a hundred classes for a model of ten."""
    torch.save(nets.net(100).state_dict(), path)


@sample("sick/N423-systematic-rename.pt", "N423", options=LIKE)
def _(path: Path) -> None:
    """The same model from a code base that calls its norm layers otherwise."""
    torch.save(OrderedDict((key.replace("bn", "norm"), value) for key, value in nets.net().state_dict().items()), path)


@sample("sick/N424-index-shift.pt", "N424", options=("--like", "healthy/layers.pt"))
def _(path: Path) -> None:
    """Layers that are counted from 1 for a model that counts them from 0."""
    state = nets.layers().state_dict()
    torch.save(OrderedDict((f"{int(key[0]) + 1}{key[1:]}", value) for key, value in state.items()), path)


@sample("sick/R004-dtype-mismatch.pt", "R004", options=LIKE)
def _(path: Path) -> None:
    """Double precision for a model of single precision."""
    torch.save(nets.net().double().state_dict(), path)


@sample("sick/W311-uncovered-model.pt", "W311", options=LIKE)
def _(path: Path) -> None:
    """Another model altogether."""
    torch.save(nets.settled(nets.TiedLM()).layers.state_dict(), path)


@sample("sick/N402-module-prefix-absent.pt", "N402", options=("--like", "sick/N401-module-prefix.pt"))
def _(path: Path) -> None:
    """A bare model's keys for a wrapped model."""
    torch.save(nets.net().state_dict(), path)


@sample("sick/N409-enclosing-prefix.pt", "N409", options=LIKE)
def _(path: Path) -> None:
    """A LightningModule keeps the network in an attribute."""
    torch.save(prefixed(nets.net().state_dict(), "model."), path)


def quiet() -> None:
    """torch warns of deprecations and experimental dtypes that samples use on purpose."""
    warnings.simplefilter("ignore", UserWarning)


quiet()
