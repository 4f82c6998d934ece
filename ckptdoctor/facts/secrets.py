"""Texts in a checkpoint that say more than was meant: keys and passwords, and home folders with their users' names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Opaque, Sequence, children
from ckptdoctor.facts.outline import has_only_versions, is_flat
from ckptdoctor.noun import noun

# characters of one text that are looked at, and of all texts together
_LONGEST = 1 << 20
_MOST = 64 << 20
_TOLD = 100

# what each looks like, by the prefixes that their issuers publish so that leaks can be found
_SECRETS: tuple[tuple[str, str], ...] = (
    ("Hugging Face token", r"\bhf_[A-Za-z]{34}\b|\bapi_org_[A-Za-z]{34}\b"),
    ("AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("GitHub token", r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_[A-Za-z0-9_]{60,}\b"),
    ("GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}\b"),
    ("Google API key", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    ("Slack token", r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    ("OpenAI key", r"\bsk-[A-Za-z0-9_-]{10,200}T3BlbkFJ[A-Za-z0-9_-]{10,}"),
    ("Anthropic key", r"\bsk-ant-[A-Za-z0-9_-]{40,}"),
    ("private key", r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"),
    ("password in an address", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,64}:[^\s/:@]{3,128}@[\w.-]+"),
)
_SECRET = re.compile("|".join(f"(?P<s{number}>{pattern})" for number, (_, pattern) in enumerate(_SECRETS)))
# any of these must be in a text that one of the patterns fits: most texts have none
_HINTS = ("hf_", "api_org_", "AKIA", "ASIA", "gh", "github_pat_", "glpat-", "AIza", "xox", "sk-", "PRIVATE KEY", "://")

# keys under which Weights & Biases and others keep a key that has no prefix of its own
_KEY_NAMES = re.compile(
    r"(?:wandb|wb|comet|neptune|api|secret|access)_?(?:api_?)?(?:key|token)$|password$", re.IGNORECASE
)
_PLAIN_KEY = re.compile(r"[0-9a-fA-F]{40}|[A-Za-z0-9+/_=-]{32,200}")

_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:[\\/]+Users[\\/]+)(?P<user>[^\\/\s\"':;,]{1,64})")
_SHARED = frozenset({"shared", "public", "default", "ubuntu", "user", "root", "runner", "work", "jovyan", "ec2-user"})


@noun
class Leak:
    """A text that tells more than it should: where, what kind of thing is in it, and whether plain data holds it.

    ``metadata`` is the name of the entry where it stands in the metadata of a safetensors file. The secret itself is
    not kept.
    """

    path: KeyPath
    kind: str
    plain: bool
    metadata: str | None = None


def secrets(checkpoint: Checkpoint) -> list[Leak]:
    """The first hundred texts that hold a key, a token or a password."""
    found: list[Leak] = []
    for path, text, plain, metadata in _texts(checkpoint):
        kind = _kind(text) or _by_name(path, metadata, text)
        if kind:
            found.append(Leak(path, kind, plain, metadata))
            if len(found) >= _TOLD:
                break
    return found


def home_folders(checkpoint: Checkpoint) -> list[Leak]:
    """The first hundred texts that hold a folder of a user's own, with the user's name."""
    found: list[Leak] = []
    for path, text, plain, metadata in _texts(checkpoint):
        if "home/" not in text and "Users" not in text:
            continue
        match = _HOME.search(text)
        if match is not None and match["user"].lower() not in _SHARED:
            found.append(Leak(path, "home folder", plain, metadata))
            if len(found) >= _TOLD:
                break
    return found


def _kind(text: str) -> str:
    if not any(hint in text for hint in _HINTS):
        return ""
    match = _SECRET.search(text)
    return _SECRETS[int((match.lastgroup or "s0")[1:])][0] if match is not None else ""


def _by_name(path: KeyPath, metadata: str | None, text: str) -> str:
    name = metadata if metadata is not None else path[-1] if path else ""
    if isinstance(name, str) and _KEY_NAMES.search(name) and _PLAIN_KEY.fullmatch(text):
        return f"text called “{name}”"
    return ""


def _texts(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, str, bool, str | None]]:
    """Every text with its path: whether it lies in plain dicts and lists, and its name if it is metadata."""
    left = _MOST
    for name, text in (checkpoint.metadata or {}).items():
        left -= min(len(text), _LONGEST)
        if left < 0:
            return
        yield (), text[:_LONGEST], True, name
    if is_flat(checkpoint) and has_only_versions(checkpoint):  # most files: names of tensors are no texts of anybody's
        return
    stack: list[tuple[KeyPath, Node, bool]] = [((), checkpoint.tree, True)]
    while stack:
        path, node, plain = stack.pop()
        if isinstance(node, str):
            left -= min(len(node), _LONGEST)
            if left < 0:
                return
            yield path, node[:_LONGEST], plain, None
            continue
        inside = plain and isinstance(node, (Mapping, Sequence)) and node.kind in _PLAIN
        below = [((*path, part), child, inside) for part, child in children(node) if isinstance(child, _TELLING)]
        stack.extend(reversed(below))


_TELLING = (str, Mapping, Sequence, Opaque)
_PLAIN = frozenset({"dict", "list", "collections.OrderedDict"})
