"""``check --model`` beside torch's own ``load_state_dict`` on the same pair: ``python benchmarks/model.py``.

Whole processes. The checkpoint is that of a network of 300 M parameters under DataParallel; both are asked whether it
fits the bare one. torch builds the model and reads every value before it can compare names; ``check`` builds the model
without memory, reads headers, and says which repair makes it fit. Both import torch, and both run the same class.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ckptdoctor, python, show, side_by_side

NETWORK = """
from torch import nn

def big():
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    return nn.TransformerEncoder(layer, 24, enable_nested_tensor=False)
"""

MAKE = (
    "import torch, big_network\n"
    "torch.save({'module.' + key: value for key, value in big_network.big().state_dict().items()}, 'big.pt')"
)
EAGER = (
    "import torch, big_network\n"
    "model = big_network.big()\n"
    "model.load_state_dict(torch.load('big.pt', weights_only=True), strict=False)"
)
MAPPED = EAGER.replace("weights_only=True", "weights_only=True, mmap=True")


def main() -> None:
    """Print the comparison."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        Path("big_network.py").write_text(NETWORK, encoding="utf-8")
        subprocess.run([sys.executable, "-c", MAKE], check=True)
        commands = {
            "ckptdoctor check --model": ckptdoctor("check", "big.pt", "--model", "big_network:big"),
            "torch.load, load_state_dict": python(EAGER),
            "torch.load(mmap), load_state_dict": python(MAPPED),
        }
        show("does it fit? 300 M parameters, 288 keys", side_by_side(commands, rounds=3))


if __name__ == "__main__":
    main()
