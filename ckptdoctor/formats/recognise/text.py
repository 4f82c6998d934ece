"""Recognises text in the place of a checkpoint: Git LFS pointers, web pages, error messages of servers, plain files."""

from __future__ import annotations

import os.path
import re

from ckptdoctor.checkpoint import Note, NoteKind, Source
from ckptdoctor.formats.recognise.magic import Found, shortened
from ckptdoctor.formats.suffixes import SAFETENSORS, TORCH
from ckptdoctor.regex import regex

_LFS = b"version https://git-lfs.github.com/spec/"

# an answer of a server is no longer than this; JSON up to the second is parsed
_LONGEST_BODY = 8192
_LONGEST_JSON = 1 << 20
_TITLE_WITHIN = 1 << 16

_PAGE = regex(r"<(?:!doctype\s+html|html|head|body|script|meta|title|center|h1)\b", re.IGNORECASE)
_TITLE = regex(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_XML_FIELD = regex(r"<(Code|Message|Details)>([^<]*)<")
_ERROR_FIELDS = ("error", "errors", "message", "detail", "error_description", "msg", "Message", "error_message")

# what servers say where they do not send a file
_SERVER_WORDS = regex(
    r"not found|denied|forbidden|unauthori[sz]ed|invalid (?:user|credential|token|password|request)|gated|"
    r"too many requests|rate limit|quota|unavailable|bad (?:gateway|request)|internal server error|timed? ?out|expired|"
    r"access to|permission|no such|does not exist|please (?:log|sign)|upstream connect|error",
    re.IGNORECASE,
)
_FEW_LINES = 3

# files that are meant to be text, whatever they say
_TEXTS = frozenset({".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt", ".md", ".json", ".jsonl", ".log", ".sh"})

_AGAIN = "A server sent it instead of the file: download it again."


def recognise_text(source: Source, head: bytes) -> Found | None:
    """Return text of any kind, or None when the first bytes are not text."""
    if head.startswith(_LFS):
        return _pointer(head)
    text = _decoded(head, whole=source.size == len(head))
    if text is None:
        return None
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith("<") and (_PAGE.match(stripped) or _mentions_page(stripped)):
        return _page(source, text)
    if stripped.startswith(("{", "[")):
        return _json(source, stripped)
    if stripped.startswith(("<?xml", "<Error")):
        return _xml(stripped)
    return _plain(source, stripped)


def _decoded(head: bytes, whole: bool) -> str | None:
    """Return the text that the first bytes of a file are, or None when they are none. The last character may be cut."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = head[: len(head) // 2 * 2].decode("utf-16", "replace")
    else:
        try:
            text = head.decode("utf-8")
        except UnicodeDecodeError as error:
            if whole or error.start < len(head) - 3:
                return None
            text = head[: error.start].decode("utf-8")
    controls = sum(char < " " and char not in "\t\n\r\f\x1b" for char in text)
    return None if controls or not text.strip("\ufeff").strip() else text


def _pointer(head: bytes) -> Found:
    fields = dict(line.partition(" ")[::2] for line in head.decode("ascii", "replace").splitlines()[:20])
    size, oid = fields.get("size", ""), fields.get("oid", "").removeprefix("sha256:")
    real = f" of {int(size):,} bytes" if size.isascii() and size.isdigit() and len(size) < 20 else ""
    known = f" (sha256 {shortened(oid, 64)})" if oid else ""
    message = f"a Git LFS pointer is here instead of the file{real}{known}"
    guidance = "Get the file itself: git lfs install, then git lfs pull -I FILE."
    return Found("Git LFS pointer", guidance, (Note(NoteKind.LFS_POINTER, message, offset=0),))


def _mentions_page(text: str) -> bool:
    return re.search(r"<!doctype\s+html|<html\b", text[:1024], re.IGNORECASE) is not None


def _page(source: Source, text: str) -> Found:
    if not _TITLE.search(text):  # pages that begin with scripts have it further down
        text = source.read(0, min(source.size, _TITLE_WITHIN)).decode("utf-8", "replace")
    found = _TITLE.search(text)
    title = shortened(found[1]) if found else ""
    message = f'a web page called "{title}" is here instead of the file' if title else "a web page without a title"
    return Found("web page", _AGAIN, (Note(NoteKind.HTML_PAGE, message, offset=0),))


def _xml(text: str) -> Found:
    """Return XML: the error of a storage service (S3, Azure, Google), or some document."""
    fields = {name: shortened(value) for name, value in _XML_FIELD.findall(text[:_LONGEST_BODY])}
    said = ": ".join([fields[name] for name in ("Code", "Message", "Details") if fields.get(name)])
    if said and "<Error" in text[:1024]:
        return Found("XML document", _AGAIN, (_body(said),))
    return Found("XML document", "It is text, not a checkpoint.")


def _json(source: Source, text: str) -> Found:
    if source.size > _LONGEST_JSON:
        named = '"weight_map"' in text
        return Found("JSON file", "It is an index of shards." if named else "It is text, not a checkpoint.")
    from json import loads

    try:
        value = loads(source.read(0, source.size))
    except (ValueError, RecursionError):
        return _plain(source, text)
    if isinstance(value, dict) and "weight_map" in value:
        guidance = "It lists the tensors of each shard: open the shards, which are next to it."
        return Found("Hugging Face shard index", guidance)
    if isinstance(value, dict) and ("model_type" in value or "architectures" in value):
        return Found("JSON file", "It is the configuration of a model: its weights are in another file.")
    said = _said(value) if source.size <= _LONGEST_BODY and _suffix(source) not in _TEXTS else ""
    if said:
        return Found("JSON file", _AGAIN, (_body(said),))
    return Found("JSON file", "It is text, not a checkpoint.")


def _said(value: object) -> str:
    """Return the text in the error field of an answer."""
    if not isinstance(value, dict):
        return ""
    for field in _ERROR_FIELDS:
        said = value.get(field)
        if isinstance(said, list) and said:
            said = said[0]
        if isinstance(said, dict):
            said = _said({name: inner for name, inner in said.items() if not isinstance(inner, dict)})
        if isinstance(said, str) and said.strip():
            return said
    return ""


def _plain(source: Source, text: str) -> Found:
    """Return a server's message where it is short, and reads like one or has a checkpoint's name.

    Otherwise return a text.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    short = source.size <= _LONGEST_BODY and len(lines) <= _FEW_LINES
    suffix = _suffix(source)
    if short and (suffix in TORCH or suffix in SAFETENSORS or (_SERVER_WORDS.search(text) and suffix not in _TEXTS)):
        return Found("text file", _AGAIN, (_body(lines[0]),))
    return Found("text file", f'It is text, not a checkpoint; it begins with "{shortened(lines[0], 60)}".')


def _suffix(source: Source) -> str:
    return os.path.splitext(source.path)[1].lower()


def _body(said: str) -> Note:
    return Note(NoteKind.TEXT_BODY, f'a message is here instead of the file: "{shortened(said)}"', offset=0)
