"""Headers made to exhaust their reader, in a child with little memory and little time."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor import formats
from tests.formats.safetensors.forge import raw

CHILD = """
import resource, sys
megabytes, seconds = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
from ckptdoctor import formats
from ckptdoctor.errors import CkptDoctorError
try:
    checkpoint = formats.open_checkpoint(sys.argv[1])
    print("read", len(checkpoint.tensors), len(checkpoint.notes))
except CkptDoctorError as error:
    print("refused", type(error).__name__, error.message)
"""


def child(path, megabytes: int, seconds: int) -> list[str]:
    """What opening the file in a child of so much memory and processor time says."""
    command = [sys.executable, "-c", CHILD, str(path), str(megabytes), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * seconds + 30, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout.split(maxsplit=2)


@pytest.mark.slow
def test_a_header_of_a_million_names_is_read(tmp_path):
    """A sound file, though no model has as many tensors."""
    path = tmp_path / "names.safetensors"
    parts = [f'"t{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(1_000_000)]
    path.write_bytes(raw("{" + ",".join(parts) + "}", bytes(1_000_000)))
    assert child(path, 1536, 60)[:2] == ["read", "1000000"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "header",
    [
        b'{"__metadata__":{"x":"' + b"y" * (99 << 20) + b'"}}',
        b'{"a":' + b"[" * 50_000_000,
        b'{"a":' + b"1" * 90_000_000 + b"}",
        b"{" + b" " * 90_000_000 + b"}",
        b'{"a":"' + b"\\u0041" * 16_000_000 + b'"}',
        b'{"a":"' + b"\\ud800\\udc00" * 8_000_000 + b'"}',
        b'{"a":{"dtype":"U8","shape":[' + b"1," * 30_000_000 + b'1],"data_offsets":[0,1]}}',
        b'{"a":[' + b"{}," * 20_000_000 + b"{}]}",
        b'{"__metadata__":{' + b'"a":1,' * 15_000_000 + b'"b":2}}',
    ],
    ids=["text", "nesting", "digits", "blanks", "escapes", "pairs", "dimensions", "objects", "metadata"],
)
def test_a_header_of_nearly_100_mb_ends_in_an_answer(header, tmp_path):
    """Read or refused, but within two and a half gigabytes and a minute."""
    path = tmp_path / "large.safetensors"
    path.write_bytes(raw(header[:100_000_000], b"x"))
    assert child(path, 2560, 60)[0] in ("read", "refused")


def test_a_header_that_claims_more_than_safetensors_reads_is_refused_unread(tmp_path):
    """Not a byte of it is read."""
    path = tmp_path / "claim.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + b'{"__metadata__":{}}')
    assert child(path, 256, 10)[:2] == ["refused", "DamagedError"]


def test_nesting_of_100_000_is_refused(tmp_path):
    """Neither Python's stack nor ours overflows."""
    path = tmp_path / "deep.safetensors"
    path.write_bytes(raw('{"a":' + '{"a":' * 100_000 + "1" + "}" * 100_001))
    word, _, message = child(path, 256, 10)
    assert word == "refused" and "nested" in message


def test_many_tensors_take_no_more_time_than_a_few_times_their_json(tmp_path):
    """50,000 tensors open within eight times what Python's json alone takes for the header."""
    path = tmp_path / "many.safetensors"
    save_file({f"layers.{i // 10}.block.{i % 10}.weight": torch.zeros(2, 2) for i in range(50_000)}, path)
    data = path.read_bytes()
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    ours, theirs = [], []
    for _ in range(3):
        started = time.process_time()
        checkpoint = formats.open_checkpoint(path)
        ours.append(time.process_time() - started)
        started = time.process_time()
        json.loads(header)
        theirs.append(time.process_time() - started)
    assert len(checkpoint.tensors) == 50_000
    assert min(ours) < 8 * min(theirs)
