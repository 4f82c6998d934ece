"""Real models of tiny sizes: torch's own layers, networks as people write them, and transformers from their configs.

Nearly all sizes are 8, so that shapes seldom tell which layer is which.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any

import torch
from torch import nn

from ckptdoctor.trainer.networks import LeNet, ResNet

State = dict[str, torch.Tensor]
N = 8


class Fcs(nn.Module):
    """Numbered layers of one shape, as ``fc1`` to ``fc4``, and a head."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(1, 5):
            setattr(self, f"fc{number}", nn.Linear(N, N))
        self.head = nn.Linear(N, 3)


class Convs(nn.Module):
    """Convolutions with batch norms in two stages, with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, N, 3), nn.BatchNorm2d(N)
        for stage in ("layer1", "layer2"):
            setattr(self, stage, nn.Sequential(self._block(), self._block()))
        self.fc = nn.Linear(N, 5)

    def _block(self) -> nn.Module:
        block = nn.Module()
        block.conv1, block.bn1 = nn.Conv2d(N, N, 3, bias=False), nn.BatchNorm2d(N)
        block.conv2, block.bn2 = nn.Conv2d(N, N, 3, bias=False), nn.BatchNorm2d(N)
        block.downsample = nn.Sequential(nn.Conv2d(N, N, 1, bias=False), nn.BatchNorm2d(N))
        return block


class Vgg(nn.Module):
    """``features`` and ``classifier``, numbered with gaps."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, N, 3), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv2d(N, N, 3), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Dropout(), nn.Linear(N, N), nn.ReLU())


class Attention(nn.Module):
    """Four square projections."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(N, N))


class Blocks(nn.Module):
    """A language model as people write it, with a gated feed-forward of the same width."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, N)
        self.layers = nn.ModuleList([self._layer() for _ in range(3)])
        self.norm = nn.LayerNorm(N)
        self.head = nn.Linear(N, 11, bias=False)

    def _layer(self) -> nn.Module:
        layer = nn.Module()
        layer.attn = Attention()
        layer.norm1, layer.norm2 = nn.LayerNorm(N), nn.LayerNorm(N)
        layer.mlp = nn.Module()
        layer.mlp.gate, layer.mlp.up, layer.mlp.down = (nn.Linear(N, N, bias=False) for _ in range(3))
        return layer


class Tied(Blocks):
    """The same with the head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight


class Experts(nn.Module):
    """A router and experts, each with two square matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, N)
        self.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.gate = nn.Linear(N, 4, bias=False)
            layer.experts = nn.ModuleList([nn.Module() for _ in range(4)])
            for expert in layer.experts:
                expert.w1, expert.w2, expert.w3 = (nn.Linear(N, N, bias=False) for _ in range(3))
            self.layers.append(layer)


class AutoEncoder(nn.Module):
    """Encoder and decoder of the same shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N))
        self.decoder = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N))


class NonLocal(nn.Module):
    """Self-attention of images, with names of its own."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("theta", "phi", "g", "W"):
            setattr(self, name, nn.Conv2d(N, N, 1))
        self.gamma = nn.Parameter(torch.zeros(1))


class Normed(nn.Module):
    """Convolutions under weight norm, in the format of parametrizations."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.convs = nn.ModuleList([norm(nn.Conv1d(N, N, 3)) for _ in range(3)])
        self.out = nn.Linear(N, N)


class Recurrent(nn.Module):
    """Two layers of a bidirectional LSTM, and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, N)
        self.rnn = nn.LSTM(N, N, 2, bidirectional=True)
        self.gru = nn.GRU(2 * N, N)
        self.out = nn.Linear(N, 9)


class Gan(nn.Module):
    """A generator of transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential()
        for _ in range(3):
            self.main += nn.Sequential(nn.ConvTranspose2d(N, N, 4, bias=False), nn.BatchNorm2d(N), nn.ReLU())


def _transformer(kind: str) -> nn.Module:
    if kind == "encoder":
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(N, 2, N), 3, enable_nested_tensor=False)
    if kind == "decoder":
        return nn.TransformerDecoder(nn.TransformerDecoderLayer(N, 2, N), 2)
    return nn.Transformer(N, 2, 2, 2, N, batch_first=True)


OWN: dict[str, Callable[[], nn.Module]] = {
    "fcs": Fcs,
    "mlp": lambda: nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N), nn.ReLU()),
    "convs": Convs,
    "vgg": Vgg,
    "blocks": Blocks,
    "tied": Tied,
    "experts": Experts,
    "autoencoder": AutoEncoder,
    "nonlocal": NonLocal,
    "normed": Normed,
    "recurrent": Recurrent,
    "gan": Gan,
    "attention": Attention,
    "transformer encoder": partial(_transformer, "encoder"),
    "transformer decoder": partial(_transformer, "decoder"),
    "transformer": partial(_transformer, "both"),
    "lenet": partial(LeNet, 1, 14, 4, width=4),
    "resnet": partial(ResNet, 1, 3, width=4),
}

_TEXT = {"vocab_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BERT = {
    **_TEXT,
    "hidden_size": N,
    "num_attention_heads": 2,
    "intermediate_size": N,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16,
}
_VIT = {**_BERT, "image_size": 8, "patch_size": 4, "num_channels": 3}
_WHISPER = {
    **_TEXT,
    "d_model": N,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": N,
    "decoder_ffn_dim": N,
    "num_mel_bins": 4,
    "max_source_positions": 8,
    "max_target_positions": 8,
    "decoder_start_token_id": 1,
}
_CLIP_HALF = {"hidden_size": N, "intermediate_size": N, "num_attention_heads": 2, "num_hidden_layers": 1}
_CLIP = {
    "projection_dim": N,
    "text_config": {**_TEXT, **_CLIP_HALF, "max_position_embeddings": 8, "projection_dim": N},
    "vision_config": {**_CLIP_HALF, "image_size": 8, "patch_size": 4, "projection_dim": N},
}

HUGGING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", _BERT),
    "bert masked": ("BertConfig", "BertForMaskedLM", _BERT),
    "bert classes": ("BertConfig", "BertForSequenceClassification", {**_BERT, "num_labels": 3}),
    "roberta": ("RobertaConfig", "RobertaModel", _BERT),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"vocab_size": 16, "dim": N, "hidden_dim": N, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 16},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {**_TEXT, "n_embd": N, "n_head": 2, "n_layer": 2, "n_positions": 16, "n_inner": N},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _BERT),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_BERT, "num_key_value_heads": 2, "head_dim": 4}),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {**_TEXT, "d_model": N, "d_kv": 4, "num_heads": 2, "d_ff": N, "num_layers": 2, "decoder_start_token_id": 0},
    ),
    "vit": ("ViTConfig", "ViTForImageClassification", {**_VIT, "num_labels": 3}),
    "clip": ("CLIPConfig", "CLIPModel", _CLIP),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", _WHISPER),
}

MODELS = (*OWN, *HUGGING)


@cache
def model(name: str) -> nn.Module:
    """The model of this name, built once a process: its values are never looked at."""
    if name in OWN:
        return OWN[name]()
    import transformers

    config, architecture, sizes = HUGGING[name]
    transformers.logging.set_verbosity_error()
    made: nn.Module = getattr(transformers, architecture)(getattr(transformers, config)(**sizes))
    return made


def state(name: str, rng: Random) -> State:
    """A state dict of the model in which no two numbers are equal; tied weights are one tensor."""
    return fresh(model(name).state_dict(), rng)


def fresh(like: State, rng: Random) -> State:
    """Tensors of these shapes with other values, tied as they are."""
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    made: dict[tuple[int, int], torch.Tensor] = {}
    found: State = {}
    for key, value in like.items():
        one = (value.data_ptr(), value.numel())
        if one not in made:
            if value.is_floating_point():
                made[one] = torch.randn(value.shape, generator=generator).to(value.dtype)
            elif value.numel() == 1:
                made[one] = torch.randint(1, 1 << 20, value.shape, generator=generator, dtype=value.dtype)
            else:
                made[one] = value.clone()  # positions and such, which every model of the class has
        found[key] = made[one]
    return found
