"""An address of the Hugging Face Hub names a repository of a kind, a revision of it, and a file in it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

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
    """The file that ``hf://[datasets/|spaces/]owner/name[@revision]/file`` names; ``file`` may be ""."""
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
