"""Pickles written anew: exactly what torch.save would have written, with the same contents."""

from __future__ import annotations

import collections
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Special
from ckptdoctor.edits import Convert, Drop, Rename, Repickle
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.prove.same_contents import first_difference
from ckptdoctor.writing import publish
from tests.formats.torch.legacy.test_python2 import PYTHON2


def repickled(path: Path, *edits: Any) -> Path:
    """The file after the edits, once it is what the nouns say."""
    out = path.parent / "archive.pt"  # what stands in it does not depend on this name
    out.unlink(missing_ok=True)
    with formats.opened(str(path)) as (source, container):
        checkpoint = formats.read(source, container)
        expected = apply(checkpoint, edits)
        publish(formats.write(wanted_of(checkpoint, edits), source), str(out))
    with formats.opened(str(out)) as (source, container):
        assert first_difference(expected, formats.read(source, container)) is None
    return out


def pickle_of(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def training() -> dict[str, Any]:
    """Everything that protocols write in different ways."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    shared = [1]
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "sets": [{1, 2, 3}, set(), set(range(2500))],
        "bytes": [b"\xff\0abc", b"x" * 300, bytearray(b"hello"), bytearray()],
        "numbers": [1.5, 1 << 70, -5, True, None, float("nan"), 255, 256, 65536],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "long": list(range(2500)),
        "text": ["é" * 300, "x"],
        "shared": [shared, shared],
        "types": [torch.float32, torch.Size([2, 3]), collections.Counter("aab"), collections.OrderedDict(a=1)],
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "old format"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_pickle_is_the_one_that_torch_writes(tmp_path: Path, protocol: int, zipped: bool) -> None:
    """Byte for byte, for every protocol and both formats; and torch loads it without being told anything."""
    contents = training()
    torch.save(contents, tmp_path / "given.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    edits = [Repickle()] if zipped else [Convert("torch zip"), Repickle()]
    made = pickle_of(repickled(tmp_path / "given.pt", *edits))
    torch.save(contents, tmp_path / "archive.pt")
    assert made == pickle_of(tmp_path / "archive.pt")
    loaded = torch.load(repickled(tmp_path / "given.pt", *edits), weights_only=True)
    assert loaded["bytes"] == contents["bytes"]
    assert loaded["sets"] == contents["sets"]
    assert loaded["shared"][0] is loaded["shared"][1]


def test_empty_bytes_are_written_so_that_torch_takes_them(tmp_path: Path) -> None:
    """torch.save itself names bytes, which torch.load refuses."""
    torch.save({"raw": b"", "w": torch.ones(1)}, tmp_path / "given.pt")
    with pytest.raises(Exception, match="bytes"):
        torch.load(tmp_path / "given.pt")
    assert torch.load(repickled(tmp_path / "given.pt", Repickle()))["raw"] == b""


def test_other_edits_go_with_it(tmp_path: Path) -> None:
    """Before and after."""
    torch.save({"module.w": torch.ones(1), "b": b"x", "c": {1}}, tmp_path / "given.pt", pickle_protocol=4)
    edits = [Rename((), (("module.w", "w"),)), Repickle(), Drop((("b",),))]
    loaded = torch.load(repickled(tmp_path / "given.pt", *edits))
    assert list(loaded) == ["w", "c"]


class Odd:
    """A class whose objects are made with keyword arguments."""

    def __new__(cls, *, size: int = 0) -> Odd:
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"size": 1}

    class Inner:
        """Has a name with a dot."""


@pytest.mark.parametrize("odd", [frozenset({1}), Odd(), Odd.Inner()], ids=["frozenset", "keywords", "dotted name"])
def test_what_protocol_2_cannot_say_plainly_is_refused(tmp_path: Path, odd: object) -> None:
    """With the reason; nothing is written."""
    torch.save({"w": torch.ones(1), "odd": odd}, tmp_path / "given.pt", pickle_protocol=4)
    with pytest.raises(RefusedError):
        repickled(tmp_path / "given.pt", Repickle())


def test_a_file_of_the_old_format_stays_one_in_one_piece(tmp_path: Path) -> None:
    """It is several pickles; without a conversion none is written anew."""
    (tmp_path / "given.pt").write_bytes(PYTHON2)
    with pytest.raises(RefusedError, match="C105"):
        repickled(tmp_path / "given.pt", Repickle())


@pytest.mark.parametrize("encoding", [None, "latin1"])
def test_strings_of_python_2_become_text(tmp_path: Path, encoding: str | None) -> None:
    """ASCII ones always, others as Latin-1 where that is asked for: what torch.load with that encoding gives."""
    (tmp_path / "given.pt").write_bytes(PYTHON2)
    made = repickled(tmp_path / "given.pt", Convert("torch zip"), Repickle(encoding))
    if encoding is None:
        assert b"U\x01\xff" in pickle_of(made)
        return
    loaded = torch.load(made, map_location="cpu")
    meant = torch.load(tmp_path / "given.pt", map_location="cpu", weights_only=False, encoding="latin1")
    assert str(loaded) == str(meant)
    assert loaded["raw"] == "ÿ"


def _as_python_2(data: bytes) -> bytes:
    """The encoded texts of Python 3 in a pickle as strings of Python 2."""
    import re

    def string(match: re.Match[bytes]) -> bytes:
        raw = match[1].decode("utf-8").encode("latin1")
        return b"U" + bytes([len(raw)]) + raw

    given = re.compile(
        rb"(?:c_codecs\nencode\nq.|h.)X.\0\0\0(.*?)q.(?:X\x06\0\0\0latin1q.|h.)\x86q.R(?:q.)?", re.DOTALL
    )
    return given.sub(string, data)


def test_the_values_of_arrays_of_python_2_become_bytes(tmp_path: Path) -> None:
    """Whatever is asked of texts: NumPy takes no other encoding for them."""
    torch.save(
        {"a": np.array([-1.5, 3e7]), "w": torch.ones(1)}, tmp_path / "new.pt", _use_new_zipfile_serialization=False
    )
    data = _as_python_2((tmp_path / "new.pt").read_bytes())
    assert b"_codecs" not in data
    (tmp_path / "given.pt").write_bytes(data)
    meant = torch.load(tmp_path / "given.pt", weights_only=False, encoding="latin1")
    loaded = torch.load(repickled(tmp_path / "given.pt", Convert("torch zip"), Repickle()), weights_only=False)
    assert (loaded["a"] == meant["a"]).all()
    assert loaded["a"].tolist() == [-1.5, 3e7]


def test_two_keys_that_become_one_are_refused(tmp_path: Path) -> None:
    """A key in Latin-1 beside the same in UTF-8."""
    torch.save({"abcd": 1, "café": 2}, tmp_path / "new.pt", _use_new_zipfile_serialization=False)
    data = (tmp_path / "new.pt").read_bytes().replace(b"X\x04\x00\x00\x00abcd", b"U\x04caf\xe9")
    (tmp_path / "given.pt").write_bytes(data)
    with formats.opened(str(tmp_path / "given.pt")) as (source, container):
        checkpoint = formats.read(source, container)
    assert [part for part, _ in checkpoint.tree.entries] == [Special("b'caf\\xe9'"), "café"]
    with pytest.raises(RefusedError, match="café"):
        apply(checkpoint, [Convert("torch zip"), Repickle("latin1")])


def test_keys_of_python_2_in_utf_8_are_text(tmp_path: Path) -> None:
    """As torch reads them."""
    torch.save({"abcde": torch.ones(1)}, tmp_path / "new.pt", _use_new_zipfile_serialization=False)
    data = (tmp_path / "new.pt").read_bytes().replace(b"X\x05\x00\x00\x00abcde", "U\x05café".encode())
    (tmp_path / "given.pt").write_bytes(data)
    with formats.opened(str(tmp_path / "given.pt")) as (source, container):
        checkpoint = formats.read(source, container)
    assert [tensor.path for tensor in checkpoint.tensors] == [("café",)]
    assert list(torch.load(tmp_path / "given.pt")) == ["café"]
    assert list(torch.load(repickled(tmp_path / "given.pt", Convert("torch zip"), Repickle()))) == ["café"]
