"""The record of a run: ``metrics.jsonl``, one JSON object a line, which survives being killed at any byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from errno import ENOSPC
from math import isfinite
from types import TracebackType
from typing import Any

from ckptdoctor.errors import DamagedError, UnreadableError, WriteError
from ckptdoctor.trainer.events import RunEvent, StepDone


def replace_file(path: str, data: bytes) -> None:
    """Give ``path`` these contents, in one step that a crash cannot split. Raises WriteError."""
    temporary = f"{path}.partial"
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):  # it has got its name
                os.unlink(temporary)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: str, error: OSError) -> WriteError:
    """Return the error to raise when a file of the run cannot be written."""
    advice = "Free some space, or choose" if error.errno == ENOSPC else "Choose"
    return WriteError(f"{path} cannot be written: {error.strerror}. {advice} another --out.")


MetricsRecord = dict[str, Any]

_ABSURD = 1e150  # greater numbers, such as the loss of a run that has exploded, have no place on any scale


class MetricsLog:
    """A listener that appends every event but the steps to the file ``path``.

    What an earlier run wrote stays, up to epoch ``resumed_epoch``: the epochs after it are going to be trained again.
    Raises DamagedError when the file is not such a record, WriteError when it cannot be written.
    """

    def __init__(self, path: str, resumed_epoch: int = 0) -> None:
        self.records = _repaired(path, resumed_epoch)
        """What the file holds, of earlier runs and of this one."""
        self._path = path
        try:
            # no buffer: nothing to be lost when the run is killed, and nothing left to fail when the file is closed
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - it stays open for the run
        except OSError as error:
            raise refused(path, error) from error

    def __call__(self, event: RunEvent) -> None:
        """Append one line, and hand it to the operating system at once."""
        if isinstance(event, StepDone):
            return
        record = _finite({"event": type(event).__name__, "time": _now(), **asdict(event)})
        self.records.append(record)
        line = _line(record)
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise refused(self._path, error) from error

    def close(self) -> None:
        """Write no more lines. May be called more than once."""
        self._file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read(path: str) -> list[MetricsRecord]:
    """Return all records of a ``metrics.jsonl``; a last line that was never finished is left out.

    Raises UnreadableError when there is no such file, DamagedError when another line is not a record.
    """
    return list(_records(path, _bytes(path).split(b"\n")))


def figure(record: MetricsRecord, key: str) -> float | None:
    """Return a figure of a record, or None for one that is missing, or was not a number when it was written."""
    value = record.get(key)
    return float(value) if isinstance(value, (int, float)) and abs(value) < _ABSURD else None


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}.") from error


def _records(path: str, lines: Sequence[bytes]) -> Iterator[MetricsRecord]:
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # the run was killed while it wrote this line, or there is nothing after the last
                return
            raise _damaged(path, number) from error
        if not _is_record(record):
            raise _damaged(path, number)
        yield record


def _is_record(value: Any) -> bool:
    """Return whether it is an object that names its event, and an epoch that has a number."""
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        return False
    return value["event"] != "EpochDone" or isinstance(value.get("epoch"), int)


def _repaired(path: str, resumed_epoch: int) -> list[MetricsRecord]:
    """Return the records that stay. The file is replaced in one step when it holds anything else."""
    if not os.path.lexists(path):
        return []
    records = _kept(read(path), resumed_epoch)
    data = b"".join(map(_line, records))
    if _bytes(path) != data:
        replace_file(path, data)
    return records


def _kept(records: Sequence[MetricsRecord], resumed_epoch: int) -> list[MetricsRecord]:
    """Return everything up to the first epoch that will be repeated; after it only when runs started and ended."""
    repeated = (index for index, record in enumerate(records) if _epoch(record) > resumed_epoch)
    first = next(repeated, len(records))
    rest = [record for record in records[first:] if record["event"] in ("Started", "Ended")]
    return [*records[:first], *rest]


def _epoch(record: MetricsRecord) -> int:
    return int(record["epoch"]) if record["event"] == "EpochDone" else 0


def _line(record: MetricsRecord) -> bytes:
    return json.dumps(record, allow_nan=False).encode("ascii") + b"\n"


def _finite(value: Any) -> Any:
    """Return ``value`` with null for what JSON has no number for (RFC 8259, section 6): NaN and the infinities."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return list(map(_finite, value)) if isinstance(value, (list, tuple)) else value


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _damaged(path: str, number: int) -> DamagedError:
    return DamagedError(f"Line {number} of {path} is not a record of a run; move that file away to start a new one.")
