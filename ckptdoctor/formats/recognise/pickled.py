"""Plain pickles: what Python, NumPy, joblib or scikit-learn wrote without torch.save."""

from __future__ import annotations

import re

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.found import Found

_PROTOCOLS = range(2, 6)

# how pickles of protocols 0 and 1 begin: a dict, a list, a tuple or an object
_OLD = re.compile(rb"\((?:dp|lp|t?p)\d|\(i?[a-z_][\w.]*\n|c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n|[\]}]q\x00|\(dq\x00")

_CAUTION = "Unpickling runs whatever the file says, so do it only with files that you trust."

# words in the first bytes, what wrote them, and what reads them
_WRITERS = (
    (
        b"torch.distributed.checkpoint.metadata",
        "index of a torch distributed checkpoint",
        "Its tensors lie in the .distcp files beside it: torch.distributed.checkpoint.format_utils.dcp_to_torch_save "
        "joins the folder.",
    ),
    (b"joblib.numpy_pickle", "joblib pickle", f"joblib.load reads it. {_CAUTION}"),
    (b"sklearn", "scikit-learn pickle", f"joblib.load or pickle.load reads it. {_CAUTION}"),
    (b"paddle", "Paddle pickle", f"paddle.load reads it. {_CAUTION}"),
)
_PLAIN = (
    f"It was written by pickle.dump rather than torch.save: pickle.load reads it. {_CAUTION} "
    "Then save it again with torch.save."
)


def recognise_pickle(source: Source, head: bytes) -> Found | None:
    """A plain pickle, by its first opcodes; for protocols 0 and 1 by the STOP at its end as well."""
    framed = len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS
    old = _OLD.match(head) is not None and source.read(source.size - 1, 1) == b"."
    if not framed and not old:
        return None
    for word, name, guidance in _WRITERS:
        if word in head:
            return Found(name, guidance)
    return Found("pickle", _PLAIN)
