"""A small network, and adapters on it that peft really makes and writes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.libraries import peft


class Net(nn.Module):
    """Embeddings, two layers with projections, a convolution and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(9, 4)
        self.layers = nn.ModuleList(
            [nn.ModuleDict({"q_proj": nn.Linear(4, 4), "v_proj": nn.Linear(4, 6)}) for _ in range(2)]
        )
        self.conv = nn.Conv2d(3, 4, 3)
        self.lm_head = nn.Linear(4, 9)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Something that depends on every adapter on q_proj."""
        x = self.emb(tokens)
        for layer in self.layers:
            x = x + layer["q_proj"](x)
        return self.lm_head(x)


class Framed(nn.Module):
    """The same network one level deeper, as a model with a head holds its decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Net()


def lora(**options: Any) -> peft.LoraConfig:
    """A small LoRA, on q_proj unless it is said otherwise."""
    return peft.LoraConfig(**{"r": 2, "target_modules": ["q_proj"], **options})


def adapted(config: Any = None, net: nn.Module | None = None, seed: int = 0) -> Any:
    """The network with an adapter that does something."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(Net() if net is None else net, config or lora())
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    return model


def saved(model: Any, folder: Path, **options: Any) -> Path:
    """The adapter file that save_pretrained writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, **options)
    return folder / ("adapter_model.bin" if options.get("safe_serialization") is False else "adapter_model.safetensors")


def loaded(folder: Path, net: nn.Module | None = None, name: str = "default") -> tuple[Any, list[str]]:
    """The network with the adapter that PeftModel reads from a folder, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(Net() if net is None else net, folder, adapter_name=name)
    return model, [str(each.message) for each in caught]
