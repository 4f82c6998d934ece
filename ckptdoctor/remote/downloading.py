"""Says how a remote file is downloaded, for everything that cannot be done from afar."""

from __future__ import annotations

import shlex


def download_first(address: str) -> str:
    """The end of a sentence that says what to do; ``address`` is one without secrets."""
    return f"download it first ({command(address)})."


def command(address: str) -> str:
    """The command that brings the file here, into the current folder."""
    scheme, _, rest = address.partition("://")
    if scheme == "s3":
        return f"aws s3 cp {shlex.quote(address)} ."
    if scheme in ("gs", "gcs"):
        return f"gcloud storage cp {shlex.quote(f'gs://{rest}')} ."
    if scheme == "hf":
        from ckptdoctor.remote.hub_names import taken_apart

        place = taken_apart(address)
        kind = "" if place.kind == "model" else f" --repo-type {place.kind}"
        return f"hf download {shlex.quote(place.repository)} {shlex.quote(place.file)}{kind} --local-dir ."
    if scheme in ("http", "https"):
        return f"curl -fLO {shlex.quote(address)}"
    return f"python -c \"import fsspec; fsspec.filesystem({scheme!r}).get({rest!r}, '.')\""
