"""Which attributes of a module are parameters and buffers: the code of its class says so, in lists of names.

The code is text that is searched for these lists, never run.
Source: ``torch::jit::PythonPrintImpl::printModuleMetadata``.
"""

from __future__ import annotations

import re

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.archives import Archive
from ckptdoctor.noun import noun

_MOST_CODE = 16 << 20

_CLASS = re.compile(r"^class ([^\s(:]+)\(Module\):\n((?:  __[a-z_]+__ = \[[^\n]*\]\n)*)", re.MULTILINE)
_LIST = re.compile(r"^  __(parameters|buffers)__ = \[([^\n]*)\]$", re.MULTILINE)
# it also takes a name that nothing closes: to look for a quote in all of the rest again and again would be quadratic
_NAME = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?\Z)', re.DOTALL)


@noun
class Attributes:
    """The names of parameters and buffers; ``buffers`` is None where the code is too old to list them."""

    parameters: frozenset[str]
    buffers: frozenset[str] | None


class Classes:
    """The classes of one archive, each file of code read at most once."""

    def __init__(self, source: Source, archive: Archive, folder: str) -> None:
        self._source = source
        self._archive = archive
        self._folder = folder
        self._files: dict[str, dict[str, Attributes]] = {}

    def find(self, full_name: str) -> Attributes | None:
        """The attributes of ``__torch__.package.Class``; None for what is no module, or has no code."""
        module, _, name = full_name.rpartition(".")
        path = f"{self._folder}code/{module.replace('.', '/')}.py"
        if path not in self._files:
            self._files[path] = self._read(path)
        return self._files[path].get(name)

    def _read(self, path: str) -> dict[str, Attributes]:
        try:
            code = self._archive.read(self._source, path, _MOST_CODE).decode("utf-8", "replace")
        except DamagedError:
            return {}
        return {name: _attributes(lists) for name, lists in _CLASS.findall(code)}


def _attributes(lists: str) -> Attributes:
    found = {kind: frozenset(_NAME.findall(names)) for kind, names in _LIST.findall(lists)}
    return Attributes(found.get("parameters", frozenset()), found.get("buffers"))
