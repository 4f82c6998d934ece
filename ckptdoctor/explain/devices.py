"""Tensors that remember a device which this machine lacks."""

from __future__ import annotations

from ckptdoctor.explain.message import SAFE, Message, Way

_LOAD = Way("load it with", 'torch.load(path, map_location="cpu")')
_TO_CPU = Way("or repair it", "ckptdoctor fix FILE --to-cpu")

MESSAGES = (
    Message(
        "D601",
        ("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",),
        "the file was saved on a GPU; this machine has none that torch can use",
        (_LOAD, _TO_CPU),
        also=("D602",),
    ),
    Message(
        "D601",
        ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver on your system"),
        "the file was saved on a GPU; this torch cannot use one",
        (_LOAD, _TO_CPU),
        near=("restore_location", "serialization", "torch.load", "map_location"),
        also=("D602",),
    ),
    Message(
        "D602",
        ("Attempting to deserialize object on CUDA device", "deserialize object on CUDA device"),
        "the file was saved on cuda:{index} of another machine; GPUs are counted from 0, and this one has {count}",
        (_LOAD, _TO_CPU),
        then=r"(?P<index>\d{1,9})buttorch\.cuda\.device_count\(\)is(?P<count>\d{1,9})",
        also=("D603",),
    ),
    Message(
        "D602",
        ("invalid device ordinal",),
        "the file was saved on a GPU with a higher number than this machine has",
        (_LOAD, _TO_CPU),
        near=("restore_location", "serialization", "torch.load"),
        also=("D603",),
    ),
    Message(
        "D604",
        ("don't know how to restore data location of",),
        "the file was saved on a device of another kind ({device}), which this torch does not know",
        (_LOAD, _TO_CPU),
        then=r"[\w.]{1,200}\(taggedwith(?P<device>[\w:]{1,60})\)",
        also=("D603",),
    ),
    Message(
        "D604",
        ("Storage device not recognized:",),
        "the file was saved on a device of another kind ({device}), which this torch does not know",
        (_LOAD, _TO_CPU),
        then=r"(?P<device>mps|xla|npu|hpu|xpu|mtia|[a-z]{2,8})",
    ),
    Message(
        "D604",
        ("Attempting to deserialize object on a",),
        "the file was saved on a device of another kind ({device}), which this machine lacks",
        (_LOAD, _TO_CPU),
        then=r"(?P<device>[A-Z]{2,20}?)devicebuttorch\.[\w.]{2,40}\(\)isFalse",
        also=("D603",),
    ),
    Message(
        "D604",
        ("device module is not registered. If you are running on a CPU-only machine",),
        "the file was saved on a device of another kind (an accelerator of its own), which this torch does not know",
        (_LOAD, _TO_CPU),
        also=("D603",),
    ),
    Message(
        "D604",
        ("PyTorch is not linked with support for mps devices",),
        "the file was saved on a Mac's GPU (mps)",
        (_LOAD, _TO_CPU),
    ),
    Message(
        "D605",
        ("_rebuild_xla_tensor", "_rebuild_device_tensor_from_numpy", "No module named 'torch_xla'"),
        "the file holds tensors as torch_xla (TPU) pickles them, which only torch_xla rebuilds",
        (SAFE,),
    ),
    Message(
        "D607",
        ("RNG state must be a torch.ByteTensor",),
        "the state of a random generator was moved to the GPU or cast to another type while it was loaded, most often"
        ' by map_location="cuda"',
        (Way("set it with", "torch.set_rng_state(state.cpu().to(torch.uint8))"), SAFE),
    ),
    Message(
        "D606",
        ("Cannot copy out of meta tensor; no data!",),
        "the model or the file holds tensors without data (meta), so that there is nothing to copy",
        (
            Way("see whether it is the file", "ckptdoctor check FILE"),
            Way("if it is the model", "model.load_state_dict(weights, assign=True)"),
        ),
    ),
)
