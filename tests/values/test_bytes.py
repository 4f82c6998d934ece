"""Loading the machine code of torch before torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = "import sys; from ckptdoctor.values.bytes import load_beforehand; load_beforehand(); "


def said(code, folder=None):
    """What such a program prints, in a process of its own, where ``folder`` comes first on the path."""
    path = f"import sys; sys.path.insert(0, {str(folder)!r}); " if folder is not None else ""
    command = [sys.executable, "-c", path + BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_library_is_there_and_torch_is_not():
    """On Linux importing torch then takes what has been loaded; it works as always, there and elsewhere."""
    code = (
        "from pathlib import Path; maps = Path('/proc/self/maps'); "
        "print(maps.exists() and 'libtorch_cpu' in maps.read_text(), 'torch' in sys.modules); "
        "import torch; print(int(torch.ones(3).sum()), torch.linalg.det(torch.eye(3)).item())"
    )
    assert said(code) == [str(sys.platform == "linux"), "False", "3", "1.0"]


@pytest.mark.parametrize("library", [None, b"", b"no library"])
def test_a_torch_of_another_make_is_left_to_be_imported(library, tmp_path):
    """Nothing is loaded where there is no library, or none that can be loaded, and nothing is said."""
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text("make = 'another'")
    if library is not None:
        (folder / "lib" / "libtorch_python.so").write_bytes(library)
    assert said("import torch; print(torch.make)", tmp_path) == ["another"]
