"""``hf://owner/name/file``: a file of the Hugging Face Hub, by the address from which its server hands it out.

The address is made here rather than by ``HfFileSystem``, which asks the server about the repository and the file
before it reads, and is redirected anew for each part: three requests become eight.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from ckptdoctor.checkpoint.addresses import shown
from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote.http import HttpFile

_KINDS = {"datasets": "dataset", "spaces": "space"}

# revisions that may stand there with their slashes, as huggingface_hub has it (SPECIAL_REFS_REVISION_REGEX)
_REVISION = re.compile(r"@(refs/(?:convert|pr)/[^/]+|[^/@]+)")


class Place(NamedTuple):
    """A file in a repository of the Hub; ``kind`` is "model", "dataset" or "space"."""

    kind: str
    repository: str
    revision: str
    file: str


def open_file(address: str) -> HttpFile:
    """The file at ``hf://…``, with the token that huggingface_hub or HF_TOKEN has, if any."""
    place = taken_apart(address)
    if not place.file:
        raise UnreadableError(
            f"{shown(address)} is a repository, not a file: name one of its files, such as "
            f"hf://{place.repository}/model.safetensors."
        )
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    folder = "" if place.kind == "model" else f"{place.kind}s/"
    revision = quote(place.revision, safe="")
    url = f"{endpoint}/{folder}{quote(place.repository)}/resolve/{revision}/{quote(place.file)}"
    token = _token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    hint = "" if token else " Set HF_TOKEN, or run “hf auth login”, where it is private or gated."
    return HttpFile(url, shown(address), headers, hint)


def taken_apart(address: str) -> Place:
    """What ``hf://[datasets/|spaces/]owner/name[@revision]/file`` names; ``file`` is "" where none is named."""
    rest = address.partition("://")[2].strip("/")
    kind = "model"
    first, _, behind = rest.partition("/")
    if first in _KINDS:
        kind, rest = _KINDS[first], behind
    found = _REVISION.search(rest)
    if found is not None:
        return Place(kind, rest[: found.start()], unquote(found[1]), rest[found.end() :].strip("/"))
    steps = rest.split("/")
    # a repository from before owners were needed ("gpt2") leaves one step for the file, which has a suffix
    own = 1 if len(steps) == 2 and "." in steps[1] else 2
    return Place(kind, "/".join(steps[:own]), "main", "/".join(steps[own:]))


def _token() -> str | None:
    try:
        from huggingface_hub import get_token
    except ImportError:
        return os.environ.get("HF_TOKEN") or None
    return get_token()
