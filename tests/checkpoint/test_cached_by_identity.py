"""What is worked out of a checkpoint is worked out once."""

from __future__ import annotations

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity


def test_results_are_worked_out_once() -> None:
    """The same subject is asked once, by identity, and only a few are held."""
    asked = []

    @cached_by_identity
    def work(subject: list[int]) -> int:
        asked.append(subject)
        return len(subject)

    subjects = [[1], [1], [1, 2]]
    assert [work(each) for each in subjects * 3] == [1, 1, 2] * 3
    assert len(asked) == 3
    many = [[number] for number in range(20)]
    assert [work(each) for each in many] == [1] * 20
    assert work(subjects[0]) == 1
