"""Rewrites archives in memory, and loads the results in each way that torch can."""

import io

import torch
from torch.utils.serialization import config

from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.edits import Rename
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.writing import Copy, Literal


def recipe_of(path, *edits):
    with FileSource(path) as source:
        checkpoint = formats.read(source, formats.examine(source))
        return formats.write(wanted_of(checkpoint, edits), source)


def rewritten(path, *edits):
    """The bytes of the copy with these edits."""
    original = path.read_bytes()
    out = io.BytesIO()
    for segment in recipe_of(path, *edits).segments:
        if isinstance(segment, Copy):
            piece = original[segment.offset : segment.offset + segment.length]
        elif isinstance(segment, Literal):
            piece = segment.data
        else:
            piece = b"".join(segment.chunks())
        assert len(piece) == segment.length
        out.write(piece)
    return out.getvalue()


def loads(path, **options):
    """What torch loads from the file in each way that gives values; offsets that it computes are compared as well."""
    reader = torch._C.PyTorchFileReader(str(path))
    plain = torch.load(path, weights_only=True, **options)
    mapped = torch.load(path, weights_only=True, mmap=True, **options)
    with config.patch({"load.calculate_storage_offsets": True}):
        computed = torch.load(path, weights_only=True, mmap=True, **options)
    meta = torch.load(path, weights_only=True, map_location="meta")
    offsets = {reader.get_record_offset(name) for name in reader.get_all_records() if name.startswith("data/")}
    for tensor in flat(meta):
        assert tensor.untyped_storage()._checkpoint_offset in offsets
    return plain, mapped, computed


def flat(contents):
    if isinstance(contents, torch.Tensor):
        return [contents]
    values = contents.values() if isinstance(contents, dict) else contents if isinstance(contents, list) else ()
    return [tensor for value in values for tensor in flat(value)]


def assert_loads(path, wanted, **options):
    """Every way of loading gives equal tensors, with the same strides."""
    for contents in loads(path, **options):
        got = flat(contents)
        assert len(got) == len(flat(wanted))
        for tensor, expected in zip(got, flat(wanted), strict=True):
            assert tensor.stride() == expected.stride()
            assert torch.equal(tensor, expected)


def model():
    shared = torch.arange(12.0)
    return {
        "module.tied.weight": shared.view(3, 4),
        "module.tied2.weight": shared.view(3, 4),
        "module.turned": torch.arange(6).view(2, 3).t(),
        "module.empty": torch.zeros(0),
        "module.half": torch.ones(5, dtype=torch.bfloat16),
        "module.byte": torch.tensor(3, dtype=torch.uint8),
    }


CONTENTS = {"state_dict": model(), "epoch": 3, "list": [torch.ones(2)]}
RENAMES = Rename(("state_dict",), tuple((key, key.removeprefix("module.")) for key in model()))
