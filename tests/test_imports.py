"""Who may import whom, held against every import of every module; and what is really loaded while commands run."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ckptdoctor"

# the nouns: everything may import them, and they import nothing but themselves
NOUNS = {"brief", "checkpoint", "errors", "late"}

# part of the house → the parts it may import
LAW = {
    "brief": set(),
    "checkpoint": set(),
    "errors": set(),
    "late": set(),
    "edits": set(),
    "findings": {"edits"},
    "differences": set(),
    "pickles": set(),
    "writing": set(),
    "facts": set(),
    "explain": {"findings", "facts"},
    "filters": {"findings"},
    "casting": set(),
    "computing": {"edits", "casting"},
    "formats": {"pickles", "writing", "edits", "remote", "casting", "computing"},
    "remote": set(),
    "target": {"formats", "explain"},
    "values": {"loading", "facts", "formats", "differences", "writing"},
    "loading": {"formats", "facts", "findings", "edits", "engine", "target"},
    "trainer": {"loading"},
    "rules": {"facts", "findings", "edits"},
    "prove": {"facts", "edits"},
    "engine": {"formats", "remote", "facts", "target", "rules", "findings", "edits", "writing", "prove"}
    | {"differences", "values", "casting", "computing", "converting", "diffing"},
    # one capability each, on top of the engine
    "diffing": {"engine", "facts", "formats", "differences", "values"},
    "converting": {"engine", "facts", "formats", "edits", "writing"},
    "salvage": {"engine", "facts", "formats", "edits", "writing", "findings", "converting", "prove"},
    "grafting": {"engine", "facts", "formats", "edits", "writing", "values", "differences", "diffing"},
    "look": {"engine", "facts", "formats", "values", "filters", "findings"},
    "report": {"findings", "edits", "explain", "differences", "facts"},
    "tui": {"engine", "report", "findings", "edits", "differences", "filters", "diffing", "look", "salvage"},
    "cli": {"tui", "engine", "report", "config", "findings", "differences", "values", "filters"}
    | {"trainer", "explain", "target", "diffing", "converting", "salvage", "grafting", "look"},
    "config": set(),
    # the doors: what they open is imported inside functions, or when a name is asked for
    "api": {"engine", "formats", "findings", "differences", "values", "target", "edits"}
    | {"diffing", "converting", "grafting"},
    "__init__": {"api", "findings", "differences", "loading", "edits"},
    "__main__": {"cli"},
}

# only these may import these, and only inside functions
HEAVY = {
    "torch": {"loading", "trainer", "target", "values", "casting", "computing"},
    "numpy": {"values"},
    "safetensors": {"trainer"},
    "fsspec": {"remote"},
    "huggingface_hub": {"remote"},
    "zstandard": {"formats"},
    "textual": {"tui"},
    "rich": {"trainer", "cli", "tui"},
}

# but the trainer is written with torch in every line, and imported inside a function itself: all of it but what has to
# run before torch starts, or without it
AT_ONCE = {"trainer", "tui"}
BEFORE_TORCH = [
    "ckptdoctor.trainer.config",
    "ckptdoctor.trainer.checks",
    "ckptdoctor.trainer.gpus",
    "ckptdoctor.trainer.slurm",
    "ckptdoctor.trainer.launch.launcher",
    "ckptdoctor.trainer.launch.variables",
    "ckptdoctor.cli.train",
]

MODULES = sorted(PACKAGE.rglob("*.py"))


def part(module):
    """The part of the house that a dotted name or a path belongs to."""
    steps = module.relative_to(PACKAGE).with_suffix("").parts if isinstance(module, Path) else module.split(".")[1:]
    return steps[0] if steps else "__init__"


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@cache
def imports(path):
    """Every import statement of a file: the dotted name, and whether it is carried out when the file is imported."""
    return tuple(_imports(path))


def _imports(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    waiting = {id(node) for each in ast.walk(tree) if waits(each) for node in ast.walk(each)}
    for node in ast.walk(tree):
        at_once = id(node) not in waiting
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import: the law reads absolute ones"
            if node.module == "ckptdoctor":
                names = [alias.name for alias in node.names if alias.name != "__version__"]
                yield from ((f"ckptdoctor.{name}", at_once) for name in names)
            elif node.module:
                yield node.module, at_once


def waits(node):
    """Whether what stands below is not carried out on import: functions, and blocks for type checkers."""
    if isinstance(node, FUNCTIONS):
        return True
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_the_law_names_every_part():
    """A new part of the house has to say what it may import."""
    assert {part(path) for path in MODULES} == set(LAW)


def strays(path):
    """The imports of a module that the law does not allow."""
    allowed = LAW[part(path)] | NOUNS | {part(path)}
    return {name for name, _ in imports(path) if name.split(".")[0] == "ckptdoctor" and part(name) not in allowed}


def test_imports_obey_the_law():
    """Every import of another part is one that the law allows."""
    found = {str(path.relative_to(PACKAGE)): strays(path) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}
    assert len(found) > 1000


def test_heavy_libraries_wait_until_they_are_needed():
    """torch is imported by loading, inside functions, and by the trainer; numpy and textual by nothing."""
    for path in MODULES:
        for name, at_once in imports(path):
            library = name.split(".")[0]
            if library in HEAVY:
                assert part(path) in HEAVY[library], f"{path} imports {library}"
                assert not at_once or part(path) in AT_ONCE, f"{path} imports {library} before it is needed"


def brought(name, known):
    """Add the dotted names of all that is imported with a module to those that are known."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if name not in known and path.exists():
        known.add(name)
        for other, at_once in imports(path):
            if at_once:
                brought(other, known)
    return known


def test_who_launches_ranks_brings_no_strategy():
    """What checks a run and starts its processes imports none of the strategies: FSDP alone takes a second."""
    strategies = {name for name in brought("ckptdoctor.trainer.run", set()) if ".strategies" in name}
    assert strategies == {"ckptdoctor.trainer.strategies.strategy"}


@pytest.mark.parametrize("path", [path for path in MODULES if part(path) == "checkpoint"], ids=lambda path: path.stem)
def test_the_nouns_need_the_standard_library_only(path):
    """The package of nouns imports nothing but the standard library and itself."""
    roots = {name.split(".")[0] for name, _ in imports(path)}
    assert roots <= sys.stdlib_module_names | {"ckptdoctor"}


def loaded_after(arguments, folder):
    """The modules in memory after a command line, run in a process of its own."""
    code = (
        "import sys\n"
        "from ckptdoctor.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    print('status', end.code, file=sys.stderr)\n"
        "print('modules', *sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    *_, status, modules = result.stderr.strip().split("\n")
    assert status in ("status 0", "status 1"), result.stderr
    return {name.split(".")[0] for name in modules.split()[1:]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a DataParallel checkpoint in both formats."""
    import safetensors.torch
    import torch

    path = tmp_path_factory.mktemp("checkpoints")
    tensors = {"module.conv.weight": torch.ones(4, 3), "module.conv.bias": torch.zeros(4)}
    torch.save(tensors, path / "model.pt")
    safetensors.torch.save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


COMMANDS = [
    ["check"],
    ["check", "--format", "json"],
    ["check", "--deep", "--select", "F"],
    ["check", "--like", "model.pt"],
    ["show"],
    ["show", "--format", "json"],
    ["fix", "--strip-module", "--force"],
]


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_heavy_library_is_loaded(folder, command, name):
    """Neither torch, numpy, safetensors, textual, rich nor what reaches other machines is in memory afterwards."""
    assert not loaded_after([command[0], name, *command[1:]], folder) & set(HEAVY)


@pytest.mark.parametrize("module", BEFORE_TORCH)
def test_what_runs_before_torch_does_not_load_it(module):
    """Choosing GPUs comes before torch: it looks at CUDA_VISIBLE_DEVICES once. Starting ranks takes no torch either."""
    code = f"import sys, {module}; print(*{set(HEAVY)!r} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_importing_the_package_loads_nothing():
    """``import ckptdoctor`` costs next to nothing: no other module of the package is loaded."""
    code = "import ckptdoctor, sys; print(*[name for name in sys.modules if name.startswith('ckptdoctor')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["ckptdoctor"]
