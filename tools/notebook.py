"""Executes docs/notebook.ipynb and keeps what its cells show; with --check, says where that is no longer true.

pip install -c constraints.txt -e '.[slow]' && python tools/notebook.py [--check]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
SAMPLE = ROOT / "sample_ckpts" / "sick" / "N401-module-prefix.pt"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_SECONDS = re.compile(r"\d+\.\d\d s\b")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    import nbformat

    before = nbformat.read(NOTEBOOK, as_version=4)
    after = executed(before)
    wrong = [
        number
        for number, (old, new) in enumerate(zip(before.cells, after.cells, strict=True))
        if shown(old) != shown(new)
    ]
    if check and wrong:
        for number in wrong:
            print(f"cell {number} shows\n{shown(after.cells[number])}\nand not\n{shown(before.cells[number])}\n")
        sys.exit(f"{NOTEBOOK.name} is out of date: run tools/notebook.py.")
    if not check:
        nbformat.write(after, NOTEBOOK)


def executed(notebook: Any) -> Any:
    """The notebook with what its cells give, run in a folder that holds the sample as ``model.pt``."""
    import nbformat
    from nbclient import NotebookClient

    fresh = nbformat.from_dict(notebook)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.pt").write_bytes(SAMPLE.read_bytes())
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ["COLUMNS"] = "100"  # lines are as long wherever it runs
        client = NotebookClient(fresh, timeout=200, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute()
    for cell in fresh.cells:
        cell.metadata.pop("execution", None)  # times of this run
        for output in cell.get("outputs", []):
            if output.output_type == "error":  # the frames are of this machine
                output.traceback = [f"{output.ename}: {output.evalue}"]
    return fresh


def shown(cell: Any) -> str:
    """What a cell shows as text: streams, results, and the last line of errors; seconds are all alike."""
    told = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            told.append(output.text)
        elif output.output_type == "error":
            told.append(f"{output.ename}: {output.evalue}")
        else:
            told += [str(output.data[kind]) for kind in ("text/plain", "text/html") if kind in output.data]
    return _SECONDS.sub("0.00 s", _ESCAPES.sub("", "\n".join(told)))


if __name__ == "__main__":
    main()
