"""Recognises addresses such as ``https://host/model.pt``, and shows them without what is secret."""

from __future__ import annotations

import re

# compiled when the first address comes: paths do not wait for that
# a scheme as RFC 3986 writes it, but of two letters at least: C:// is a drive
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+://"
_PARTS = rf"({_SCHEME})(?:[^/?#]*@)?([^?#]*)(\?[^#]*)?(?:#.*)?"

# queries that only choose what is meant: everything else may be a signature or a token
_HARMLESS = r"\?(?:download|versionId|raw|dl)(?:=[\w.-]*)?"


def is_address(path: str) -> bool:
    """Return whether ``path`` is not a local path, but names the protocol by which bytes are fetched."""
    scheme, found, _ = path.partition("://")
    if not found:
        return False
    plain = len(scheme) > 1 and scheme.isascii() and scheme.isalnum() and scheme[0].isalpha()  # nearly all
    return plain or re.match(_SCHEME, path) is not None


def shown(path: str) -> str:
    """Return the path for a message: an address without user names, passwords and signatures; any other as it is."""
    if "://" not in path or not ("@" in path or "?" in path or "#" in path):
        return path
    match = re.fullmatch(_PARTS, path, re.DOTALL)
    if match is None:
        return path
    scheme, rest, query = match.groups()
    return f"{scheme}{rest}{query if query and re.fullmatch(_HARMLESS, query, re.ASCII) else ''}"
