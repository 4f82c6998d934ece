"""``safetensors``: names and tensors and nothing else: no pickle, no device tags."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.strategies.strategy import Strategy


def _write(path: Path, collected: Collected, _: Strategy) -> None:
    from safetensors.torch import save

    # the format has neither strides nor sharing: a tied weight is written once under each of its names
    tensors = {key: value.clone(memory_format=torch.contiguous_format) for key, value in collected.weights.items()}
    # through write_bytes, as save_file makes files that nobody but their owner may read
    path.write_bytes(save(tensors, metadata={"format": "pt"}))


SAFETENSORS = Style("safetensors", "model.safetensors", "safetensors", _write, tagged=False)
