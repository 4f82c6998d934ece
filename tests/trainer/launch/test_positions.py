"""A rank shows how far it has come."""

from __future__ import annotations

import pytest

from ckptdoctor.trainer.launch.positions import PositionBoard, RankPosition, current_position, report_position, show_on
from tests.work import counted


@pytest.fixture
def board(tmp_path):
    """A board of three ranks, on which this process shows itself as rank 1."""
    PositionBoard.create(tmp_path / "positions", 3)
    made = PositionBoard(tmp_path / "positions")
    show_on(made, 1)
    yield made
    show_on(None)
    made.close()
    report_position(0, 0)


def test_the_last_report_counts(board, tmp_path):
    """Every report is seen at once by whoever has the file mapped, in the slot of its rank."""
    other = PositionBoard(tmp_path / "positions")
    report_position(1, 1)
    report_position(2, 31)
    assert [other.read(rank) for rank in range(3)] == [RankPosition(), RankPosition(2, 31), RankPosition()]
    assert current_position() == RankPosition(2, 31)
    other.close()


def test_without_a_launcher():
    """With no board, the position is remembered."""
    report_position(3, 4)
    assert current_position() == RankPosition(3, 4)
    report_position(0, 0)


def test_a_report_is_cheap(board):
    """A report is three calls, itself, the board's and one that packs two numbers: every step can afford one."""

    def reports():
        for step in range(1000):
            report_position(1, step)

    assert counted(reports)[1] < 3.1 * 1000


def test_in_words():
    """A position reads as part of a sentence."""
    assert str(RankPosition(2, 31)) == "in epoch 2, step 31"
    assert str(RankPosition()) == "before its first step"
