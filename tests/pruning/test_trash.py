"""Tests of the trash: whatever a process was doing when it died, all of a store comes back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ckptdoctor.errors import DamagedError, RefusedError, UnreadableError
from ckptdoctor.pruning.trash import FOLDER, Trash, restored

_CALLS = ("mkdir", "rename", "write", "fdatasync", "link", "unlink")  # of the system, that change something


class _DeathError(BaseException):
    """Stands for kill -9: nothing below catches it."""


@contextmanager
def _dying(at: int, after: bool) -> Iterator[list[str]]:
    """Die at this call of the system, before it is done or right after; without it, list the calls."""
    made: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            made.append(name)
            if len(made) > at >= 0 and not after:
                raise _DeathError
            if name == "write" and len(made) == at + 1:  # half of a line
                real(words[0], words[1][: len(words[1]) // 2])
                raise _DeathError
            result = real(*words, **named)
            if len(made) > at >= 0:
                raise _DeathError
            return result

        return call

    with mock.patch.multiple(os, **{name: counted(name, getattr(os, name)) for name in _CALLS}):
        yield made


def _tree(store: Path) -> dict[str, bytes | None]:
    return {
        str(each.relative_to(store)): each.read_bytes() if each.is_file() else None
        for each in sorted(store.rglob("*"))
        if FOLDER not in each.parts
    }


def _filled(store: Path) -> list[Path]:
    """Make a store of a file, a folder and a link, which are to go, and one that stays."""
    run = store / "run"
    (run / "checkpoint-1").mkdir(parents=True)
    (run / "checkpoint-1" / "model.bin").write_bytes(b"one")
    (run / "model_2.pt").write_bytes(b"two")
    (run / "model_3.pt").write_bytes(b"three")
    (run / "link").symlink_to("model_3.pt")
    return [run / "checkpoint-1", run / "model_2.pt", run / "link"]


def _move(store: Path, going: list[Path]) -> str:
    with Trash(str(store)) as trash:
        for each in going:
            trash.take([str(each)])
        return trash.path


def _all_back(store: Path) -> None:
    for trash in sorted((store / FOLDER).glob("*")) if (store / FOLDER).is_dir() else []:
        if (trash / "log.jsonl").exists():
            assert [each.trouble for each in restored(str(trash)) if each.trouble] == []
        else:
            assert list(trash.iterdir()) == []


@pytest.mark.parametrize("after", [False, True])
def test_a_move_that_dies_at_any_call_loses_nothing(tmp_path: Path, after: bool) -> None:
    """At each call of the system, every checkpoint is whole in one of two places, and comes back."""
    going = _filled(tmp_path / "count")
    with _dying(-1, after) as made:
        _move(tmp_path / "count", going)
    assert made.count("rename") == 3
    # a power failure finds the line of a move on the disk, whatever it finds of the move
    assert all(
        made[at - 1] == "fdatasync" and made[at - 2] == "write" for at, call in enumerate(made) if call == "rename"
    )
    for at in range(len(made)):
        store = tmp_path / f"store{at}"
        going = _filled(store)
        before = _tree(store)
        with _dying(at, after), pytest.raises(_DeathError):
            _move(store, going)
        _all_back(store)
        assert _tree(store) == before


@pytest.mark.parametrize("after", [False, True])
def test_a_way_back_that_dies_at_any_call_can_be_gone_again(tmp_path: Path, after: bool) -> None:
    """Called again, it goes on where it was killed, also between the two steps of moving a file."""
    trash = _move(tmp_path / "count", _filled(tmp_path / "count"))
    with _dying(-1, after) as made:
        list(restored(trash))
    assert {"link", "unlink", "rename"} <= set(made)
    for at in range(len(made)):
        store = tmp_path / f"store{at}"
        going = _filled(store)
        before = _tree(store)
        trash = _move(store, going)
        with _dying(at, after), pytest.raises(_DeathError):
            list(restored(trash))
        _all_back(store)
        assert _tree(store) == before


def test_nothing_is_overwritten_on_the_way_back(tmp_path: Path) -> None:
    """What has the path by now stays, and so does what was moved."""
    going = _filled(tmp_path)
    trash = _move(tmp_path, going)
    going[1].write_bytes(b"new")
    going[0].mkdir()
    (going[0] / "model.bin").write_bytes(b"new")
    came = {each.path: each.trouble for each in restored(trash)}
    assert [bool(came[str(each)]) for each in going] == [True, True, False]
    assert going[1].read_bytes() == b"new" and (going[0] / "model.bin").read_bytes() == b"new"
    assert sorted(each.read_bytes() for each in Path(trash).rglob("*") if each.suffix in (".pt", ".bin")) == [
        b"one",
        b"two",
    ]
    going[1].unlink()
    shutil.rmtree(going[0])
    assert {each.trouble for each in restored(trash)} == {""}
    assert going[1].read_bytes() == b"two"


def test_a_store_that_is_mounted_elsewhere_can_be_restored(tmp_path: Path) -> None:
    """The log has paths below the store."""
    before_it = tmp_path / "before"
    going = _filled(before_it)
    before = _tree(before_it)
    trash = _move(before_it, going)
    before_it.rename(tmp_path / "after")
    list(restored(trash.replace("before", "after")))
    assert _tree(tmp_path / "after") == before


def test_only_what_is_in_the_store_is_moved(tmp_path: Path) -> None:
    """A path outside of it, or the store itself, is refused before anything is made."""
    _filled(tmp_path / "store")
    (tmp_path / "other.pt").write_bytes(b"other")
    with Trash(str(tmp_path / "store")) as trash:
        for path in (tmp_path / "other.pt", tmp_path / "store"):
            with pytest.raises(RefusedError, match="not in the store"):
                trash.take([str(path)])
    assert not (tmp_path / "store" / FOLDER).exists()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", 3, None])
def test_a_log_that_leads_out_of_the_store_is_refused(tmp_path: Path, name: object) -> None:
    """A trash folder may have come from anywhere."""
    trash = Path(_move(tmp_path, _filled(tmp_path)))
    with (trash / "log.jsonl").open("a") as log:
        log.write(json.dumps({"event": "moving", "path": name}) + "\n")
    with pytest.raises(DamagedError, match="Line 7"):
        list(restored(str(trash)))


def test_what_is_no_trash_folder_is_refused(tmp_path: Path) -> None:
    """A folder without a log was made by somebody else."""
    with pytest.raises(UnreadableError, match="not a trash folder"):
        list(restored(str(tmp_path)))
