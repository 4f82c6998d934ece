"""A store on another machine is examined as a local folder is."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import closing
from datetime import datetime, timezone

import fsspec
import pytest

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.errors import UnreadableError
from ckptdoctor.stores.manifests import Manifest
from tests.runs.generated import KINDS, Run, Saved, truncated
from tests.stores.asked import audited, checkpoints, table


@pytest.fixture
def store(tmp_path):
    """Runs of several kinds with a damaged checkpoint each, here and in a store of fsspec."""
    for kind in ("trainer", "torchtitan", "megatron", "script"):
        run = Run(tmp_path / "s" / kind, kind)
        run.pattern = "step_{}.pt"
        for step in (100, 200):
            run.saved.append(Saved(KINDS[kind](run, step, None), step))
        truncated(run, run.saved[-1], None)
    system = fsspec.filesystem("memory")
    system.put(str(tmp_path / "s"), "/audited", recursive=True)
    yield tmp_path / "s", system
    system.rm("/audited", recursive=True)


def test_a_store_that_fsspec_lists(store, tmp_path):
    """The same checkpoints with the same health, levels and steps; what has changed there is examined again."""
    here, system = store
    audited(here, output=tmp_path / "here.db")
    first = audited("memory://audited", output=tmp_path / "there.db")
    assert (first.examined, first.unlisted) == (8, ())

    def said(database, root):
        return {
            os.path.relpath(path, root): [row[each] for each in ("kind", "step", "health", "level", "tensors", "bytes")]
            for path, row in checkpoints(database).items()
        }

    assert said(tmp_path / "there.db", "memory://audited") == said(tmp_path / "here.db", here)
    assert audited("memory://audited", output=tmp_path / "there.db").examined == 0
    system.pipe("/audited/script/step_100.pt", b"")
    assert audited("memory://audited", output=tmp_path / "there.db").examined == 1


REFUSALS = {
    "expired": (PermissionError("The provided token has expired."), "access denied (The provided token has expired)."),
    "head": (OSError(22, "Bad Request"), "cannot be read: Bad Request. S3 says so where credentials have expired"),
    "storm": (OSError(16, "Please reduce your request rate."), "Please reduce your request rate. Its server is too"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("what", ["", "trainer_state.json"])
def test_what_a_server_kept_back_is_asked_again(refusal, what, store, tmp_path, monkeypatch):
    """Credentials that expire, or a storm of 503: nothing is called broken for that, and the next audit examines it."""
    _, system = store
    audited("memory://audited", output=tmp_path / "right.db")
    error, words = REFUSALS[refusal]
    real = type(system).cat_file

    def refused(self, path, *rest, **options):
        if path.endswith(what):
            raise error
        return real(self, path, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(type(system), "cat_file", refused)
        first = audited("memory://audited", output=tmp_path / "a.db")
    assert (first.listed, first.examined) == (8, 8)
    kept = [row for row in checkpoints(tmp_path / "a.db").values() if row["health"] == "unreadable"]
    assert len(kept) == (2 if what else 8) and all(words in row["error"] and row["level"] is None for row in kept)
    assert audited("memory://audited", output=tmp_path / "a.db").examined == len(kept)
    assert audited("memory://audited", output=tmp_path / "a.db").examined == 0
    assert table(tmp_path / "a.db") == table(tmp_path / "right.db")


def test_a_manifest_says_what_is_in_a_bucket(store, tmp_path, monkeypatch):
    """S3 Inventory: gzipped lines in any order, keys as in URLs, older versions left out; nothing is listed."""
    from ckptdoctor.stores import manifests

    _, system = store
    monkeypatch.setattr(manifests, "_SCHEME", "memory://")
    audited("memory://audited", output=tmp_path / "listed.db")
    lines = ['"audited","gone.pt","9","2024-01-01T00:00:00.000Z","e","false","false"']
    for path, info in sorted(system.find("/audited", detail=True).items(), reverse=True):
        key = path.removeprefix("/audited/").replace("=", "%3D")
        when = datetime.fromtimestamp(info["created"], timezone.utc).isoformat()
        lines.append(f'"audited","{key}","{info["size"]}","{when}","","true","false"')
    inventory = tmp_path / "inventory" / "2026-01-01"
    inventory.mkdir(parents=True)
    (inventory / "part.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    said = {
        "sourceBucket": "audited",
        "destinationBucket": "arn:aws:s3:::reports",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size, LastModifiedDate, ETag, IsLatest, IsDeleteMarker",
        "files": [{"key": "audited/daily/data/part.csv.gz", "size": 1}],
    }
    (inventory / "manifest.json").write_text(json.dumps(said))
    found = audited(inventory / "manifest.json", output=tmp_path / "a.db", from_inventory=True)
    assert found.stores == ("memory://audited",) and found.examined == 8
    assert without_times(tmp_path / "a.db") == without_times(tmp_path / "listed.db")


def without_times(database):
    """Every row: inventories tell times less exactly than listings do."""
    times = ("mtime_ns", "signature")
    return {
        name: [{column: value for column, value in row.items() if column not in times} for row in found]
        for name, found in table(database).items()
    }


def test_what_is_no_manifest_is_told(tmp_path):
    """Other JSON, and an inventory in a form that is not read."""
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text(json.dumps({"sourceBucket": "x", "fileFormat": "ORC", "files": []}))
    with pytest.raises(UnreadableError, match=r"is not the manifest\.json of an inventory"):
        audited(tmp_path / "a.json", output=tmp_path / "a.db", from_inventory=True)
    with pytest.raises(UnreadableError, match="only CSV inventories"):
        audited(tmp_path / "b.json", output=tmp_path / "a.db", from_inventory=True)


def test_an_inventory_is_never_whole_in_memory(tmp_path, monkeypatch):
    """However many objects it lists: so much of a file is read at a time, packed as it is."""
    monkeypatch.setattr("ckptdoctor.stores.manifests._READ", 1 << 20)
    names = [os.urandom(40).hex() for _ in range(60_000)]
    packed = gzip.compress(
        "".join(f'"b","x/{name[:2]}/{name}.txt","{at}"\n' for at, name in enumerate(names)).encode(), 1
    )
    (tmp_path / "0.csv.gz").write_bytes(packed)
    files = [{"key": "0.csv.gz"}]
    said = {"sourceBucket": "b", "fileFormat": "CSV", "fileSchema": "Bucket, Key, Size", "files": files}
    (tmp_path / "manifest.json").write_text(json.dumps(said))
    lengths, read = [], FileSource.read
    monkeypatch.setattr(
        FileSource, "read", lambda self, at, length: (lengths.append(length), read(self, at, length))[1]
    )
    with closing(Manifest(str(tmp_path / "manifest.json"))) as manifest:
        monkeypatch.undo()
        assert sum(lengths) == len(packed) > 3 << 20 and max(lengths) <= 1 << 20
        folders = [each for each in manifest.entries("s3://b/x") if each.folder]
        assert len(folders) == 256 and sum(len(manifest.entries(each.path)) for each in folders) == len(names)
    manifest.close()


@pytest.mark.parametrize("damage", ["cut", "bits", "not text", "no key"])
def test_a_damaged_inventory_is_refused(damage, tmp_path):
    """An inventory that is read in part would be taken for the whole bucket."""
    lines = gzip.compress("".join(f'"b","x/model_{at}.pt","{at}"\n' for at in range(1_000)).encode(), mtime=0)
    broken = {"cut": lines[:-99], "bits": lines[:200] + b"\xff" * 50 + lines[250:], "not text": b"\xff\xfe\x00"}
    (tmp_path / "0.csv.gz").write_bytes(broken.get(damage, lines))
    files = [{"key": "0.csv.gz"}] if damage != "no key" else [{"name": "0.csv.gz"}]
    said = {"sourceBucket": "b", "fileFormat": "CSV", "fileSchema": "Bucket, Key, Size", "files": files}
    (tmp_path / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(UnreadableError, match=r"damaged|by their keys"):
        audited(tmp_path / "manifest.json", output=tmp_path / "a.db", from_inventory=True)
