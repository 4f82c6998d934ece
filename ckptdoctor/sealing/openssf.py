"""Writes the manifest that OpenSSF model signing signs: an in-toto statement about the files of a model.

https://github.com/sigstore/model-transparency, ``model_signing/_signing/signing.py`` of 1.0: the digests of the files
in the order of their names, and as the digest of the model the SHA-256 of these digests one behind another. A model
that is a single file has it under the name ".". Nothing is signed here.
"""

from __future__ import annotations

import hashlib
import json
import os

from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.sealing.manifest import Seal

_PREDICATE = "https://model_signing/signature/v1.0"


def beside(path: str) -> str:
    """Return the file that the manifest of a path is written to: never in a folder, whose files it lists."""
    return f"{stem_of(path)}.openssf.json"


def statement(path: str, seal: Seal) -> bytes:
    """Return the statement as JSON."""
    # a Path of Python sorts by its steps, as the order of names in the manifest does
    files = sorted(seal.files, key=lambda each: each.name.split("/"))
    root = hashlib.sha256(b"".join([bytes.fromhex(each.digest) for each in files])).hexdigest()
    resources = [
        {"name": each.name if seal.folder else ".", "algorithm": "sha256", "digest": each.digest} for each in files
    ]
    serialization = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": True,
        "ignore_paths": [".cache", ".git", "ckptdoctor.seal.json"],
    }
    found = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": os.path.basename(os.path.abspath(path)), "digest": {"sha256": root}}],
        "predicateType": _PREDICATE,
        "predicate": {"serialization": serialization, "resources": resources},
    }
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"
