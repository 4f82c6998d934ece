"""Which file a traceback is about."""

from __future__ import annotations

import pytest

from ckptdoctor.explaining.explanation import explain, source_file
from ckptdoctor.explaining.text import cleaned

NAMED = [
    ('    ckpt = torch.load("best.pth")', "best.pth"),
    ("    torch.load('runs/a b.pt', map_location='cpu')", "runs/a b.pt"),
    ('    torch.load(f="x.ckpt")', "x.ckpt"),
    ('    torch.load(open("x.pkl", "rb"))', "x.pkl"),
    ('    torch.load(r"C:\\runs\\a.pt")', "C:\\runs\\a.pt"),
    ('    torch.load("C:\\\\runs\\\\a.pt")', "C:\\runs\\a.pt"),
    ('│ ❱ 12 sd = torch.load("best.pth")      │', "best.pth"),
    ('----> 1 load_file("model.safetensors")', "model.safetensors"),
    ('  with safe_open("m.safetensors", framework="pt") as f:', "m.safetensors"),
    ('  load_model(model, "m.safetensors")', "m.safetensors"),
    ('  Net.load_from_checkpoint("epoch=9.ckpt")', "epoch=9.ckpt"),
    ('  AutoModel.from_pretrained("./out")', "./out"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'a/best.pth'", "a/best.pth"),
    ("FileNotFoundError: No such file or directory: /tmp/x.safetensors", "/tmp/x.safetensors"),
    (
        "OSError: Unable to load weights from pytorch checkpoint file for 'a/pytorch_model.bin' at",
        "a/pytorch_model.bin",
    ),
    ("OSError: Unable to load weights from pytorch checkpoint file for 'hub/id' at 'a/x.bin'. If", "a/x.bin"),
    ("loading network C:\\models\\Lora\\x.safetensors: AssertionError", "C:\\models\\Lora\\x.safetensors"),
    ("$ python eval.py --ckpt=runs/best.pth", "runs/best.pth"),
    ("loading runs/best.pth.", "runs/best.pth"),
]
UNNAMED = [
    "torch.load(args.checkpoint)",
    'torch.load(f"{folder}/best.pth")',
    'torch.load("https://example.com/x")',
    'AutoModel.from_pretrained("bert-base-uncased")',
    "Error no file named pytorch_model.bin, model.safetensors found in directory out",
    "copied a.pth to b.pth",
    "torch.load(folder+str(epoch)+'_net.pkl')",
    "PytorchStreamReader failed locating file constants.pkl: file not found",
    "file not found: archive/constants.pkl",
    "a sentence. It ends.",
]


@pytest.mark.parametrize(("line", "path"), NAMED)
def test_paths_are_found(line, path):
    """Source lines and messages name the file."""
    assert source_file(cleaned(f"Traceback (most recent call last):\n{line}\n")) == path


@pytest.mark.parametrize("line", UNNAMED)
def test_what_is_no_path_is_not_taken_for_one(line):
    """Variables, web addresses, model ids, and files that may be either of two give none."""
    assert source_file(cleaned(line)) is None


def test_of_several_the_nearest_above_the_message_is_meant():
    """A program loads one file after the other, and the second fails."""
    failure = "RuntimeError: Invalid magic number; corrupt file?"
    text = f'torch.load("a.pt")\nfine\ntorch.load("b.pt")\n{failure}\ntorch.load("c.pt")'
    assert explain(text).file == "b.pt"
