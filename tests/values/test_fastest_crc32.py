"""Both ways to work out a checksum give the same one."""

from __future__ import annotations

import builtins
import random
import sys
import types
import zlib

from ckptdoctor.values.storage_damage import fastest


def test_it_is_the_checksum_of_zip_archives():
    """Whatever is installed, in one go or in pieces."""
    data = random.Random(0).randbytes(100_000)
    crc = 0
    for at in range(0, len(data), 7_777):
        crc = fastest()(data[at : at + 7_777], crc)
    assert crc == zlib.crc32(data)


def test_zlib_ng_is_used_where_it_is_installed(monkeypatch):
    """Its own function, without a wrapper around it."""
    fake = types.ModuleType("zlib_ng")
    fake.zlib_ng = types.SimpleNamespace(crc32=lambda data, value: 17)
    monkeypatch.setitem(sys.modules, "zlib_ng", fake)
    assert fastest.__wrapped__()(b"", 0) == 17


def test_zlib_is_used_where_it_is_not(monkeypatch):
    """An optional package that is missing is no trouble."""
    genuine = builtins.__import__

    def without(name, *rest):
        if name.startswith("zlib_ng"):
            raise ImportError(name)
        return genuine(name, *rest)

    monkeypatch.delitem(sys.modules, "zlib_ng", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert fastest.__wrapped__() is zlib.crc32
