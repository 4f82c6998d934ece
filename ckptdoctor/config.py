"""Settings of a project: ``[tool.ckptdoctor]`` in pyproject.toml, or a ``ckptdoctor.toml``; the nearest one upwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ckptdoctor.errors import UsageError
from ckptdoctor.late import late_dataclass

OWN_FILE = "ckptdoctor.toml"
PYPROJECT = "pyproject.toml"

_LISTS = ("select", "ignore", "extend-select")
FORMATS = ("full", "concise", "json", "sarif", "github", "markdown")
_CHOICES = {"fail-on": ("error", "warning", "info", "never"), "format": FORMATS}


@late_dataclass(frozen=True)
class Config:
    """What a project has set; None where it says nothing. Options of the command line replace each of them."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] | None = None
    fail_on: str | None = None
    format: str | None = None


def load(directory: str | None = None) -> Config:
    """The configuration that applies in ``directory`` (None: the current one).

    In each directory upwards ``ckptdoctor.toml`` comes before ``pyproject.toml``; a pyproject.toml without the
    table does not count. Raises UsageError, with file and key, for what it cannot understand.
    """
    for path in _candidates(os.path.abspath(directory or os.getcwd())):
        table = _read(path)
        if os.path.basename(path) == PYPROJECT:
            table = table.get("tool", {}).get("ckptdoctor")
        if table is not None:
            return _config(path, table)
    return Config()


def _candidates(directory: str) -> Iterator[str]:
    while True:
        for name in (OWN_FILE, PYPROJECT):
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                yield path
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()
    if os.path.basename(path) == PYPROJECT and b"ckptdoctor" not in data:  # most projects: no parser is imported
        return {}
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]  # installed on Python 3.10 only
    try:
        table: dict[str, Any] = tomllib.loads(data.decode())
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    return table


def _config(path: str, table: object) -> Config:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.ckptdoctor must be a table.")
    for key in table:
        if key not in (*_LISTS, *_CHOICES):
            raise UsageError(
                f"{path}: “{key}” is no setting of ckptdoctor. It knows {', '.join((*_LISTS, *_CHOICES))}."
            )
    lists = {key.replace("-", "_"): _list(path, key, table[key]) for key in _LISTS if key in table}
    choices = {key.replace("-", "_"): _choice(path, key, table[key]) for key in _CHOICES if key in table}
    return Config(**lists, **choices)  # type: ignore[arg-type]  # the keys are the field names, checked above


def _list(path: str, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(f'{path}: {key} must be a list of rule codes, such as ["N401"].')
    return tuple(value)


def _choice(path: str, key: str, value: object) -> str:
    if value not in _CHOICES[key]:
        raise UsageError(f"{path}: {key} must be one of {', '.join(_CHOICES[key])}.")
    return str(value)
