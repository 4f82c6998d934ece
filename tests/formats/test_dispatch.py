"""Opening files by their bytes, whatever they are called."""

from __future__ import annotations

import gzip
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.edits import Rename, SetSuffix, Truncate
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import NotACheckpointError, TruncatedError, UnreadableError, UsageError
from ckptdoctor.formats.registry import BUILT_IN, format_named
from ckptdoctor.writing import Copy

STATE = {"fc.weight": torch.ones(2, 3), "fc.bias": torch.zeros(2)}


def save(name, folder, container):
    path = folder / name
    if container == "safetensors":
        save_file(STATE, path)
    else:
        torch.save(STATE, path, _use_new_zipfile_serialization=container == "torch zip")
    return path


@pytest.mark.parametrize("container", ["safetensors", "torch zip", "torch legacy"])
@pytest.mark.parametrize("name", ["model.pt", "model.safetensors", "model", "model.onnx", "a1b2c3"])
def test_the_bytes_decide_not_the_name(container, name, tmp_path):
    """Each container is recognised and read under any name, and the checkpoint carries what the file is."""
    path = save(name, tmp_path, container)
    with FileSource(path) as source:
        container_ = formats.examine(source)
        assert (container_.format, container_.readable) == (container, True)
        assert container_.identity == source.identity and container_.size == source.size
        checkpoint = formats.read(source, container_)
        assert checkpoint.bytes_read == source.bytes_read > 0
    assert {tensor.key: tensor.shape for tensor in checkpoint.tensors} == {"fc.weight": (2, 3), "fc.bias": (2,)}
    assert checkpoint.container is container_ and checkpoint.identity == container_.identity
    assert checkpoint.notes[: len(container_.notes)] == container_.notes


@pytest.mark.parametrize(
    ("container", "name", "fitting"),
    [
        ("safetensors", "m.pt", ".safetensors"),
        ("safetensors", "m.BIN", ".safetensors"),
        ("safetensors", "m.gguf", ".safetensors"),
        ("safetensors", "m.safetensors", None),
        ("safetensors", "m.sft", None),
        ("safetensors", "m", None),
        ("safetensors", "m.safetensors.incomplete", None),
        ("torch zip", "m.safetensors", ".pt"),
        ("torch legacy", "m.safetensors", ".pt"),
        ("torch zip", "m.onnx", ".pt"),
        ("torch zip", "m.bin", None),
        ("torch zip", "m.zip", None),
        ("torch legacy", "m.pth", None),
        ("torch legacy", "m.tar", None),
    ],
)
def test_a_suffix_that_promises_another_format_is_noted(container, name, fitting, tmp_path):
    """The note names the suffix that fits; unknown suffixes promise nothing."""
    with FileSource(save(name, tmp_path, container)) as source:
        notes = [note for note in formats.examine(source).notes if note.kind is NoteKind.WRONG_SUFFIX]
    assert [fitting in note.message for note in notes] == ([True] if fitting else [])


def test_each_built_in_format_offers_what_the_protocol_asks_for():
    """NAME, examine, read and write; and it can be found by its name."""
    for name in BUILT_IN:
        module = import_module(name)
        assert isinstance(module.NAME, str) and format_named(module.NAME) is module
        assert all(callable(getattr(module, verb)) for verb in ("examine", "read", "write"))


def test_an_unknown_format_is_a_usage_error():
    """It is named."""
    with pytest.raises(UsageError, match='"clay tablet"'):
        format_named("clay tablet")


def test_what_is_missing_or_a_folder_cannot_be_opened(tmp_path):
    """A missing file is unreadable; a folder is no checkpoint, and is named where it is something known."""
    with pytest.raises(UnreadableError):
        formats.open_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(NotACheckpointError, match="is a folder without a checkpoint"):
        formats.open_checkpoint(tmp_path)
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(NotACheckpointError, match="Hugging Face Trainer checkpoint"):
        formats.open_checkpoint(tmp_path)


def test_what_is_no_checkpoint_is_named_when_read(tmp_path):
    """The error says what the file is and what to do; a damaged checkpoint is a damaged one."""
    path = tmp_path / "model.pt"
    path.write_bytes(gzip.compress(b"weights?" * 100))
    with pytest.raises(NotACheckpointError, match=r"model\.pt is a gzip file\. .*gunzip"):
        formats.open_checkpoint(path)
    torch.save(STATE, path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TruncatedError):
        formats.open_checkpoint(path)


def test_cutting_and_a_new_suffix_are_the_same_for_every_container(tmp_path):
    """They copy bytes, and nothing else."""
    for container in ("safetensors", "torch legacy"):
        path = save("m.pt", tmp_path, container)
        with FileSource(path) as source:
            checkpoint = formats.read(source, formats.examine(source))
            assert formats.write(wanted_of(checkpoint, [SetSuffix(".x")]), source).segments == (Copy(0, source.size),)
            assert formats.write(wanted_of(checkpoint, [Truncate(9)]), source).segments == (Copy(0, 9),)
            assert formats.write(wanted_of(checkpoint, [Rename((), (("fc.bias", "b"),))]), source).new_bytes > 0


def test_a_format_plugs_in_through_an_entry_point(tmp_path):
    """An installed distribution's format is asked for what nothing built in knows, and only then looked for."""
    (tmp_path / "clay.py").write_text(
        "from ckptdoctor.checkpoint import Checkpoint, Container, Mapping\n"
        "NAME = 'clay tablet'\n"
        "def examine(source, head):\n"
        "    return Container(source.path, source.size, NAME, head, True) if head.startswith(b'CLAY') else None\n"
        "def read(source, container):\n"
        "    return Checkpoint(source.path, NAME, source.size, Mapping('dict', ()), (), (), ())\n"
        "def write(wanted, source): raise NotImplementedError\n"
    )
    (tmp_path / "clay-1.dist-info").mkdir()
    (tmp_path / "clay-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: clay\nVersion: 1\n")
    (tmp_path / "clay-1.dist-info" / "entry_points.txt").write_text("[ckptdoctor.formats]\nclay = clay\n")
    (tmp_path / "tablet.bin").write_bytes(b"CLAY\x00\x01\x02\x03")
    save_file(STATE, tmp_path / "m.safetensors")
    program = (
        "import sys\nfrom ckptdoctor import formats\n"
        "formats.open_checkpoint('m.safetensors')\nassert 'importlib.metadata' not in sys.modules\n"
        "print(formats.open_checkpoint('tablet.bin').format)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == "clay tablet\n", found.stderr


def test_a_safetensors_file_needs_neither_torch_nor_the_pickle_machine(tmp_path):
    """Nothing heavy is imported to check it, nor what unpacks files that were packed."""
    save_file(STATE, tmp_path / "m.safetensors")
    rooms = tuple(f"ckptdoctor.{room}" for room in ("pickles", "formats.torch", "formats.recognise", "formats.packed"))
    program = (
        "import sys, ckptdoctor\nckptdoctor.check(sys.argv[1])\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in {'torch', 'numpy', 'zipfile', 'asyncio'}"
        f" or name.startswith({rooms!r})))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "m.safetensors")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_array_can_be_repaired_into_a_torch_file(tmp_path):
    """It is a tree of one tensor."""
    np.save(tmp_path / "array.npy", np.arange(3.0))
    ckptdoctor.fix(tmp_path / "array.npy", tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt").tolist() == [0.0, 1.0, 2.0]
