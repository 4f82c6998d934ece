"""Writes the small files of libraries that are not in the test extra: what they save, and what they compute.

``python -m tests.oracles.freeze keras`` writes ``frozen/keras_*.safetensors`` anew, and ``… dinov2`` those of DINOv2,
whose repository (facebookresearch/dinov2, commit b8931f7) must be on the path. Each holds the tensors as the
library saves them under ``saved|KEY``, what goes into the network as ``x`` and what came out of it as ``y``; the
versions stand in the metadata. ``test_frozen`` holds the command against them where the library is not installed.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

FROZEN = Path(__file__).parent / "frozen"


def frozen(name):
    """The tensors that the library saved, what went in, and what came out."""
    with safe_open(FROZEN / f"{name}.safetensors", "pt") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no mapping
    saved = {key.partition("|")[2]: value for key, value in found.items() if "|" in key}
    return saved, found["x"], found["y"]


def _write(name, versions, saved, x, y):
    FROZEN.mkdir(exist_ok=True)
    tensors = {f"saved|{key}": value.detach().contiguous() for key, value in saved.items()}
    versions = {**versions, "torch": torch.__version__}
    save_file({**tensors, "x": x, "y": y.detach().contiguous()}, FROZEN / f"{name}.safetensors", versions)


def recurrent(layers, kind, both=False, **options):
    """A network of Keras with one recurrent layer, or one in both directions, of numbers of its own."""
    from keras import Sequential

    layer = kind(6, name="inner", **options)
    rnn = layers.Bidirectional(layer, name="rnn") if both else kind(6, name="rnn", **options)
    net = Sequential([layers.Input((4, 5)), rnn, layers.Dense(3, name="fc")])
    for each in net.weights:
        each.assign(torch.rand(tuple(each.shape)) - 0.5)
    return net


def _keras():
    os.environ["KERAS_BACKEND"] = "torch"
    from keras import layers

    keras = {"keras": version("keras")}
    torch.manual_seed(0)
    for name, kind in (("lstm", layers.LSTM), ("gru", layers.GRU)):
        for both in (False, True):
            net = recurrent(layers, kind, both)
            saved = {each.path: each.value for each in net.weights}
            x = torch.rand(2, 4, 5)
            _write(f"keras_{name}{'_both' if both else ''}", keras, saved, x, net(x, training=False))
    net = recurrent(layers, layers.GRU, reset_after=False)
    x = torch.rand(2, 4, 5)
    saved = {each.path: each.value for each in net.weights}
    _write("keras_gru_before", keras, saved, x, net(x, training=False))


def _dinov2():
    os.environ["XFORMERS_DISABLED"] = "1"
    from dinov2.models.vision_transformer import DinoVisionTransformer

    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 3, "mlp_ratio": 2}
    for name, more in DINOV2.items():
        torch.manual_seed(0)
        model = DinoVisionTransformer(**sizes, init_values=1.0, block_chunks=0, **more).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        x = torch.rand(2, 3, 8, 8)
        found = model.forward_features(x)
        y = torch.cat([found["x_norm_clstoken"][:, None], found["x_norm_regtokens"], found["x_norm_patchtokens"]], 1)
        _write(f"dinov2_{name}", {"dinov2": "b8931f7"}, model.state_dict(), x, y)


DINOV2 = {"plain": {}, "registers": {"num_register_tokens": 2}, "swiglu": {"ffn_layer": "swiglu"}}

if __name__ == "__main__":
    {"keras": _keras, "dinov2": _dinov2}[sys.argv[1]]()
