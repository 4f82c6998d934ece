"""Every published layout, each in both directions."""

from __future__ import annotations

from ckptdoctor.facts.published.clip import CLIP
from ckptdoctor.facts.published.convnext import CONVNEXT
from ckptdoctor.facts.published.experts import EXPERTS
from ckptdoctor.facts.published.gpt import GPT
from ckptdoctor.facts.published.llama import LLAMA
from ckptdoctor.facts.published.phi import PHI
from ckptdoctor.facts.published.qwen import QWEN
from ckptdoctor.facts.published.table import Published
from ckptdoctor.facts.published.vit import VIT
from ckptdoctor.facts.published.whisper import WHISPER

PUBLISHED = (*LLAMA, *QWEN, *PHI, *CLIP, *WHISPER, *CONVNEXT, *VIT, *EXPERTS, *GPT)
WAYS: tuple[Published, ...] = tuple([way for each in PUBLISHED for way in (each, each.backwards())])
