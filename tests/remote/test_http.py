"""Files on a real web server: few requests, few bytes, and one sentence for everything that can go wrong."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import datetime, timedelta, timezone

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor.brief import in_full
from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote import http, open_remote
from ckptdoctor.remote import http as connection
from tests.remote.server import serving


@pytest.fixture(scope="module")
def state():
    return {f"layers.{index:03}.weight": torch.full((25_000,), float(index)) for index in range(1_000)}


@pytest.fixture(scope="module")
def large(state, tmp_path_factory):
    """100 MB of 1,000 tensors in each format, as bytes."""
    folder = tmp_path_factory.mktemp("large")
    torch.save(state, folder / "a.pt")
    torch.save(state, folder / "old.pt", _use_new_zipfile_serialization=False)
    save_file(state, folder / "a.safetensors", {"format": "pt"})
    found = {}
    for path in folder.iterdir():
        found[path.name] = path.read_bytes()
        path.unlink()
    return found


@pytest.fixture
def small(tmp_path):
    torch.save({"module.w": torch.arange(3.0)}, tmp_path / "small.pt")
    return (tmp_path / "small.pt").read_bytes()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(http, "DELAYS", (0.0, 0.01, 0.01, 0.01))


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors", "old.pt"])
def test_headers_take_few_requests_and_few_bytes(name, large, state):
    """At most 6 requests over one connection, and less than 1 % of 100 MB; everything is where it is in the file."""
    with serving(files=large) as server:
        report = ckptdoctor.check(server.url(name))
        assert report.error is None and [finding.code for finding in report.findings] in ([], ["C105"])
        assert len(server.requests) <= 6 and server.connections == 1
        assert server.sent < len(large[name]) / 100 and report.bytes_read == server.sent
        assert [tensor.key for tensor in report.checkpoint.tensors] == list(state)
        tensor = report.checkpoint.tensors[500]
        offset = tensor.storage.extent.offset
        assert large[name][offset : offset + 4] == torch.tensor([500.0]).numpy().tobytes()


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors", "old.pt"])
def test_values_are_loaded_in_a_few_large_requests(name, large, state):
    """What load gives is what was saved, at the price of two requests for 100 MB."""
    with serving(files=large) as server:
        loaded = ckptdoctor.load(server.url(name))
        assert len(server.requests) <= 8
    assert list(loaded) == list(state) and all(torch.equal(loaded[key], state[key]) for key in state)


def test_a_deep_check_reads_everything(large):
    """In steps that grow, and finds what is wrong with the bytes; what is sound is fetched once."""
    sick = bytearray(large["a.pt"])
    sick[60_000_000] ^= 1
    with serving(files={"a.pt": bytes(sick)}) as server:
        report = ckptdoctor.check(server.url("a.pt"), deep=True)
        assert [finding.code for finding in report.findings] == ["F009"]
        assert len(server.requests) < 80
    with serving(files=large) as server:
        assert ckptdoctor.check(server.url("a.pt"), deep=True).findings == ()
        assert len(large["a.pt"]) <= server.sent < 1.5 * len(large["a.pt"])


def test_archives_that_torch_did_not_write_are_read_as_well(tmp_path, small):
    """Where a record lies otherwise than torch would put it, its header is looked at."""
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(small)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    with serving(files={"m.pt": made.getvalue()}) as server:
        assert torch.equal(ckptdoctor.load(server.url("m.pt"))["module.w"], torch.arange(3.0))


def test_a_small_file_is_read_whole_from_a_server_without_ranges(small):
    """One request brings it."""
    with serving(files={"small.pt": small}, ranges=False) as server:
        report = ckptdoctor.check(server.url("small.pt"))
        assert [finding.code for finding in report.findings] == ["N401"] and len(server.requests) == 1
        assert torch.equal(ckptdoctor.load(server.url("small.pt"))["module.w"], torch.arange(3.0))


def test_a_server_that_tells_no_length_is_read_if_the_file_is_small(small):
    """The connection's end is the file's."""
    with serving(files={"small.pt": small}, ranges=False, lengths=False) as server:
        assert ckptdoctor.check(server.url("small.pt")).error is None


@pytest.mark.parametrize("lengths", [True, False])
def test_a_large_file_without_ranges_is_to_be_downloaded(lengths, large):
    """The sentence names the size and the command; next to nothing is read where the size is told."""
    with serving(files=large, ranges=False, lengths=lengths) as server:
        error = ckptdoctor.check(server.url("a.pt")).error
        assert (
            "does not serve parts of files" in error and f"download it first (curl -fLO {server.url('a.pt')})" in error
        )
        assert (f"{len(large['a.pt']):,} bytes" in error) == lengths
        assert server.sent < len(large["a.pt"])


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_passing_failures_are_tried_again(status, small):
    """Two of them change nothing."""
    with serving(files={"m.pt": small}, statuses=[status, status]) as server:
        assert ckptdoctor.check(server.url("m.pt")).error is None and len(server.requests) == 3


def test_a_failure_that_stays_is_told(small):
    """After a few attempts."""
    with serving(files={"m.pt": small}, statuses=[503] * 50) as server:
        assert "the server keeps answering 503" in ckptdoctor.check(server.url("m.pt")).error
        assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "does not exist"),
        (410, "does not exist"),
        (403, "access denied"),
        (401, "private"),
        (418, "answers 418"),
    ],
)
def test_refusals_are_told_at_once(status, words, small):
    """Asking again would not help."""
    with serving(files={"m.pt": small}, statuses=[status]) as server:
        assert words in ckptdoctor.check(server.url("m.pt")).error and len(server.requests) == 1


def test_a_body_that_breaks_off_is_taken_up_again(large, state):
    """From the byte where it broke off."""
    with serving(files=large, breaks=[1_000, 70_000, 100_000]) as server:
        report = ckptdoctor.check(server.url("a.pt"))
        assert report.error is None and len(report.checkpoint.tensors) == len(state)
        assert server.connections > 1


def test_a_server_that_always_breaks_off_is_given_up(small):
    """It does not go on for ever."""
    with serving(files={"m.pt": small}, breaks=[0] * 50) as server:
        error = ckptdoctor.check(server.url("m.pt")).error
        assert error is not None and len(server.requests) <= 6


def test_a_file_that_changes_is_noticed(large):
    """What was read before belongs to another file."""
    with serving(files=large) as server:
        source = open_remote(server.url("a.pt"))
        server.etag = '"two"'
        with pytest.raises(UnreadableError, match="changed while it was read"):
            source.read(50_000_000, 10)
        source.close()


def test_redirections_are_followed_once(large):
    """Later parts are asked for where the first one led; what is secret stays with the first server."""
    with serving(files=large) as far, serving(redirects={"m.pt": far.url("a.pt?X-Signature=1")}) as near:
        address = near.url("m.pt").replace("//", "//me:pass@")
        report = ckptdoctor.check(address)
        assert report.error is None and report.path == near.url("m.pt")
        assert len(near.requests) == 1 and len(far.requests) <= 4
        assert near.requests[0][2]["Authorization"].startswith("Basic ")
        assert not any("Authorization" in headers for _, _, headers in far.requests)


def test_what_a_redirection_led_to_may_expire(large):
    """Then the first address is asked again."""
    with serving(files=large) as far, serving(redirects={"m.pt": far.url("a.pt")}) as near:
        source = open_remote(near.url("m.pt"))
        far.statuses[:] = [403]
        assert source.read(50_000_000, 10) == large["a.pt"][50_000_000:50_000_010]
        assert len(near.requests) == 2
        source.close()


def test_redirections_without_an_end_end():
    """After a few."""
    with serving() as server:
        server.redirects["a"] = server.url("a")
        assert "redirects endlessly" in ckptdoctor.check(server.url("a")).error
        assert len(server.requests) < 10


def test_nothing_secret_is_told(small):
    """Neither of a file that is read nor of one that is not: no user, no password, no signature."""
    with serving(files={"m.pt": small}) as server:
        for name in ("m.pt", "none.pt"):
            address = f"{server.url(name)}?X-Amz-Signature=deadbeef&token=hunter2#part".replace("//", "//user:hunter2@")
            report = ckptdoctor.check(address)
            assert "hunter2" not in in_full(report) and "deadbeef" not in in_full(report)
            assert server.requests[-1][0].endswith("deadbeef&token=hunter2")


def test_what_is_no_checkpoint_is_told_as_of_a_local_file():
    """A page, an empty file."""
    page = b"<!DOCTYPE html><html><title>Sign in</title></html>"
    with serving(files={"m.pt": page, "empty.pt": b""}) as server:
        assert [each.code for each in ckptdoctor.check(server.url("m.pt")).findings] == ["F002"]
        assert [each.code for each in ckptdoctor.check(server.url("empty.pt")).findings] == ["F004"]


def test_a_damaged_file_does_not_cost_a_request_for_each_tensor(large):
    """A zip archive without its end would take many: it is to be downloaded."""
    with serving(files={"a.pt": large["a.pt"][:-1_000_000]}) as server:
        report = ckptdoctor.check(server.url("a.pt"))
        assert report.error is not None or report.findings
        assert len(server.requests) <= 45


def test_packed_files_are_unpacked_if_they_are_small(small):
    """A large one is to be downloaded."""
    import gzip

    with serving(files={"m.pt.gz": gzip.compress(small), "a.gz": b"\x1f\x8b\x08" + bytes(20_000_000)}) as server:
        report = ckptdoctor.check(server.url("m.pt.gz"))
        assert {finding.code for finding in report.findings} == {"C102", "N401"}
        assert "Download it first" in ckptdoctor.check(server.url("a.gz")).error


def test_hosts_that_are_not_there_are_told():
    """The network's own words mean little."""
    assert "the host nowhere.invalid was not found" in ckptdoctor.check("https://nowhere.invalid/m.pt").error
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "Connection refused by 127.0.0.1" in ckptdoctor.check(f"http://127.0.0.1:{port}/m.pt").error
    assert "not a web address" in ckptdoctor.check("http:///m.pt").error
    assert "is not a valid address" in ckptdoctor.check("http://host:port/m.pt").error


def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    """After the time that it is given."""
    monkeypatch.setattr(connection, "_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = ckptdoctor.check(f"http://127.0.0.1:{mute.getsockname()[1]}/m.pt").error
    assert "did not answer in time" in error


def test_something_that_does_not_speak_http_is_told():
    """No traceback, whatever comes."""

    def answer(server):
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            peer.recv(1000)
            peer.sendall(b"\x00\xff nonsense\r\n\r\n")
            peer.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        error = ckptdoctor.check(f"http://127.0.0.1:{server.getsockname()[1]}/m.pt").error
        server.shutdown(socket.SHUT_RDWR)
    assert "failed repeatedly" in error


def test_a_certificate_that_nobody_trusts_is_told(small, tmp_path):
    """Nothing is read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(tmp_path))
    with serving(files={"m.pt": small}, context=context) as server:
        error = ckptdoctor.check(server.url("m.pt")).error
        assert server.address.startswith("https://") and "is not trusted" in error and not server.requests


def test_encryption_is_not_given_up_on_the_way(small, tmp_path, monkeypatch):
    """A redirection from https to http is not followed."""
    path = _certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with serving(files={"m.pt": small}) as plain, serving(files={"m.pt": small}, context=context) as server:
        assert ckptdoctor.check(server.url("m.pt")).error is None
        server.redirects["a.pt"] = plain.url("m.pt")
        assert "not encrypted" in ckptdoctor.check(server.url("a.pt")).error and not plain.requests


def test_the_proxy_of_the_environment_is_used(small, monkeypatch):
    """It is asked for the whole address."""
    with serving(files={"m.pt": small}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        monkeypatch.setenv("no_proxy", "")
        assert ckptdoctor.check("http://models.invalid/m.pt").error is None
        assert proxy.requests[0][0] == "http://models.invalid/m.pt"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Content-Range": "bytes 7-9/100"}, "a different part"),
        ({"Content-Range": "bytes 0-3/*"}, "no size"),
        ({"Content-Encoding": "gzip"}, "compresses"),
    ],
)
def test_answers_that_make_no_sense_are_told(headers, words, small):
    """The file is to be downloaded."""
    with serving(files={"m.pt": small}, headers=headers) as server:
        error = ckptdoctor.check(server.url("m.pt")).error
    assert words in error and "download it first" in error


def _certificate(folder):
    """A certificate for 127.0.0.1 that only itself vouches for, with its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return str(path)
