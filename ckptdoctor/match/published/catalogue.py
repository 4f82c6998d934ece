"""Lists every published layout, each in both directions."""

from __future__ import annotations

from ckptdoctor.match.published.clip import CLIP
from ckptdoctor.match.published.convnext import CONVNEXT
from ckptdoctor.match.published.experts import EXPERTS
from ckptdoctor.match.published.gpt import GPT
from ckptdoctor.match.published.llama import LLAMA
from ckptdoctor.match.published.phi import PHI
from ckptdoctor.match.published.qwen import QWEN
from ckptdoctor.match.published.table import Published
from ckptdoctor.match.published.vit import VIT
from ckptdoctor.match.published.whisper import WHISPER

PUBLISHED = (*LLAMA, *QWEN, *PHI, *CLIP, *WHISPER, *CONVNEXT, *VIT, *EXPERTS, *GPT)
WAYS: tuple[Published, ...] = tuple([way for each in PUBLISHED for way in (each, each.backwards())])
