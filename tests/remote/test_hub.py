"""hf:// addresses, against a server that hands files out as the Hub does: by a redirection to another one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

import ckptdoctor
from ckptdoctor.brief import in_full
from ckptdoctor.remote.downloading import HubFile, command, taken_apart
from tests.libraries import huggingface_hub
from tests.remote.server import serving


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("hf://org/net/model.safetensors", HubFile("model", "org/net", "main", "model.safetensors")),
        ("hf://org/net/sub/a.pt", HubFile("model", "org/net", "main", "sub/a.pt")),
        ("hf://org/net@v1.0/a.pt", HubFile("model", "org/net", "v1.0", "a.pt")),
        ("hf://org/net@refs/pr/3/a.pt", HubFile("model", "org/net", "refs/pr/3", "a.pt")),
        ("hf://org/net@refs%2Fpr%2F3/a.pt", HubFile("model", "org/net", "refs/pr/3", "a.pt")),
        ("hf://datasets/org/data/a.pt", HubFile("dataset", "org/data", "main", "a.pt")),
        ("hf://spaces/org/app/a.pt", HubFile("space", "org/app", "main", "a.pt")),
        ("hf://gpt2/model.safetensors", HubFile("model", "gpt2", "main", "model.safetensors")),
        ("hf://org/net", HubFile("model", "org/net", "main", "")),
    ],
)
def test_addresses_are_taken_apart(address, place):
    """As huggingface_hub takes them, but without asking the server."""
    assert taken_apart(address) == place


@pytest.mark.slow
def test_addresses_mean_what_huggingface_hub_takes_them_for():
    """Its own file system resolves them alike; whether repositories exist is not asked."""
    from unittest import mock

    system = huggingface_hub.HfFileSystem(token=False)
    for address in ["hf://org/net@v1.0/a.pt", "hf://org/net@refs/pr/3/a.pt", "hf://datasets/org/data/b/a.pt"]:
        with mock.patch.object(huggingface_hub.HfFileSystem, "_repo_and_revision_exist", return_value=(True, None)):
            theirs = system.resolve_path(address)
        ours = taken_apart(address)
        assert (theirs.repo_id, theirs.path_in_repo) == (ours.repository, ours.file)
        assert theirs.repo_type == ours.kind and theirs.revision in (ours.revision, None)


@pytest.fixture
def data(tmp_path):
    torch.save({f"module.layers.{index}": torch.ones(300) for index in range(1_000)}, tmp_path / "m.pt")
    return (tmp_path / "m.pt").read_bytes()


def test_a_file_of_the_hub_takes_few_requests(data, monkeypatch):
    """One to the Hub, the rest to where it leads; the token goes to the Hub alone."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving(files={"blob": data}) as far, serving() as hub:
        hub.redirects["org/net/resolve/main/m.pt"] = far.url("blob?Signature=abc")
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        report = ckptdoctor.check("hf://org/net/m.pt")
        assert report.error is None and [finding.code for finding in report.findings] == ["N401"]
        assert len(hub.requests) == 1 and len(hub.requests) + len(far.requests) <= 6
        assert hub.requests[0][2]["Authorization"] == "Bearer hf_secret"
        assert not any("Authorization" in headers for _, _, headers in far.requests)
        assert "hf_secret" not in in_full(report) and "Signature" not in in_full(report)


def test_what_the_hub_refuses_is_told_with_what_may_help(monkeypatch):
    """Without a token, how to give one."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(get_token=lambda: None))
    with serving(statuses=[401]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        error = ckptdoctor.check("hf://org/net/m.pt").error
    assert "hf://org/net/m.pt: access denied" in error and "HF_TOKEN" in error


def test_a_repository_is_no_file():
    """The sentence says what to name."""
    assert "hf://org/net/model.safetensors" in ckptdoctor.check("hf://org/net").error


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://org/net/a.pt", "hf download org/net a.pt --local-dir ."),
        ("hf://datasets/org/net/a.pt", "hf download org/net a.pt --repo-type dataset --local-dir ."),
        ("s3://b/a.pt", "aws s3 cp s3://b/a.pt ."),
        ("gcs://b/a.pt", "gcloud storage cp gs://b/a.pt ."),
        ("https://h/a b.pt", "curl -fLO 'https://h/a b.pt'"),
        ("az://b/a.pt", "fsspec.filesystem('az').get('b/a.pt', '.')"),
    ],
)
def test_each_kind_of_address_has_a_command_that_downloads_it(address, words):
    """It is what is said wherever something cannot be done from afar."""
    assert words in command(address)
