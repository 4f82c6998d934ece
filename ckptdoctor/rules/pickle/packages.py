"""Names the packages that leave objects of theirs in checkpoints."""

from __future__ import annotations

from ckptdoctor.facts.globals import package

# packages that leave objects of theirs in checkpoints: the name to import → the name to install
PACKAGES: dict[str, str] = {
    "pytorch_lightning": "pytorch-lightning",
    "lightning": "lightning",
    "lightning_fabric": "lightning-fabric",
    "torchmetrics": "torchmetrics",
    "omegaconf": "omegaconf",
    "hydra": "hydra-core",
    "yacs": "yacs",
    "easydict": "easydict",
    "addict": "addict",
    "ml_collections": "ml-collections",
    "munch": "munch",
    "box": "python-box",
    "mmengine": "mmengine",
    "mmcv": "mmcv",
    "mmdet": "mmdet",
    "detectron2": "detectron2",
    "fvcore": "fvcore",
    "fairseq": "fairseq",
    "torch_xla": "torch-xla",
    "transformers": "transformers",
    "diffusers": "diffusers",
    "accelerate": "accelerate",
    "peft": "peft",
    "deepspeed": "deepspeed",
    "megatron": "megatron-core",
    "transformer_engine": "transformer-engine",
    "apex": "apex",
    "bitsandbytes": "bitsandbytes",
    "timm": "timm",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "torchtext": "torchtext",
    "torch_geometric": "torch-geometric",
    "ultralytics": "ultralytics",
    "monai": "monai",
    "nemo": "nemo-toolkit",
    "speechbrain": "speechbrain",
    "espnet": "espnet",
    "stable_baselines3": "stable-baselines3",
    "gym": "gym",
    "gymnasium": "gymnasium",
    "ray": "ray",
    "wandb": "wandb",
    "pandas": "pandas",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "spacy": "spacy",
    "composer": "mosaicml",
    "streaming": "mosaicml-streaming",
}


def to_install(path: str) -> str | None:
    """Return what to install for a class or function of a known package.

    It is None for the user's own code and unknown ones.
    """
    return PACKAGES.get(package(path))
