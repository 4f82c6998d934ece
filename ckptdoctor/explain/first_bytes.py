"""Files that are no checkpoint: torch names their first byte, as a character or as a number."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.explain.message import CHECK, Message, Way

_Meaning = tuple[str, str, tuple[Way, ...]]

_LFS: _Meaning = (
    "F001",
    "the file begins as Git LFS pointers do: it is a small text that stands for the real file, left by a clone"
    " without LFS",
    (Way("get the real file", "git lfs pull"), Way("then look again", "ckptdoctor check FILE")),
)
_PAGE: _Meaning = (
    "F002",
    "the file is a web page: the download gave a sign-in, quota or error page instead of the weights",
    (Way("see what the page is", "ckptdoctor check FILE"), Way("then", "download the file again")),
)
_TEXT: _Meaning = (
    "F003",
    "the file is text, not weights: most likely a server's error message was saved in its place",
    (Way("see what it says", "ckptdoctor check FILE"), Way("then", "download the file again")),
)
_PLAIN: _Meaning = (
    "C104",
    "the file is a plain pickle (protocol 4 or 5): pickle.dump or another library wrote it, not torch.save",
    (CHECK,),
)
_OTHER = (
    "the file does not begin as anything that torch.save writes: it is of another format than its name says"
    " (safetensors called .pt, for one), or damaged"
)


def _archive(kind: str, unpack: str) -> _Meaning:
    meaning = f"the file is a compressed archive ({kind}); the checkpoint is inside it"
    return "C102", meaning, (Way("unpack it", unpack), Way("then look again", "ckptdoctor check FILE"))


def _foreign(kind: str) -> _Meaning:
    return "C101", f"the file is {kind}, whatever its name says", (CHECK,)


_OF_BYTE: dict[int, _Meaning] = {
    ord("v"): _LFS,
    ord("<"): _PAGE,
    **dict.fromkeys(map(ord, '{["EIANTU\n\r\t'), _TEXT),
    0x1F: _archive("gzip", "gzip -dc FILE > unpacked.pt"),
    0x42: _archive("bzip2", "bzip2 -dc FILE > unpacked.pt"),
    0x37: _archive("7-Zip", "7z x FILE"),
    0xFD: _archive("xz", "xz -dc FILE > unpacked.pt"),
    0x93: _foreign("a NumPy array (.npy)"),
    0x89: _foreign("HDF5, as Keras writes it"),
    0x47: _foreign("probably GGUF, which llama.cpp reads and torch does not"),
    0x95: _PLAIN,
}


def _quoted(byte: int) -> str:
    """The byte as the pickle module shows it."""
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


def _named() -> Iterator[Message]:
    for byte, (code, meaning, ways) in _OF_BYTE.items():
        yield Message(code, (f"invalid load key, '{_quoted(byte)}'",), meaning, ways)
        yield Message(code, (f"Unsupported operand {byte}",), meaning, ways, then=r"(?!\d)")


# the last two are for every other byte: of messages at one place the first of the table is meant
MESSAGES = (
    *_named(),
    Message("C101", ("invalid load key, '",), _OTHER, (CHECK,), then=r"(?:\\x[0-9a-f]{2}|.?)'", also=("F014", "F003")),
    Message("C101", ("Unsupported operand",), _OTHER, (CHECK,), then=r"\d{1,3}(?!\d)", also=("F014", "F003", "C104")),
    Message(
        "C101",
        ("could not find MARK", "unpickling stack underflow"),
        "the bytes are no pickle: a safetensors file called .pt says so too, and so does a damaged file",
        (CHECK,),
        also=("F014",),
    ),
)
