"""What the files beside a Hugging Face checkpoint say of its quantisation."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.model_config import config_beside
from ckptdoctor.facts.siblings import folder_of

# configs of their own, as the libraries that quantise write them (AutoGPTQ, AutoAWQ, ModelOpt)
_OWN = frozenset({"quantize_config.json", "quant_config.json", "hf_quant_config.json"})
_FIELDS = ("quantization_config", "compression_config")


def config_lacks_it(checkpoint: Checkpoint) -> str:
    """The path of the ``config.json`` beside the checkpoint, where nothing there says that it is quantised; else ""."""
    config = config_beside(checkpoint)
    if config is None or any(field in config.fields for field in _FIELDS):
        return ""
    return "" if not _OWN.isdisjoint(folder_of(checkpoint.path).names) else config.path
