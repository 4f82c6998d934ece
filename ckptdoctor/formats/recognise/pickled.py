"""Recognises plain pickles, which Python, NumPy, joblib or scikit-learn wrote without torch.save."""

from __future__ import annotations

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.magic import Found
from ckptdoctor.regex import regex

_PROTOCOLS = range(2, 6)

# a text that is noted for later use, and a number, in protocol 0
_TEXT = rb"(?:V[^\n]*|S(?:'[^\n]*'|\"[^\n]*\"))\np\d+\n"
_NUMBER = rb"(?:[IF]-?\d[\d.e+-]*|L-?\d+L?)\n"

# how pickles of protocols 0 and 1 begin: a dict, a list, a tuple, an object or a text
_OLD = regex(
    rb"\(+(?:dp|lp|t?p)\d|\(i?[a-z_][\w.]*\n|c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n|[\]}]q\x00|\(dq\x00"
    rb"|" + _TEXT + rb"\.|\(+(?:" + _TEXT + rb"|" + _NUMBER + rb")"
)

# the opcodes that need nothing on the stack: a stream may begin with each of them
_FIRST = frozenset(bytes((code,)) for code in b"(cSVFILNPXTUGJKMBC]})\x80\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x95\x96\x97")
_DOTTED = regex(r"[A-Za-z_]\w*(?:\.\w+)+")
_MOST_FOLLOWED = 16 << 20


# the index of a distributed checkpoint names this in its first bytes: a pickle that is of no use on its own
_DISTRIBUTED = b"torch.distributed.checkpoint.metadata"
_GUIDANCE = (
    "Its tensors are in the .distcp files next to it: "
    "torch.distributed.checkpoint.format_utils.dcp_to_torch_save joins the folder."
)


def recognise_pickle(source: Source, head: bytes) -> Found | None:
    """Return a pickle that says where the tensors of a folder are; other pickles are read."""
    if begins(source, head) and _DISTRIBUTED in head:
        return Found("index of a torch distributed checkpoint", _GUIDANCE)
    return None


def is_pickle(source: Source, head: bytes) -> bool:
    """Return whether a file is a pickle to be read, and not one that says where the tensors of a folder are."""
    return begins(source, head) and _DISTRIBUTED not in head


def begins(source: Source, head: bytes) -> bool:
    """Return whether a file begins as a pickle does.

    By its first opcodes, and for protocols 0 and 1, which are text, by its end as well, or by a call that it makes.
    """
    framed = len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS
    if framed or (_OLD.match(head) is not None and source.read(source.size - 1, 1) == b"."):
        return True
    return head[:1] in _FIRST and _calls(source, head)


def may_begin(head: bytes) -> bool:
    """Return whether a file whose first bytes these are may be a pickle.

    One of protocols 0 and 1 shows at its end only.
    """
    from ckptdoctor.pickles.decode import follow

    return head[:1] == b"\x80" or _OLD.match(head) is not None or (head[:1] in _FIRST and follow(head).calls > 0)


def _calls(source: Source, head: bytes) -> bool:
    """Return whether an unpickler that is given this file comes to a call, whatever it meets later."""
    from ckptdoctor.errors import TruncatedError
    from ckptdoctor.pickles.decode import follow

    followed = follow(head)
    if not followed.calls and isinstance(followed.error, TruncatedError) and source.size > len(head):
        followed = follow(source.read(0, min(source.size, _MOST_FOLLOWED)))  # a long text comes first
    if followed.error is not None and not followed.calls:
        return False
    return any(_DOTTED.fullmatch(f"{use.module}.{use.name}") for use in followed.names)
