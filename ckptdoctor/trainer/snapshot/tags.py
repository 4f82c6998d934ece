"""Which device tags there are. Knows nothing of torch, so that a wrong one is refused before torch starts."""

from __future__ import annotations

import re

from ckptdoctor.errors import UsageError

WITHOUT_STORAGE = frozenset({"xla", "maia", "mtia"})
"""Backends whose tensors have no storage to tag (torch.Tensor._reduce_ex_internal)."""

# backends that torch.save has written tags of: torch's own and those of plug-ins (Ascend, Cambricon, Moore Threads …)
_INDEXED = ("cuda", "xpu", "hpu", "npu", "mlu", "musa", "gcu", "privateuseone", *sorted(WITHOUT_STORAGE))
_TAG = re.compile(rf"cpu|mps|(?:{'|'.join(_INDEXED)})(?::(?:0|[1-9]\d{{0,2}}))?")


def check_tag(tag: str) -> None:
    """Raise UsageError unless ``tag`` is one that torch.save writes somewhere."""
    if not _TAG.fullmatch(tag) or tag in WITHOUT_STORAGE:
        raise UsageError(
            f"--tag-device {tag} is no device that torch.save writes: use cpu, cuda, cuda:N, mps, xla:N"
            " or another backend's, such as npu:0 or hpu."
        )
