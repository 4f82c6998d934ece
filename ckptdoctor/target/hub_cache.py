"""Finds models of the Hugging Face Hub in its cache on this machine: ``org/name``. Nothing is ever downloaded.

Source: ``huggingface_hub.constants`` and ``huggingface_hub.file_download`` (``try_to_load_from_cache``), 2.4:
``models--org--name/refs/REVISION`` holds a commit, ``models--org--name/snapshots/COMMIT`` its files.
"""

from __future__ import annotations

import os
import re

from ckptdoctor.errors import UsageError
from ckptdoctor.shell import joined

_PART = r"[A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?P<name>{_PART}(?:/{_PART})?)(?:@(?P<revision>[\w][\w./-]*))?", re.ASCII)
# what ends like this is the path of a file that is not there
_FILES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".json", ".py", ".pkl", ".npz", ".gz", ".zip", ".tar")
_LONGEST = 256  # bytes of a reference that are read


def is_name(text: str) -> bool:
    """Return whether this can only be meant as ``org/name`` or ``org/name@revision``, and is not a local path."""
    found = _NAME.fullmatch(text)
    named = found is not None and "/" in found["name"] and ".." not in text and not text.lower().endswith(_FILES)
    return named and not os.path.exists(text)


def folder_of(text: str) -> str | None:
    """Return the folder of the model of this name in the cache.

    It is None where ``text`` is a path, or what cannot be a name.

    Raises UsageError, with the command that fetches it, for ``org/name`` which is not there. A name without an owner
    (``gpt2``) is taken for one only where it is there.
    """
    found = _NAME.fullmatch(text)
    if found is None or os.path.exists(text) or ".." in text:
        return None
    folder = _snapshot(found["name"], found["revision"] or "main")
    if folder is None and is_name(text):
        raise UsageError(f"{text} is neither an existing path nor in the Hugging Face cache ({root()}). {fetch(text)}")
    return folder


def file_of(text: str, file: str) -> str | None:
    """Return the path of one file of that model.

    Raises UsageError, too, where the cache has the model without this file.
    """
    folder = folder_of(text)
    if folder is None:
        return None
    path = os.path.join(folder, file)
    if not os.path.isfile(path):
        raise UsageError(f"{text} is in the Hugging Face cache without its {file}. {fetch(text, file)}")
    return path


def fetch(text: str, file: str = "") -> str:
    """Return the sentence with the command that brings a model, or one file of it, into the cache."""
    found = _NAME.fullmatch(text)
    assert found is not None
    words = ["hf", "download", found["name"], *([file] if file else [])]
    words += ["--revision", found["revision"]] if found["revision"] else []
    return f"ckptdoctor downloads nothing; download it once: {joined(*words)}"


def root() -> str:
    """Return the folder of the cache, as the environment says."""
    home = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface")
    home = os.environ.get("HF_HOME") or home
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return os.path.expandvars(os.path.expanduser(named))


def _snapshot(name: str, revision: str) -> str | None:
    model = os.path.join(root(), f"models--{name.replace('/', '--')}")
    try:
        with open(os.path.join(model, "refs", revision), encoding="ascii") as file:
            commit = file.read(_LONGEST).strip()
    except (OSError, ValueError):
        commit = revision  # a commit may be named itself
    folder = os.path.join(model, "snapshots", commit)
    return folder if re.fullmatch(r"[\w.-]+", commit) and commit != ".." and os.path.isdir(folder) else None
