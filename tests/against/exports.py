"""Small models as transformers names them, and exports of them as llama.cpp's converter writes them."""

from __future__ import annotations

import numpy as np

from tests.formats.gguf.forge import gguf_bytes

HEADS, SHARED, WIDTH, INNER, WORDS = 4, 2, 64, 96, 160

_GGUF = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def llama(layers=2, seed=0):
    """The tensors of a Llama, as float32 arrays."""
    rng = np.random.default_rng(seed)

    def some(*shape):
        return (rng.standard_normal(shape) * 0.05).astype(np.float32)

    made = {"model.embed_tokens.weight": some(WORDS, WIDTH)}
    for layer in range(layers):
        shared = WIDTH // HEADS * SHARED
        shapes = {"q": (WIDTH, WIDTH), "k": (shared, WIDTH), "v": (shared, WIDTH), "o": (WIDTH, WIDTH)}
        at = f"model.layers.{layer}."
        made |= {f"{at}self_attn.{part}_proj.weight": some(*shape) for part, shape in shapes.items()}
        made |= {f"{at}mlp.{part}_proj.weight": some(INNER, WIDTH) for part in ("gate", "up")}
        made[f"{at}mlp.down_proj.weight"] = some(WIDTH, INNER)
        made |= {f"{at}{part}_layernorm.weight": 1 + some(WIDTH) for part in ("input", "post_attention")}
    return made | {"model.norm.weight": 1 + some(WIDTH), "lm_head.weight": some(WORDS, WIDTH)}


def permuted(rows, heads):
    """Rows as llama.cpp has them: those of each head in pairs."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def exported(model, architecture="llama"):
    """The same under llama.cpp's names, and with queries and keys in its order."""
    made = {}
    for key, values in model.items():
        name, leaf = key.rsplit(".", 1)
        if name in _TOP:
            made[f"{_TOP[name]}.{leaf}"] = values
            continue
        _, _, layer, module = name.split(".", 3)
        if architecture == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):
            values = permuted(values, HEADS if "q_proj" in module else SHARED)
        made[f"blk.{layer}.{_GGUF[module]}.{leaf}"] = values
    return made


def q8_0(values):
    """Blocks of 32 elements with one scale, rounded as ``quantize_row_q8_0_ref`` does."""
    blocks = values.reshape(-1, 32).astype(np.float32)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
    codes = np.round(np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0)).astype(np.int8)
    return np.concatenate((scales.astype(np.float16).view(np.uint8), codes.view(np.uint8)), axis=1).tobytes()


def q4_0(values):
    """The same with 4 bits, as ``quantize_row_q4_0_ref`` does."""
    blocks = values.reshape(-1, 32).astype(np.float32)
    most = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    scales = most / -8
    codes = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0) + 8.5
    codes = codes.astype(np.uint8).clip(0, 15)
    packed = codes[:, :16] | (codes[:, 16:] << 4)
    return np.concatenate((scales.astype(np.float16).view(np.uint8), packed), axis=1).tobytes()


def bf16(values):
    """The upper halves of float32, rounded to nearest."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()


def _nibbles(codes):
    """The first half of each row in the lower half of bytes, the second in the upper."""
    half = codes.shape[-1] // 2
    return codes[..., :half] | (codes[..., half:] << 4)


def q4_k(values):
    """Blocks of 256 elements in groups of 32, whose scales and minima have scales: each group from its least number."""
    groups = values.reshape(-1, 8, 32).astype(np.float32)
    lows = np.maximum(-groups.min(axis=2), 0)
    steps = (groups.max(axis=2) + lows) / 15
    scale, low = [(each.max(axis=1, keepdims=True) / 63).astype(np.float16) for each in (steps, lows)]
    sixes = [
        np.round(np.divide(each, one, out=np.zeros_like(each), where=one != 0)).clip(0, 63).astype(np.uint8)
        for each, one in ((steps, scale.astype(np.float32)), (lows, low.astype(np.float32)))
    ]
    made, least = [(six * each.astype(np.float32))[:, :, None] for six, each in zip(sixes, (scale, low), strict=True)]
    codes = np.round(np.divide(groups + least, made, out=np.zeros_like(groups), where=made != 0)).clip(0, 15)
    first = [each[:, :4] | (each[:, 4:] >> 4 << 6) for each in sixes]
    last = (sixes[0][:, 4:] & 15) | (sixes[1][:, 4:] << 4)
    packed = _nibbles(codes.astype(np.uint8).reshape(-1, 4, 64)).reshape(-1, 128)
    return np.concatenate((scale.view(np.uint8), low.view(np.uint8), *first, last, packed), axis=1).tobytes()


def q6_k(values):
    """Blocks of 256 elements in groups of 16, whose scales have a scale."""
    groups = values.reshape(-1, 16, 16).astype(np.float32)
    steps = np.abs(groups).max(axis=2) / 31
    scale = (steps.max(axis=1, keepdims=True) / 127).astype(np.float16)
    own = scale.astype(np.float32)
    scales = np.round(np.divide(steps, own, out=np.zeros_like(steps), where=own != 0)).astype(np.int8)
    made = (scales * own)[:, :, None]
    codes = np.round(np.divide(groups, made, out=np.zeros_like(groups), where=made != 0)).clip(-32, 31) + 32
    halves = codes.astype(np.uint8).reshape(-1, 2, 128)
    upper = (halves >> 4).reshape(-1, 2, 4, 32)
    upper = upper[:, :, 0] | upper[:, :, 1] << 2 | upper[:, :, 2] << 4 | upper[:, :, 3] << 6
    lower = _nibbles(halves & 15).reshape(-1, 128)
    raw = (lower, upper.reshape(-1, 64), scales.view(np.uint8), scale.view(np.uint8))
    return np.concatenate(raw, axis=1).tobytes()


STORED = {
    "F32": lambda values: values.astype(np.float32).tobytes(),
    "F16": lambda values: values.astype(np.float16).tobytes(),
    "BF16": bf16,
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_K": q4_k,
    "Q6_K": q6_k,
}


def saved(arrays, path, kind="F32", architecture="llama", **metadata):
    """A GGUF file of these, with matrices of one type and the rest in float32."""
    kinds = {name: kind if each.ndim > 1 else "F32" for name, each in arrays.items()}
    tensors = {
        name: (kinds[name], each.shape, STORED[kinds[name]](np.ascontiguousarray(each)))
        for name, each in arrays.items()
    }
    told = {
        "general.architecture": architecture,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": SHARED,
        **metadata,
    }
    path.write_bytes(gguf_bytes(tensors, told))
    return path
