"""Opens ``hf://owner/name/file``, a file of the Hugging Face Hub, at the address from which its server hands it out.

The address is made here rather than by ``HfFileSystem``, which asks the server about the repository and the file
before it reads, and is redirected anew for each part: three requests become eight.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote.downloading import taken_apart
from ckptdoctor.remote.http import HttpFile


def open_file(address: str, path: str) -> HttpFile:
    """Return the file at ``hf://…``, called ``path``, with the token that huggingface_hub or HF_TOKEN has, if any."""
    place = taken_apart(address)
    if not place.file:
        raise UnreadableError(
            f"{path} is a repository, not a file: name one of its files, such as "
            f"hf://{place.repository}/model.safetensors."
        )
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    folder = "" if place.kind == "model" else f"{place.kind}s/"
    revision = quote(place.revision, safe="")
    url = f"{endpoint}/{folder}{quote(place.repository)}/resolve/{revision}/{quote(place.file)}"
    token = _token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    hint = "" if token else " If it is private or gated, set HF_TOKEN or run: hf auth login"
    return HttpFile(url, path, headers, hint)


def _token() -> str | None:
    try:
        from huggingface_hub import get_token
    except ImportError:
        return os.environ.get("HF_TOKEN") or None
    return get_token()
