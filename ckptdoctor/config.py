"""Reads settings of a project: ``[tool.ckptdoctor]`` in pyproject.toml, or a ``ckptdoctor.toml``, the nearest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ckptdoctor.crash import here
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import field, noun
from ckptdoctor.wording import did_you_mean

OWN_FILE = "ckptdoctor.toml"
PYPROJECT = "pyproject.toml"

_LISTS = ("select", "ignore", "extend-select")
FORMATS = ("full", "concise", "json", "sarif", "github", "markdown")
_KEYS = "keys"  # other keys of the browser, by the names of what they do; the browser knows these
_CHOICES = {"fail-on": ("error", "warning", "info", "never"), "format": FORMATS}


@noun
class Config:
    """What a project has set; None where it says nothing. Options of the command line replace each of them."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] | None = None
    fail_on: str | None = None
    format: str | None = None
    keys: dict[str, str] | None = None
    path: str = field(default="", compare=False)  # the file that says so, as it is called in messages


def load(directory: str | None = None) -> Config:
    """Return the configuration that applies in ``directory`` (None: the current one).

    In each directory upwards ``ckptdoctor.toml`` comes before ``pyproject.toml``; a pyproject.toml without the
    table does not count. Raises UsageError, with file and key, for what it cannot understand.
    """
    start = directory or here()
    for path in _candidates(os.path.abspath(start)) if start is not None else ():
        table = _read(path)
        if os.path.basename(path) == PYPROJECT:
            table = table.get("tool", {}).get("ckptdoctor")
        if table is not None:
            return _config(_called(path), table)
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


def _called(path: str) -> str:
    """Return the file as people see it: by its name alone in the current directory."""
    return os.path.basename(path) if os.path.dirname(path) == here() else path


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
        raise UsageError(f"{path} is not valid TOML: {str(error).rstrip('.')}.") from error
    return table


def _config(path: str, table: object) -> Config:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.ckptdoctor must be a table.")
    for key in table:
        if key not in (*_LISTS, *_CHOICES, _KEYS):
            known = (*_LISTS, *_CHOICES, _KEYS)
            offer = did_you_mean(key, known) or f" Use one of {', '.join(known)}."
            raise UsageError(f'{path}: unknown setting "{key}".{offer}')
    lists = {key.replace("-", "_"): _list(path, key, table[key]) for key in _LISTS if key in table}
    choices = {key.replace("-", "_"): _choice(path, key, table[key]) for key in _CHOICES if key in table}
    keys = _keys(path, table[_KEYS]) if _KEYS in table else None
    return Config(**lists, **choices, keys=keys, path=path)  # type: ignore[arg-type]  # field names, checked above


def _list(path: str, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(f'{path}: {key} must be a list of rule codes, such as ["N401"].')
    return tuple(value)


def _keys(path: str, value: object) -> dict[str, str]:
    """Return keys by the name of what they do; several ones in a list, or with commas between them."""
    if not isinstance(value, dict):
        raise UsageError(f'{path}: keys must be a table, such as filter = "F".')
    lists = {name: [given] if isinstance(given, str) else given for name, given in value.items()}
    for name, given in lists.items():
        if not isinstance(given, list) or not given or not all(isinstance(key, str) and key for key in given):
            raise UsageError(f'{path}: keys.{name} must be a key, such as "ctrl+f", or a list of them.')
    return {name: ",".join(given) for name, given in lists.items()}


def _choice(path: str, key: str, value: object) -> str:
    if value not in _CHOICES[key]:
        offer = did_you_mean(value, _CHOICES[key]) if isinstance(value, str) else ""
        raise UsageError(f"{path}: {key} must be one of {', '.join(_CHOICES[key])}.{offer}")
    return str(value)
