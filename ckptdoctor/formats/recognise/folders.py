"""Recognises folders that are one checkpoint in several files, by the names in them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from ckptdoctor.checkpoint import Container, FolderSource
from ckptdoctor.errors import UnreadableError
from ckptdoctor.shell import quote

_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")


class _Folder(NamedTuple):
    """The names in a folder, as one text with a line for each (folders end in a slash)."""

    path: str
    names: frozenset[str]
    text: str

    def has(self, pattern: str) -> bool:
        return re.search(pattern, self.text, re.MULTILINE) is not None


def recognise_folder(source: FolderSource) -> Container:
    """Return what the folder is, when it is a model's folder of some kind.

    ``format`` is "" when it is nothing known.
    """
    folder = _Folder(source.path, frozenset(source.names), "\n".join(source.names))
    for name, fits, guidance in _KINDS:
        if fits(folder):
            return Container(source.path, 0, name, b"", False, guidance)
    return Container(source.path, 0, "", b"", False, _unknown(source))


def _unknown(source: FolderSource) -> str:
    """Say what is in a folder that is not one checkpoint, and how to open it."""
    files = [name for suffix in _SUFFIXES for name in sorted(source.names) if name.endswith(suffix)]
    if not files:
        return "It is a folder without a checkpoint."
    if len(files) == 1:
        only = quote(os.path.join(source.path, files[0]))
        return f"It is a folder with 1 checkpoint, not a sharded checkpoint. Open it: ckptdoctor {only}"
    # none of them has been opened: the list says of each what its headers tell
    folder = quote(source.path)
    return (
        f"It is a folder with {len(files):,} checkpoints, not one sharded checkpoint. Choose one in the browser: "
        f"ckptdoctor browse {folder}, or check them all: ckptdoctor check {folder}"
    )


def _is_unpacked(folder: _Folder) -> bool:
    """Return whether data.pkl is here next to its records, or in the only folder here."""
    if "data.pkl" in folder.names:
        return bool(folder.names & {"data/", "version", "byteorder"})
    if len(folder.names) != 1:
        return False
    try:
        below = FolderSource(os.path.join(folder.path, next(iter(folder.names)).rstrip("/"))).names
    except UnreadableError:  # a file, or a folder that is not ours to read
        return False
    return "data.pkl" in below and not {"data/", "version", "byteorder"}.isdisjoint(below)


def _is_deepspeed(folder: _Folder) -> bool:
    return folder.has(r"^(?:\w*mp_rank_\d+_model_states\.pt|.*zero_pp_rank_.*_states\.pt|.*_optim_states\.pt)$") or (
        "latest" in folder.names and folder.has(r"^global_step\d+/$")
    )


def _is_megatron(folder: _Folder) -> bool:
    return "latest_checkpointed_iteration.txt" in folder.names or folder.has(r"^mp_rank_\d\d(?:_\d{3})*/$")


def _is_orbax(folder: _Folder) -> bool:
    return bool(folder.names & {"_CHECKPOINT_METADATA", "manifest.ocdbt", "_sharding"})


_Fits = Callable[[_Folder], bool]
_KINDS: tuple[tuple[str, _Fits, str], ...] = (
    (
        "torch distributed checkpoint",
        lambda folder: ".metadata" in folder.names or folder.has(r"\.distcp$"),
        "torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes one file from it.",
    ),
    (
        "DeepSpeed checkpoint",
        _is_deepspeed,
        "The script zero_to_fp32.py that DeepSpeed puts next to it makes one file from it.",
    ),
    (
        "Megatron checkpoint",
        _is_megatron,
        "Megatron-LM's tools/checkpoint converts it; each .pt file in it can be opened.",
    ),
    (
        "unpacked torch archive",
        _is_unpacked,
        "It was unpacked, perhaps by the browser. Pack the folder that has data.pkl again with zip -0 -r "
        "model.pt FOLDER.",
    ),
    (
        "sharded Hugging Face checkpoint",
        lambda folder: folder.has(r"\.(?:safetensors|bin)\.index\.json$"),
        "Its tensors are spread over the shards that the index names: open each shard on its own.",
    ),
    (
        "Hugging Face Trainer checkpoint",
        lambda folder: "trainer_state.json" in folder.names,
        "Open the files in it: model.safetensors or pytorch_model.bin, optimizer.pt, scheduler.pt, rng_state.pth.",
    ),
    (
        "folder of distributed safetensors pieces",
        lambda folder: folder.has(r"^shard-\d+-.*\.safetensors$"),
        "Each file holds a piece of every tensor: "
        "torch.distributed.checkpoint._consolidate_hf_safetensors.consolidate_safetensors_files puts them together.",
    ),
    (
        "Hugging Face model folder",
        lambda folder: "config.json" in folder.names and folder.has(r"^(?:.*\.safetensors|pytorch_model\.bin)$"),
        "Open the model.safetensors or pytorch_model.bin in it.",
    ),
    (
        "TensorFlow SavedModel",
        lambda folder: "saved_model.pb" in folder.names,
        "tf.saved_model.load reads the folder.",
    ),
    (
        "TensorFlow checkpoint",
        lambda folder: folder.has(r"\.data-\d{5}-of-\d{5}$"),
        'tf.train.load_checkpoint reads it, by its path without ".index".',
    ),
    ("Orbax checkpoint", _is_orbax, "orbax.checkpoint reads the folder."),
    (
        "Zarr store",
        lambda folder: bool(folder.names & {".zarray", ".zgroup", "zarr.json"}),
        "zarr.open reads the folder.",
    ),
)
