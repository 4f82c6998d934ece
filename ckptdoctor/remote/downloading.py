"""Says how a remote file is downloaded, for everything that cannot be done from afar."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from ckptdoctor.errors import UsageError
from ckptdoctor.remote.addresses import is_address, shown
from ckptdoctor.shell import word


def require_local(path: str) -> None:
    """Raise UsageError, with the command that downloads it, for what is not on this machine."""
    if not is_address(path):
        return
    local = path_of(path)
    if local is not None:
        raise UsageError(f"{path} is on this machine: give its path, {local}.")
    name = shown(path)
    raise UsageError(f"{name} is not on this machine, so it cannot be repaired there: {download_first(name)}")


def path_of(address: str) -> str | None:
    """Return the local path that a ``file://`` address stands for, or None for any other."""
    scheme, _, rest = address.partition("://")
    if scheme.lower() != "file":
        return None
    path = rest.removeprefix("localhost")
    return path if "%" not in path else unquote(path)


def download_first(address: str) -> str:
    """Return the end of a sentence that says what to do; ``address`` is one without secrets."""
    return f"download it first ({command(address)})."


def command(address: str) -> str:
    """Return the command that brings the file here, into the current folder."""
    scheme, _, rest = address.partition("://")
    if scheme == "s3":
        return f"aws s3 cp {word(address)} ."
    if scheme in ("gs", "gcs"):
        return f"gcloud storage cp {word(f'gs://{rest}')} ."
    if scheme == "hf":
        place = taken_apart(address)
        kind = "" if place.kind == "model" else f" --repo-type {place.kind}"
        return f"hf download {word(place.repository)} {word(place.file)}{kind} --local-dir ."
    if scheme in ("http", "https"):
        return f"curl -fLO {word(address)}"
    return f"python -c \"import fsspec; fsspec.filesystem({scheme!r}).get({rest!r}, '.')\""


# ---- what an address of the Hugging Face Hub names: a repository of a kind, a revision of it, and a file in it


_KINDS = {"datasets": "dataset", "spaces": "space"}

# revisions that may stand there with their slashes, as huggingface_hub has it (SPECIAL_REFS_REVISION_REGEX)
_REVISION = re.compile(r"@(refs/(?:convert|pr)/[^/]+|[^/@]+)")


class HubFile(NamedTuple):
    """A file in a repository of the Hub; ``kind`` is "model", "dataset" or "space"."""

    kind: str
    repository: str
    revision: str
    file: str


def taken_apart(address: str) -> HubFile:
    """Return the file that ``hf://[datasets/|spaces/]owner/name[@revision]/file`` names; ``file`` may be ""."""
    rest = address.partition("://")[2].strip("/")
    kind = "model"
    first, _, behind = rest.partition("/")
    if first in _KINDS:
        kind, rest = _KINDS[first], behind
    found = _REVISION.search(rest)
    if found is not None:
        return HubFile(kind, rest[: found.start()], unquote(found[1]), rest[found.end() :].strip("/"))
    steps = rest.split("/")
    # a repository from before owners were needed ("gpt2") leaves one step for the file, which has a suffix
    own = 1 if len(steps) == 2 and "." in steps[1] else 2
    return HubFile(kind, "/".join(steps[:own]), "main", "/".join(steps[own:]))
