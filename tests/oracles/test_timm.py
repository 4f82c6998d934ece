"""ConvNeXt as it was first published, for timm, as ``checkpoint_filter_fn`` of timm converts it."""

from __future__ import annotations

import re

import pytest
import torch

from tests.oracles.conftest import library

BACK = (
    (r"^head\.norm", "norm"),
    (r"^head\.fc", "head"),
    (r"^stem", "downsample_layers.0"),
    (r"^stages\.(\d)\.downsample", r"downsample_layers.\1"),
    (r"\.blocks", ""),
    ("conv_dw", "dwconv"),
    (r"mlp\.grn\.weight", "grn.gamma"),
    (r"mlp\.grn\.bias", "grn.beta"),
    (r"mlp\.fc", "pwconv"),
)


def first(state):
    """The same tensors as the first ConvNeXt saves them."""
    found = {}
    for key, value in state.items():
        for pattern, name in BACK:
            key = re.sub(pattern, name, key)
        found[key] = value.flatten(1) if re.search(r"pwconv\d\.weight", key) else value
        if ".grn." in key:
            found[key] = value[None, None, None]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"use_grn": True, "ls_init_value": None}, {"conv_mlp": True}], ids=repr)
def test_the_first_convnext_becomes_that_of_timm(fixed, options):
    """The command writes what timm's own filter makes of it, and timm computes the same."""
    library("timm")
    from timm.models.convnext import ConvNeXt, checkpoint_filter_fn

    torch.manual_seed(0)
    model = ConvNeXt(num_classes=5, depths=(1, 2, 1, 1), dims=(4, 8, 8, 8), **options).eval()
    source = {key: value.clone() for key, value in first(model.state_dict()).items()}
    wanted = checkpoint_filter_fn(source, model)
    made = fixed(source, model.state_dict())
    assert made.keys() == wanted.keys()
    assert all(torch.equal(value, made[key]) for key, value in wanted.items())
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        before = model(images)
        model.load_state_dict(made)
        assert torch.equal(model(images), before)
