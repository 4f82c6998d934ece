"""Networks as the code bases compute them that published their layouts: Meta's Llama, and OpenAI's CLIP.

Written after ``llama/model.py`` of Meta and ``clip/model.py`` of OpenAI, whose names their parameters have.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class _Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def _turned(x, base=10_000.0):
    """Rotary embeddings of (tokens, heads, size): neighbours are a complex number each."""
    tokens, _, size = x.shape
    angles = torch.outer(torch.arange(tokens), base ** -(torch.arange(0, size, 2) / size))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)


class _Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.wq = nn.Linear(width, heads * self.size, bias=False)
        self.wk = nn.Linear(width, kv_heads * self.size, bias=False)
        self.wv = nn.Linear(width, kv_heads * self.size, bias=False)
        self.wo = nn.Linear(heads * self.size, width, bias=False)

    def forward(self, x):
        q = _turned(self.wq(x).unflatten(-1, (self.heads, self.size)))
        k = _turned(self.wk(x).unflatten(-1, (self.kv_heads, self.size)))
        v = self.wv(x).unflatten(-1, (self.kv_heads, self.size))
        k, v = (each.repeat_interleave(self.heads // self.kv_heads, 1) for each in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.size**0.5
        scores = scores + torch.full_like(scores, float("-inf")).triu(1)
        return self.wo(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))


class _FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class _Layer(nn.Module):
    def __init__(self, width, inner, heads, kv_heads):
        super().__init__()
        self.attention = _Attention(width, heads, kv_heads)
        self.feed_forward = _FeedForward(width, inner)
        self.attention_norm, self.ffn_norm = _Norm(width), _Norm(width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class MetaLlama(nn.Module):
    """Tokens → logits."""

    def __init__(self, words=16, width=16, inner=24, heads=4, kv_heads=2, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, width)
        self.layers = nn.ModuleList([_Layer(width, inner, heads, kv_heads) for _ in range(layers)])
        self.norm = _Norm(width)
        self.output = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


class _Gelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class _Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        for name, each in (("c_fc", nn.Linear(width, 12)), ("gelu", _Gelu()), ("c_proj", nn.Linear(12, width))):
            self.mlp.add_module(name, each)

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class _Transformer(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.resblocks = nn.ModuleList([_Block(width, heads) for _ in range(layers)])

    def forward(self, x, mask=None):
        for block in self.resblocks:
            x = block(x, mask)
        return x


class _Vision(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 4, 4, bias=False)
        self.class_embedding = nn.Parameter(torch.rand(width))
        self.positional_embedding = nn.Parameter(torch.rand(5, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = _Transformer(width, heads, layers)
        self.proj = nn.Parameter(torch.rand(width, width))  # square: no shape says how it lies

    def forward(self, images):
        x = self.conv1(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], 1) + self.positional_embedding
        return self.ln_post(self.transformer(self.ln_pre(x))[:, 0]) @ self.proj


class OpenAIClip(nn.Module):
    """Images and tokens → features of both."""

    def __init__(self, words=16, width=8, heads=2, layers=2, length=7):
        super().__init__()
        self.visual = _Vision(width, heads, layers)
        self.transformer = _Transformer(width, heads, layers)
        self.token_embedding = nn.Embedding(words, width)
        self.positional_embedding = nn.Parameter(torch.rand(length, width))
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.rand(width, width))
        self.logit_scale = nn.Parameter(torch.rand(()))

    def forward(self, images, tokens):
        mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
        x = self.transformer(self.token_embedding(tokens) + self.positional_embedding, mask)
        x = self.ln_final(x)[torch.arange(len(x)), tokens.argmax(-1)]
        return self.visual(images), x @ self.text_projection
