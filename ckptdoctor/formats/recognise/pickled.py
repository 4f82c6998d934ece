"""Plain pickles: what Python, NumPy, joblib or scikit-learn wrote without torch.save."""

from __future__ import annotations

import re

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.found import Found

_PROTOCOLS = range(2, 6)

# a text that is noted for later use, and a number, in protocol 0
_TEXT = rb"(?:V[^\n]*|S(?:'[^\n]*'|\"[^\n]*\"))\np\d+\n"
_NUMBER = rb"(?:[IF]-?\d[\d.e+-]*|L-?\d+L?)\n"

# how pickles of protocols 0 and 1 begin: a dict, a list, a tuple, an object or a text
_OLD = re.compile(
    rb"\(+(?:dp|lp|t?p)\d|\(i?[a-z_][\w.]*\n|c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n|[\]}]q\x00|\(dq\x00"
    rb"|" + _TEXT + rb"\.|\(+(?:" + _TEXT + rb"|" + _NUMBER + rb")"
)

_CAUTION = "Unpickling runs whatever the file says, so do it only with files that you trust."

# the index of a distributed checkpoint names this in its first bytes: a pickle that is of no use on its own
_DISTRIBUTED = b"torch.distributed.checkpoint.metadata"
_GUIDANCE = (
    "Its tensors lie in the .distcp files beside it: torch.distributed.checkpoint.format_utils.dcp_to_torch_save "
    "joins the folder."
)


def recognise_pickle(source: Source, head: bytes) -> Found | None:
    """A pickle that says where the tensors of a folder lie; other pickles are read."""
    if _begins(source, head) and _DISTRIBUTED in head:
        return Found("index of a torch distributed checkpoint", _GUIDANCE)
    return None


def is_pickle(source: Source, head: bytes) -> bool:
    """Whether a file is a pickle to be read: by its first opcodes, and for protocols 0 and 1 by its end as well."""
    return _begins(source, head) and _DISTRIBUTED not in head


def _begins(source: Source, head: bytes) -> bool:
    framed = len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS
    return framed or (_OLD.match(head) is not None and source.read(source.size - 1, 1) == b".")
