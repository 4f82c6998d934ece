"""The manifest of ``seal --format openssf`` is the one that OpenSSF's own library makes, and reads back as it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ckptdoctor
from tests.oracles.conftest import library

pytestmark = pytest.mark.slow

FILES = {"model.safetensors": b"x" * 5000, "config.json": b"{}", "a/b.bin": b"1", "a.b/c.bin": b"2", ".git/HEAD": b"3"}


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "file"])
def test_the_manifest_is_that_of_the_library(folder, tmp_path):
    """File by file, in its order, with the digest of the model; .git and .cache are left out on both sides."""
    library("model_signing")
    from google.protobuf.json_format import MessageToDict
    from model_signing import hashing
    from model_signing._signing import signing

    path = tmp_path / "m"
    for name, data in FILES.items() if folder else {"m": b"x" * 5000}.items():
        file = path / name if folder else path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    ours = json.loads(Path(ckptdoctor.seal(path, format="openssf").output).read_bytes())
    config = hashing.Config().set_ignored_paths(paths=[path / ".cache", path / ".git"], ignore_git_paths=False)
    theirs = config.hash(path)
    assert signing.dsse_payload_to_manifest(ours) == theirs
    statement = MessageToDict(signing.Payload(theirs).statement.pb)
    assert ours["subject"] == statement["subject"]
    assert ours["predicate"]["resources"] == statement["predicate"]["resources"]
    assert all(ours[key] == statement[key] for key in ("_type", "predicateType"))
