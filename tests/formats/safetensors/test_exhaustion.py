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


# what a header is filled with, given about so many bytes
HEADERS = {
    "text": lambda size: b'{"__metadata__":{"x":"' + b"y" * size + b'"}}',
    "nesting": lambda size: b'{"a":' + b"[" * (size // 2),
    "digits": lambda size: b'{"a":' + b"1" * (size // 10 * 9) + b"}",
    "blanks": lambda size: b"{" + b" " * (size // 10 * 9) + b"}",
    "escapes": lambda size: b'{"a":"' + b"\\u0041" * (size // 6) + b'"}',
    "pairs": lambda size: b'{"a":"' + b"\\ud800\\udc00" * (size // 12) + b'"}',
    "dimensions": lambda size: (
        b'{"a":{"dtype":"U8","shape":[' + b"1," * (size // 10 * 3) + b'1],"data_offsets":[0,1]}}'
    ),
    "objects": lambda size: b'{"a":[' + b"{}," * (size // 5) + b"{}]}",
    "metadata": lambda size: b'{"__metadata__":{' + b'"a":1,' * (size // 20 * 3) + b'"b":2}}',
}


@pytest.mark.parametrize(
    ("size", "megabytes"), [(1_000_000, 160), pytest.param(100_000_000, 2560, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_is_too_much_ends_in_an_answer(kind, size, megabytes, tmp_path):
    """Of a megabyte, and of nearly the 100 MB that safetensors allows: read or refused, in 25 bytes for each of it."""
    path = tmp_path / "large.safetensors"
    path.write_bytes(raw(HEADERS[kind](size)[:100_000_000], b"x"))
    assert child(path, megabytes, 60)[0] in ("read", "refused")


@pytest.mark.parametrize("names", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_header_of_a_million_names_is_read(names, tmp_path):
    """A sound file, though no model has as many tensors."""
    path = tmp_path / "names.safetensors"
    parts = [f'"t{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(names)]
    path.write_bytes(raw("{" + ",".join(parts) + "}", bytes(names)))
    assert child(path, 160 + names * 1400 // 1_000_000, 60)[:2] == ["read", str(names)]


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


@pytest.mark.slow
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
