"""Vision transformers of timm for transformers, and back: both compute the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.commands import run
from tests.libraries import real, transformers

WIDTH, HEADS, LAYERS, CLASSES = 8, 2, 2, 3
IMAGES = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)


class _Attention(nn.Module):
    """As timm 1.0.31 has it in layers/attention.py."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class _Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(x)))


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = _Attention(), _Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TimmViT(nn.Module):
    """Images → logits, as timm 1.0.31 has it in models/vision_transformer.py."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.rand(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.rand(1, 5, WIDTH))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(*[_Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        x = self.patch_embed.proj(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def models():
    """timm's, and that of transformers, with other numbers; every matrix is square."""
    torch.manual_seed(5)
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=WIDTH,
        image_size=8, patch_size=4, num_labels=CLASSES, layer_norm_eps=1e-5,
    )  # fmt: skip
    return TimmViT().eval(), transformers.ViTForImageClassification(config).eval()


def fix(folder, source, wanted, *options):
    """What the command writes, or None; and what it says."""
    torch.save(source, folder / "vit.pt")
    torch.save(wanted, folder / "like.pt")
    done = run("fix", "vit.pt", "--like", "like.pt", "-o", "out.pt", *options, cwd=folder)
    made = folder / "out.pt"
    assert made.exists() is (done.returncode == 0), done.stdout
    return (torch.load(made, weights_only=True) if made.exists() else None), done.stdout.decode()


@real
@pytest.mark.parametrize("back", [False, True], ids=["to transformers", "to timm"])
def test_timms_vit_and_that_of_transformers_compute_the_same(tmp_path, back):
    """Projections split and fused, in the order in which timm takes them apart."""
    timm, hugging = models()
    source, target = (hugging, timm) if back else (timm, hugging)
    made, said = fix(tmp_path, source.state_dict(), target.state_dict())
    assert made is not None, said
    target.load_state_dict(made)
    with torch.no_grad():
        assert torch.allclose(hugging(IMAGES).logits, timm(IMAGES), atol=1e-5)


@real
@pytest.mark.parametrize("back", [False, True], ids=["from the Hub", "to the Hub"])
def test_files_of_the_hub_have_other_names_and_the_same_values(tmp_path, back):
    """What save_pretrained writes becomes timm's, and timm's becomes it."""
    from safetensors.torch import load_file

    timm, hugging = models()
    wanted, _ = fix(tmp_path, hugging.state_dict(), timm.state_dict())
    hugging.save_pretrained(tmp_path / "hub")
    hub = load_file(tmp_path / "hub/model.safetensors")
    (tmp_path / "out.pt").unlink()
    source, target = (wanted, hub) if back else (hub, wanted)
    made, said = fix(tmp_path, source, {key: torch.zeros_like(value) for key, value in target.items()})
    assert made is not None, said
    assert made.keys() == target.keys()
    assert all(torch.equal(value, made[key]) for key, value in target.items())


@real
@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("change", ["one less", "one more", "another name", "codes", "another size"])
def test_a_vit_counts_only_as_a_whole(tmp_path, change, unsafe):
    """What is not timm's throughout is not taken apart as timm's."""
    timm, hugging = models()
    source = timm.state_dict()
    if change == "one less":
        del source["blocks.1.norm2.weight"]
    elif change == "one more":
        source["blocks.1.attn.q_norm.weight"] = torch.rand(4)
    elif change == "another name":
        source["blocks.1.mlp.fc1_ema.weight"] = source.pop("blocks.1.mlp.fc1.weight")
    elif change == "codes":
        source["blocks.1.attn.proj.weight"] = torch.ones(WIDTH, WIDTH, dtype=torch.int8)
    else:
        source["blocks.1.attn.qkv.weight"] = torch.rand(3 * WIDTH + 1, WIDTH)
    assert fix(tmp_path, source, hugging.state_dict(), *unsafe)[0] is None
