from __future__ import annotations

from http.client import HTTPConnection

import pytest


@pytest.fixture(autouse=True)
def nothing_stays_open(monkeypatch):
    """However a test ends, each answer of a server was read to its end or closed: with it goes its socket."""
    answers, genuine = [], HTTPConnection.getresponse

    def remembered(self):
        answers.append(genuine(self))
        return answers[-1]

    monkeypatch.setattr(HTTPConnection, "getresponse", remembered)
    yield
    assert [each for each in answers if not each.isclosed()] == []
