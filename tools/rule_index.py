"""Writes ``ckptdoctor/rules/index.py`` from what rules read and say in ``when=``: ``python tools/rule_index.py``."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from ckptdoctor.checkpoint import Checkpoint, Container  # noqa: E402
from ckptdoctor.rules.framework import Rule  # noqa: E402
from ckptdoctor.values.damage import Integrity  # noqa: E402
from ckptdoctor.values.statistics import Values  # noqa: E402

RULES = ROOT / "ckptdoctor" / "rules"
INDEX = RULES / "index.py"
_HEAD = '''"""A file concerns some rules only, told before any of them is imported: module → its ``when=``.

``DEEP`` are the modules of rules that read what is found in every byte, whatever the file.

Generated: ``python tools/rule_index.py`` writes it from the rules, and a test compares it with them.
"""

from __future__ import annotations
'''


def index() -> str:
    """The module, as it follows from the rules. Raises ValueError for a rule whose condition cannot be moved."""
    imports: dict[str, set[str]] = {"ckptdoctor.rules.when": {"Condition"}}
    outside, inside, deep = [], [], []
    for path in sorted(RULES.glob("*/*.py")):
        if _reads_bytes(path):
            deep.append(f'    "{path.parent.name}.{path.stem}",')
        found = condition(path)
        if found is None:
            continue
        said, needed = found
        for module, name in needed:
            imports.setdefault(module, set()).add(name)
        name = f"{path.parent.name}.{path.stem}"
        row = f'    "{name}": {said},'
        subject = _subject(name)
        outside += [row] * (Container in subject)
        inside += [row] * (Checkpoint in subject)
    lines = [f"from {module} import {_listed(names)}" for module, names in sorted(imports.items())]
    tables = [
        f"{name}: dict[str, Condition] = {{\n{chr(10).join(rows)}\n}}"
        for name, rows in (("OUTSIDE", outside), ("INSIDE", inside))
    ]
    tables.append(f"DEEP: tuple[str, ...] = (\n{chr(10).join(deep)}\n)")
    return "\n".join([_HEAD, *lines, "", "\n".join(tables)]) + "\n"


def _reads_bytes(path: Path) -> bool:
    """Whether a module holds a rule that reads checksums or values."""
    module = importlib.import_module(f"ckptdoctor.rules.{path.parent.name}.{path.stem}")
    subjects = [each.subject for each in vars(module).values() if isinstance(each, Rule)]
    return any({Integrity, Values}.intersection((each, *get_args(each))) for each in subjects)


def condition(path: Path) -> tuple[str, set[tuple[str, str]]] | None:
    """The text of a rule's ``when=``, and what it takes from which module; None for a rule without one."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _is_rule(each)]
    said = [each.value for call in calls for each in call.keywords if each.arg == "when"]
    if not said:
        return None
    known = {
        alias.asname or alias.name: (each.module or "", alias.name)
        for each in tree.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    used = {each.id for each in ast.walk(said[0]) if isinstance(each, ast.Name)}
    if not used <= known.keys():
        raise ValueError(f"{path.name}: when= needs {', '.join(used - known.keys())}, which the index cannot import")
    text = ast.get_source_segment(source, said[0]) or ""
    return " ".join(text.split()), {known[name] for name in used}


def _is_rule(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "rule"


def _subject(name: str) -> tuple[object, ...]:
    """What the rule of a module reads."""
    module = importlib.import_module(f"ckptdoctor.rules.{name}")
    (only,) = [each for each in vars(module).values() if isinstance(each, Rule)]
    return (only.subject, *get_args(only.subject))


def _listed(names: set[str]) -> str:
    """Imported names, as they are sorted and broken into lines here."""
    listed = sorted(names, key=lambda name: (not name[:1].isupper(), name.lower()))
    return listed[0] if len(listed) == 1 else "(\n    " + ",\n    ".join(listed) + ",\n)"


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
