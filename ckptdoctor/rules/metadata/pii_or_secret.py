"""The file holds a token, a password or a private key, or the name of a user in a path.

What it means
    Arguments, environment variables or a configuration were saved with the weights, and with them what was meant for
    the training script alone.

Why it matters
    Whoever gets the file gets the token, and with it the account. Names in paths say who trained it and where.

What you see
    Nothing.

How it is found
    Every text outside of tensors is searched for the forms that issuers give to their tokens (Hugging Face, AWS,
    GitHub, Google, Slack, OpenAI and others), for private keys, for passwords in addresses, and for home folders. What
    is found is never printed. Home folders are information; a secret is a warning.

Repair
    Revoke the token: every copy of the file has it. ``ckptdoctor fix FILE --select M977 --unsafe-fixes`` writes a copy
    with "(removed)" in the place of each text with a secret. Unsafe: the text is lost in the new file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, show_path
from ckptdoctor.edits import Edit, Fix, Replace, Safety, SetMetadata
from ckptdoctor.facts.secrets import Leak, home_folders, secrets
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import texts

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
    Example("arguments that tell nothing", {"model": _MODEL, "args": {"lr": 0.1, "data": "/data/imagenet"}}),
    Example("the name of a token", {"model": _MODEL, "args": {"hub_token": "<HUB_TOKEN>", "api_key": None}}),
)


@rule("M977", "pii-or-secret", Severity.WARNING, when=texts)
def pii_or_secret(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Texts that tell more than was meant."""
    found = secrets(checkpoint)
    if found:
        yield Problem(
            message=f"the file holds {_kinds(found)} ({_places(found)})",
            cause="It was saved with the arguments or the configuration. Whoever gets the file gets it.",
            advice="Revoke it where it was issued: every copy of this file has it. Then save without it.",
            keys=_keys(found),
            location=_where(found),
            fix=_redaction(found),
        )
    homes = home_folders(checkpoint)
    if homes:
        yield Problem(
            message=f"{wording.count(len(homes), 'text')} with the home folder of a user ({_places(homes)})",
            cause="Paths that were saved with the arguments say who trained the model, and where.",
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
    names = [show_path(each.path) if each.metadata is None else f"metadata “{each.metadata}”" for each in found]
    return wording.abridged(names)


def _keys(found: list[Leak]) -> tuple[KeyPath, ...]:
    return tuple([each.path for each in found if each.metadata is None])


def _where(found: list[Leak]) -> Location:
    return Location(path=found[0].path) if found[0].metadata is None else Location()


def _redaction(found: list[Leak]) -> Fix | None:
    """Another text in the place of each, where all of them lie in plain data."""
    if not all(each.plain for each in found):
        return None
    edits: list[Edit] = [
        Replace(each.path, _REMOVED) if each.metadata is None else SetMetadata(each.metadata, _REMOVED)
        for each in found
    ]
    title = f"put “{_REMOVED}” in the place of {wording.count(len(found), 'text')}"
    return Fix(title, tuple(edits), Safety.UNSAFE, "--select M977")
