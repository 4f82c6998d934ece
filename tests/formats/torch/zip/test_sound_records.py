"""A name out of its turn is in doubt, whatever checksum stands behind the bytes."""

from __future__ import annotations

import pytest

from ckptdoctor.formats.torch.zip.records import Record
from ckptdoctor.formats.torch.zip.sound_records import Found, sound_records

USED = [f"a/data/{index}" for index in range(12)]


def found(*names):
    """Records in a row; a name behind a bar stands behind a damaged place."""
    return [Found(Record(name.lstrip("|"), 0, 0, 0, 8, 8, 0, 0, False), not name.startswith("|")) for name in names]


def names(*words):
    return [f"{word[0] if word[0] == '|' else ''}a/data/{word.lstrip('|')}" for word in words]


@pytest.mark.parametrize(
    ("there", "kept"),
    [
        ("0 1 2 3", "0 1 2 3"),
        ("0 1 9 3 4", "0 1 3 4"),  # the name of 2 was damaged
        ("0 1 3 3 4", "0 1 4"),  # nobody knows which of the two is 3
        ("0 1 |4 5 6", "0 1 4 5 6"),  # 2 and 3 are lost
        ("0 1 |0 5 6", "1 5 6"),
        ("0 1 10 11 2 3 4 5", "0 1 10 11 2 3 4 5"),  # by name, as torch once did
        ("7 3 9 1", "7 3 9 1"),  # another writer: there is no order to go by
    ],
)
def test_storages_out_of_turn_are_not_believed(there, kept):
    """Where most follow an order, the others are in doubt."""
    records = sound_records(found(*names(*there.split())), USED)
    assert [record.name for record in records] == names(*kept.split())


def test_other_records_are_not_in_turn_with_storages():
    """Small records stand between the storages or around them."""
    row = found("a/data.pkl", "a/byteorder", *names("0", "1"), "a/x", *names("2"), "a/version")
    assert len(sound_records(row, USED)) == len(row)
