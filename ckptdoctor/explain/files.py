"""Files that are not there, or may not be read."""

from __future__ import annotations

from ckptdoctor.explain.message import Message, Way, Weight

_ENDING = r"['\"]?[^'\"]{0,300}?\.(?:pt|pth|ckpt|bin|tar|pkl|safetensors)(?![A-Za-z0-9])"

MESSAGES = (
    Message(
        "",
        ("No such file or directory:",),
        "the file is not where the program looks for it (a relative path begins where the program was started)",
        (Way("look for it with", "ls -l FILE"),),
        then=_ENDING,
        weight=Weight.OUTCOME,
    ),
    Message(
        "",
        ("open file failed because of errno 2 on fopen",),
        "the file is not where the program looks for it (a relative path begins where the program was started)",
        (Way("look for it with", "ls -l FILE"),),
    ),
    Message(
        "",
        ("The provided filename",),
        "the file is not where the program looks for it (a relative path begins where the program was started)",
        (Way("look for it with", "ls -l FILE"),),
        then=r".{1,500}?doesnotexist",
    ),
    Message(
        "",
        ("Permission denied:",),
        "the file may not be read by whoever runs the program",
        (Way("look at its owner and mode", "ls -l FILE"),),
        then=_ENDING,
    ),
    Message(
        "",
        ("No space left on device",),
        "the disk is full; a checkpoint that was being written is not whole",
        (Way("see whether it is", "ckptdoctor check FILE"),),
        among=("torch.save", "save_file", "save_pretrained", "serialization"),
    ),
    Message(
        "F012",
        ("invalid hash value (expected",),
        "the file has another SHA-256 than its name promises: the download broke off or was changed",
        (Way("see whether it does", "ckptdoctor check --deep FILE"),),
    ),
    Message(
        # openai-whisper 20230314 to 20250625, whisper/__init__.py _download; whisperx/vad.py; OpenAI's clip/clip.py
        "F012",
        ("SHA256 checksum does not",),
        "the downloaded file has another SHA-256 than the program knows for it: the download broke off, a page of an"
        " error came instead, or the file at that address is a new one, for which the program is too old",
        (Way("see what came", "ckptdoctor check FILE"), Way("then", "delete it and download it again")),
        among=("whisper", "clip", "download"),
    ),
    Message(
        "",
        ("safetensors is not installed",),
        "the file is in the safetensors format, and the library for it is not installed",
        (Way("install it", "pip install safetensors"),),
    ),
)
