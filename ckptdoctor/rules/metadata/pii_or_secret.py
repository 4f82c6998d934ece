"""The file holds a token, a password or a private key, or the name of a user in a path.

Meaning
    Arguments, environment variables or a configuration were saved with the weights, and with them values that were
    meant only for the training script.

Why it matters
    Whoever gets the file gets the token, and with it the account. Names in paths reveal who trained it and where.

Symptoms
    Nothing.

Detection
    Every text outside of tensors is searched for the token formats of known issuers (Hugging Face, AWS, GitHub, Google,
    Slack, OpenAI and others), for private keys, for passwords in addresses, and for home folders. The secrets
    themselves are never printed. Home folders are info; a secret is a warning.

Repair
    Revoke the token: every copy of the file has it. ``ckptdoctor fix FILE --select M977 --unsafe-fixes`` writes a copy
    with "(removed)" in place of each text with a secret. Unsafe: the text is lost in the new file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Opaque, Sequence, children, show_path
from ckptdoctor.edits import Edit, Fix, Replace, Safety, SetMetadata
from ckptdoctor.findings import Location, Severity
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import has_only_versions, is_flat, texts

_REMOVED = "(removed)"
_MODEL = {"w": T((3,))}
_TOKEN = "hf_" + "abcdefghijklmnopq" * 2
SICK = (
    Example("a token in the arguments", {"model": _MODEL, "args": {"lr": 0.1, "hub_token": _TOKEN}}),
    Example("a home folder", {"model": _MODEL, "args": {"data": "/home/maria/imagenet"}}),
    Example(
        "a password in the metadata",
        _MODEL,
        "safetensors",
        ".safetensors",
        metadata={"format": "pt", "tracker": "https://maria:correcthorse@tracking.example.org/runs"},
    ),
)
HEALTHY = (
    Example("harmless arguments", {"model": _MODEL, "args": {"lr": 0.1, "data": "/data/imagenet"}}),
    Example("the name of a token", {"model": _MODEL, "args": {"hub_token": "<HUB_TOKEN>", "api_key": None}}),
)


@rule("M977", "pii-or-secret", Severity.WARNING, when=texts)
def pii_or_secret(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report texts that tell more than was meant."""
    found, homes = _leaks(checkpoint)
    if found:
        yield Problem(
            message=f"the file holds {_kinds(found)} ({_places(found)})",
            cause="It was saved with the arguments or the configuration. Whoever gets the file gets it.",
            advice="Revoke it where it was issued: every copy of this file has it. Then save without it.",
            keys=_keys(found),
            location=_where(found),
            fix=_redaction(found),
        )
    if homes:
        yield Problem(
            message=f"{wording.plural(len(homes), 'text')} with the home folder of a user ({_places(homes)})",
            cause="Paths that were saved with the arguments reveal who trained the model, and where.",
            advice="Save relative paths, or none, before you publish the file.",
            keys=_keys(homes),
            location=_where(homes),
            severity=Severity.INFO,
        )


def _kinds(found: list[Leak]) -> str:
    counts: dict[str, int] = {}
    for leak in found:
        counts[leak.kind] = counts.get(leak.kind, 0) + 1
    return wording.listed([_counted(kind, number) for kind, number in counts.items()])


def _counted(kind: str, number: int) -> str:
    if number > 1:
        return f"{number:,} × {kind}"
    return f"{'an' if kind[0] in 'AEIO' else 'a'} {kind}"


def _places(found: list[Leak]) -> str:
    names = [show_path(each.path) if each.metadata is None else f'metadata "{each.metadata}"' for each in found]
    return wording.abridged(names)


def _keys(found: list[Leak]) -> tuple[KeyPath, ...]:
    return tuple([each.path for each in found if each.metadata is None])


def _where(found: list[Leak]) -> Location:
    return Location(path=found[0].path) if found[0].metadata is None else Location()


def _redaction(found: list[Leak]) -> Fix | None:
    """Return the fix that replaces each, where all of them are in plain data."""
    if not all(each.plain for each in found):
        return None
    edits: list[Edit] = [
        Replace(each.path, _REMOVED) if each.metadata is None else SetMetadata(each.metadata, _REMOVED)
        for each in found
    ]
    title = f'put "{_REMOVED}" in place of {wording.plural(len(found), "text")}'
    return Fix(title, tuple(edits), Safety.UNSAFE, "--select M977")


# ---- the texts of a checkpoint that say more than was meant


_LONGEST = 1 << 20  # characters of one text that are looked at
_MOST = 64 << 20  # characters of all texts together
_TOLD = 100  # texts that a finding is about

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
_SECRET = regex("|".join(f"(?P<s{number}>{pattern})" for number, (_, pattern) in enumerate(_SECRETS)))
# any of these must be in a text that one of the patterns fits: most texts have none
_HINTS = ("hf_", "api_org_", "AKIA", "ASIA", "gh", "github_pat_", "glpat-", "AIza", "xox", "sk-", "PRIVATE KEY", "://")

# keys under which Weights & Biases and others keep a key that has no prefix of its own
_KEY_NAMES = regex(r"(?:wandb|wb|comet|neptune|api|secret|access)_?(?:api_?)?(?:key|token)$|password$", re.IGNORECASE)
_PLAIN_KEY = regex(r"[0-9a-fA-F]{40}|[A-Za-z0-9+/_=-]{32,200}")

_HOME = regex(r"(?:/home/|/Users/|[A-Za-z]:[\\/]+Users[\\/]+)(?P<user>[^\\/\s\"':;,]{1,64})")
# users who are nobody in particular
_SHARED = frozenset({"shared", "public", "default", "ubuntu", "user", "root", "runner", "work", "jovyan", "ec2-user"})


@noun
class Leak:
    """A text that tells more than it should: where, what kind of thing is in it, and whether plain data holds it.

    ``metadata`` is the name of the entry where it is in the metadata of a safetensors file. The secret itself is
    not kept.
    """

    path: KeyPath
    kind: str
    plain: bool
    metadata: str | None = None


def _leaks(checkpoint: Checkpoint) -> tuple[list[Leak], list[Leak]]:
    """Return the first texts that hold a key, a token or a password, and the first with the home folder of a user."""
    secrets: list[Leak] = []
    homes: list[Leak] = []
    for path, text, plain, metadata in _texts(checkpoint):
        kind = (_by_form(text) or _by_name(path, metadata, text)) if len(secrets) < _TOLD else ""
        if kind:
            secrets.append(Leak(path, kind, plain, metadata))
        if len(homes) < _TOLD and _is_home(text):
            homes.append(Leak(path, "home folder", plain, metadata))
    return secrets, homes


def _is_home(text: str) -> bool:
    """Return whether a text holds a folder of a user's own, with the user's name."""
    if "home/" not in text and "Users" not in text:
        return False
    match = _HOME.search(text)
    return match is not None and match["user"].lower() not in _SHARED


def _by_form(text: str) -> str:
    """Return the kind of secret that a text holds by its own form; "" for none."""
    if not any(hint in text for hint in _HINTS):
        return ""
    match = _SECRET.search(text)
    return _SECRETS[int((match.lastgroup or "s0")[1:])][0] if match is not None else ""


def _by_name(path: KeyPath, metadata: str | None, text: str) -> str:
    """Return the kind of secret that a text is by the name under which it is kept; "" for none."""
    name = metadata if metadata is not None else path[-1] if path else ""
    if isinstance(name, str) and _KEY_NAMES.search(name) and _PLAIN_KEY.fullmatch(text):
        return f'text called "{name}"'
    return ""


_TELLING = (str, Mapping, Sequence, Opaque)  # nodes that are texts, or have some below them
_PLAIN = frozenset({"dict", "list", "collections.OrderedDict"})


def _texts(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, str, bool, str | None]]:
    """Yield every text with its path: whether it is in plain dicts and lists, and its name if it is metadata."""
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
