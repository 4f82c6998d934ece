"""Lists folders on other machines, and opens their files as those of a local folder are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ckptdoctor.noun import noun


@noun
class RemoteEntry:
    """A file or folder by its name and address; ``modified`` is a time in seconds, 0.0 where nobody knows it."""

    name: str
    address: str
    folder: bool
    size: int
    modified: float


def entry_of(address: str, info: dict[str, Any]) -> RemoteEntry | None:
    """Return what a listing of fsspec says of one name in the folder at ``address``; None for the folder itself."""
    name = str(info.get("name", "")).rstrip("/").rpartition("/")[2]
    size = info.get("size")
    folder = info.get("type") == "directory"
    if not name or (not folder and not size and name == address.rstrip("/").rpartition("/")[2]):
        return None
    times = (info.get(each) for each in ("mtime", "LastModified", "last_modified", "updated", "created"))
    modified = next((found for each in times if (found := _seconds(each)) is not None), 0.0)
    return RemoteEntry(name, f"{address.rstrip('/')}/{name}", folder, size if isinstance(size, int) else 0, modified)


def _seconds(value: object) -> float | None:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        except ValueError:
            return None
    return float(value) if isinstance(value, (int, float)) else None
