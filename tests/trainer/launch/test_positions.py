"""How far a rank has come."""

from __future__ import annotations

import time

import pytest

from ckptdoctor.trainer.launch.positions import Position, PositionBoard, current_position, report_position, show_on


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
    assert [other.read(rank) for rank in range(3)] == [Position(), Position(2, 31), Position()]
    assert current_position() == Position(2, 31)
    other.close()


def test_without_a_launcher():
    """With no board, the position is remembered."""
    report_position(3, 4)
    assert current_position() == Position(3, 4)
    report_position(0, 0)


def test_a_report_is_cheap(board):
    """A report costs less than 20 millionths of a second, so that every step can afford one."""
    fastest = min(_seconds(1000) for _ in range(5))
    assert fastest / 1000 < 20e-6


def test_in_words():
    """A position reads as part of a sentence."""
    assert str(Position(2, 31)) == "in epoch 2, step 31"
    assert str(Position()) == "before its first step"


def _seconds(reports):
    begin = time.process_time()
    for step in range(reports):
        report_position(1, step)
    return time.process_time() - begin
