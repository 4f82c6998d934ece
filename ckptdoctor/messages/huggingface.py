"""What transformers and diffusers say around a failure. Lists of keys are in ``load_error``."""

from __future__ import annotations

from ckptdoctor.messages.message import CHECK, Message, Way, Weight

MESSAGES = (
    Message(
        "F001",
        ("You seem to have cloned a repository without having git-lfs installed",),
        "the file is a Git LFS pointer: a small text that stands for the real file",
        (Way("get the real file", "git lfs install && git lfs pull"), Way("then look again", "ckptdoctor check FILE")),
    ),
    Message(
        "",
        ("Due to a serious vulnerability issue in `torch.load`",),
        "transformers reads pickles (.bin, .pt) with torch 2.6 or later only; safetensors files it reads with any",
        (Way("upgrade torch", 'pip install --upgrade "torch>=2.6"'), CHECK),
    ),
    Message(
        "",
        ("Unable to load weights from pytorch checkpoint file for", "Unable to load weights from checkpoint file for"),
        "transformers could not read the weights file; that it might be TensorFlow's is only its guess",
        (CHECK,),
        weight=Weight.OUTCOME,
        also=("F001", "F002", "F004", "F005", "F014"),
    ),
    Message(
        "X801",
        ("does not appear to have files named",),
        "the index names shards that are not there: the download is not complete",
        (Way("download the rest, then", "ckptdoctor check FILE"),),
    ),
    Message(
        "X801",
        ("does not appear to have a file named", "Error no file named"),
        "there is no weights file of a name that the loader knows where it looked: the download is not complete, or"
        " the path is another",
        (Way("look into the directory", "ls"),),
        then=r"[`'\"]?(?P<name>[\w.,\[\]'-]{1,300})",
        weight=Weight.OUTCOME,
    ),
    Message(
        "X801",
        ("No such file or directory:",),
        "a shard of the checkpoint is not there: the download is not complete",
        (Way("download it again, then", "ckptdoctor check FILE"),),
        then=r"['\"]?[^'\"\n]{0,300}?-\d{5}-of-\d{5}\.(?:safetensors|bin)",
    ),
)
