"""Reads the hashes of whole files that servers publish in the headers of their answers, and file systems in listings.

What is read here are claims of whoever serves the file. An ETag may be anything: one that is not the hash of the file
shows nothing, and one that is proves it, for no other bytes have the same.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any

from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

_HEXADECIMAL = regex(r"(?:[0-9a-f]{64}|[0-9a-f]{32})")
_STRUCTURED = regex(r"(?i)(?:^|[,\s])(sha-256|md5)=:?([A-Za-z0-9+/]+={0,2}):?(?=$|[,\s])")
_LENGTHS = {32: "sha256", 16: "md5"}  # bytes of a digest


@noun
class Published:
    """The SHA-256 or MD5 of a whole file, in hexadecimal, and ``by`` what it is published."""

    algorithm: str
    digits: str
    by: str

    @property
    def kind(self) -> str:
        """What people call it."""
        return {"sha256": "SHA-256", "md5": "MD5"}[self.algorithm]


def in_headers(headers: Message) -> Iterator[Published]:
    """Yield what the headers of one answer publish of the whole file.

    X-Linked-ETag is what the Hugging Face Hub says of a file in Git LFS: its oid, which is the SHA-256. S3 gives the
    MD5 of an object that came in one part as its ETag. Repr-Digest is RFC 9530, Digest RFC 3230, and x-goog-hash what
    Google Cloud Storage sends. A Content-Digest would be that of the part that was sent.
    """
    for name in ("X-Linked-ETag", "ETag"):
        yield from _tag(headers.get(name, ""), name)
    for name in ("Repr-Digest", "Digest", "x-goog-hash"):
        for kind, text in _STRUCTURED.findall(headers.get(name, "")):
            yield from _encoded(text, name, {"sha-256": "sha256", "md5": "md5"}[kind.lower()])


def in_listing(info: Mapping[str, Any]) -> Iterator[Published]:
    """Yield what a file system of fsspec says of a file: S3 has an ETag, Google Cloud Storage an MD5 in base64."""
    for name in ("ETag", "etag"):
        if isinstance(info.get(name), str):
            yield from _tag(info[name], "ETag")
    if isinstance(info.get("md5Hash"), str):
        yield from _encoded(info["md5Hash"], "md5Hash", "md5")


def _tag(text: str, by: str) -> Iterator[Published]:
    digits = text.strip().strip('"').lower()  # a weak one (W/"…") is not about bytes, and is no digest
    if _HEXADECIMAL.fullmatch(digits):
        yield Published(_LENGTHS[len(digits) // 2], digits, by)


def _encoded(text: str, by: str, algorithm: str) -> Iterator[Published]:
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:  # whatever it is, it is not a digest
        return
    if _LENGTHS.get(len(raw)) == algorithm:
        yield Published(algorithm, raw.hex(), by)
