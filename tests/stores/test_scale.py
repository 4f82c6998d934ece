"""Stores of any size: what an audit finds is the truth that was planted, and its requests do not grow faster."""

from __future__ import annotations

import pytest

from tests.stores.asked import audited, rows
from tests.stores.simulated import SimulatedStore, installed, truth


@pytest.fixture(scope="module", autouse=True)
def _known(tmp_path_factory):
    installed(tmp_path_factory.mktemp("known"))


def untrue(database):
    """The checkpoints of which an inventory says something else than the truth."""
    found = rows(database, "SELECT path, level, step, trouble, error FROM checkpoint")
    assert found
    return [each for each in found if (each["level"] is not None, each["step"]) != truth(each["path"])]


def test_what_is_found_is_what_was_planted(tmp_path):
    """Files of 100 GB, cut ones, pages of a login, folders that lack a file, connections that break."""
    done = audited("simulated://7-9-16", output=tmp_path / "store.db")
    assert (done.listed, done.examined) == (144, 144)
    assert untrue(tmp_path / "store.db") == []
    (bad,) = rows(
        tmp_path / "store.db", "SELECT count(*) AS count, max(bytes) AS most FROM checkpoint WHERE level IS NULL"
    )
    assert bad["count"] > 3
    (largest,) = rows(tmp_path / "store.db", "SELECT max(bytes) AS most FROM checkpoint")
    assert largest["most"] > 90e9


def test_a_second_audit_asks_for_listings_only(tmp_path):
    """Nothing is opened that has not changed."""
    audited("simulated://7-6-20", output=tmp_path / "store.db")
    before = dict(SimulatedStore.requests)
    done = audited("simulated://7-6-20", output=tmp_path / "store.db")
    assert done.unchanged == 120 and done.examined == 0
    assert SimulatedStore.requests["get"] == before["get"]


def test_requests_of_a_checkpoint_are_few(tmp_path):
    """However large it is: a header, or the end and the pickle of a zip, and the small files of a folder."""
    before = dict(SimulatedStore.requests)
    done = audited("simulated://7-6-20", output=tmp_path / "store.db")
    asked = {name: (number - before[name]) / done.listed for name, number in SimulatedStore.requests.items()}
    assert asked["get"] < 4 and asked["info"] < 4 and asked["ls"] < 4


@pytest.mark.slow
def test_tens_of_thousands_are_as_they_were_planted(tmp_path):
    """By several processes, in one database."""
    from ckptdoctor.stores.engines.local import LocalEngine

    done = audited("simulated://11-1000-20", output=tmp_path / "store.db", engine=LocalEngine(2))
    assert done.examined == 20_000 and untrue(tmp_path / "store.db") == []
