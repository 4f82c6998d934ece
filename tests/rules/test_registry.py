"""How rules are found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ckptdoctor import rules
from ckptdoctor.rules.registry import all_rules, find_rule


def test_every_file_in_a_family_folder_is_found() -> None:
    """No rule is registered by hand: each file of each family folder holds one, or what several of its rules ask."""
    root = Path(rules.__file__).parent
    found = {each.name.replace("-", "_") for each in all_rules()}
    paths = [path for path in root.glob("*/*.py") if path.stem != "__init__" and path.parent.name != "kit"]
    files = {path: path.read_text(encoding="utf-8") for path in paths}
    assert found == {path.stem for path, text in files.items() if re.search(r"^@rule\(", text, re.MULTILINE)}
    for path in files:
        if path.stem not in found:
            family = f"ckptdoctor.rules.{path.parent.name}"
            imported = re.compile(rf"from {family}(?:\.{path.stem} import| import .*\b{path.stem}\b)")
            askers = [each for each, text in files.items() if imported.search(text)]
            assert len(askers) > 1, f"{path} is a paragraph of its only asker"
            assert {each.parent for each in askers} == {path.parent}, f"{path} is asked by several families"


def test_rules_come_in_the_order_of_their_codes() -> None:
    """Tables and reports list them by code."""
    codes = [each.code for each in all_rules()]
    assert codes == sorted(codes)


def test_a_rule_is_found_by_code_and_by_name() -> None:
    """Whatever the case; and what is neither gives None."""
    found = find_rule("n401")
    assert found is not None
    assert found.name == "module-prefix"
    assert find_rule("MODULE-prefix") is found
    assert find_rule("N4") is None


def test_a_rule_of_another_package_is_found_through_its_entry_point(tmp_path: Path) -> None:
    """An installed distribution adds a rule by naming it in the entry point group."""
    (tmp_path / "extra_rules.py").write_text(
        '"""A page."""\n'
        "from collections.abc import Iterator\n"
        "from ckptdoctor.checkpoint import Checkpoint\n"
        "from ckptdoctor.findings import Severity\n"
        "from ckptdoctor.rules.framework import Problem, rule\n"
        '@rule("ZZ001", "extra", Severity.INFO)\n'
        "def extra(checkpoint: Checkpoint) -> Iterator[Problem]:\n"
        '    yield Problem("extra")\n'
    )
    info = tmp_path / "extra-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ckptdoctor.rules]\nextra = extra_rules:extra\n")
    program = "from ckptdoctor.rules.registry import all_rules; print(all_rules()[-1].code)"
    paths = {"PYTHONPATH": f"{tmp_path}:{Path(rules.__file__).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", program], env=paths, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ZZ001", done.stderr
