"""Who may import whom, held against every import of every module and test; and what is loaded while commands run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ckptdoctor"

# The rooms of the house, in the order in which they can be read: each imports only what stands before it
ORDER = (
    # words and nouns
    *("wording", "brief", "noun", "regex", "escape", "shell", "errors", "crash", "config", "checkpoint"),
    # bytes: pickles, files, other machines
    *("pickles", "writing", "inplace", "remote"),
    # what several rooms ask, edits and what they compute, containers
    *("facts", "match", "casting", "edits", "computing", "formats"),
    # what is found and said
    *("findings", "differences", "filters"),
    # values, rules, what errors say, what is expected
    *("loading", "values", "rules", "explaining", "target"),
    # one capability each
    *("account", "prove", "diagnose", "sealing", "repair", "examine", "fit"),
    *("converting", "salvaging", "diffing", "against", "grafting", "look", "runs", "stores", "pruning", "watching"),
    *("rendering", "trainer", "tui", "cli"),
    # the doors: what they open is imported inside functions, or when a name is asked for
    *("api", "integrations", "autoexplain", "run", "pytest_plugin", "__init__", "__main__"),
)

# only these may import these, and only inside functions
HEAVY = {
    "torch": {"fit", "loading", "trainer", "target"},
    "numpy": {"loading", "values", "casting", "computing", "against"},
    "safetensors": {"trainer"},
    "fsspec": {"remote"},
    "huggingface_hub": {"remote"},
    "zstandard": {"formats"},
    "ray": {"stores"},
    "pyarrow": {"stores"},
    "textual": {"tui"},
    "rich": {"trainer", "cli", "tui"},
}

# but the trainer is written with torch in every line, and imported inside a function itself: all of it but what has to
# run before torch starts, or without it. So are the rooms that compute with NumPy
AT_ONCE = {"trainer", "tui", "casting", "computing", "values", "against"}
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


@cache
def imports(path):
    """Every import statement of a file: the dotted name, and whether it is carried out when the file is imported."""
    return tuple(_imports(path))


def _imports(path):
    for node, at_once in import_statements(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import: the law reads absolute ones"
            if node.module == "ckptdoctor":
                names = [alias.name for alias in node.names if alias.name != "__version__"]
                yield from ((f"ckptdoctor.{name}", at_once) for name in names)
            elif node.module:
                yield node.module, at_once


@cache
def import_statements(path):
    """Those of a file, wherever they stand, and whether each is carried out when the file is imported."""
    found = statements(ast.parse(path.read_text(encoding="utf-8")), True)
    return [(node, at_once) for node, at_once in found if isinstance(node, (ast.Import, ast.ImportFrom))]


def statements(above, at_once):
    """Every statement below, and whether it is carried out on import; no expression, for none can hold a statement."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(above, field, ()):
            yield node, at_once
            yield from statements(node, at_once and not waits(node))


def waits(node):
    """Whether what stands below is not carried out on import: functions, and blocks for type checkers."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_the_order_names_every_room():
    """A new room has to say where it stands."""
    assert sorted({part(path) for path in MODULES}) == sorted(ORDER)


def strays(path):
    """The imports of a module from rooms that stand after its own."""
    own = ORDER.index(part(path))
    names = {name for name, _ in imports(path) if name.split(".")[0] == "ckptdoctor"}
    return {name for name in names if ORDER.index(part(name)) > own}


def test_no_room_imports_one_that_stands_after_it():
    """Wherever the import stands: at the top, in a function, or for type checkers alone."""
    found = {str(path.relative_to(PACKAGE)): strays(path) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}
    assert len(found) > 500


def circles():
    """Sets of modules each of which imports, by way of others, all of its set."""
    named = {".".join(("ckptdoctor", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in MODULES}
    named = {name.removesuffix(".__init__"): path for name, path in named.items()}
    below = {name: set(_modules_in(path, named)) - {name, "ckptdoctor"} for name, path in named.items()}
    reached = {name: _reached(name, below) for name in below}
    found = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in reached}
    return {tuple(name.removeprefix("ckptdoctor.") for name in each) for each in found if len(each) > 1}


def _modules_in(path, named):
    """The modules that a file imports: of a package that it takes names from, those that are modules, or itself."""
    for node, _ in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module in named:
            yield from (full if (full := f"{node.module}.{each.name}") in named else node.module for each in node.names)


def _reached(module, below):
    seen, left = set(), [module]
    while left:
        for other in below[left.pop()] - seen:
            seen.add(other)
            left.append(other)
    return seen


def test_no_files_import_each_other_in_a_circle():
    """Wherever the imports stand."""
    assert circles() == set()


def test_private_names_are_used():
    """What a module keeps to itself is named in it once more than where it is made, or is left over from a change."""
    made = re.compile(r"^(?:def |class )?(_[a-z]\w*)(?=\(| = |: )", re.IGNORECASE | re.MULTILINE)
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        words = Counter(re.findall(r"\w+", text))
        alone = {name for name in made.findall(text) if words[name] == 1}
        assert alone <= {"_assert_loads"}, path  # a fixture, which pytest asks for by another name


def test_heavy_libraries_wait_until_they_are_needed():
    """torch is imported by loading, inside functions, and by the trainer; numpy by what computes or gives values."""
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


def loaded_after(lines, folder):
    """What each of these command lines brought into memory, run one after another in a process of their own."""
    code = (
        "import sys\n"
        "from ckptdoctor.cli.main import main\n"
        f"for line in {lines!r}:\n"
        "    try:\n"
        "        main(line)\n"
        "    except SystemExit as end:\n"
        "        print('status', end.code, file=sys.stderr)\n"
        "    print('modules', *sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    said = [each.split() for each in result.stderr.splitlines() if each.startswith(("status ", "modules "))]
    assert [each[0] for each in said] == ["status", "modules"] * len(lines), result.stderr
    assert {each[1] for each in said[::2]} <= {"0", "1"}, result.stderr
    return [{name.split(".")[0] for name in each[1:]} for each in said[1::2]]


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
def test_no_heavy_library_is_loaded(folder, name):
    """Neither torch, numpy, safetensors, textual, rich nor what reaches other machines is in memory afterwards."""
    loaded = loaded_after([[command[0], name, *command[1:]] for command in COMMANDS], folder)
    assert [each & set(HEAVY) for each in loaded] == [set()] * len(COMMANDS)


def test_torch_is_not_loaded_to_be_named(folder):
    """Neither by --version, nor where a failure is told in one line: also that torch is not installed."""
    assert loaded_after([["--version"]], folder)[0] & set(HEAVY) == set()
    code = (
        "import sys\n"
        "from ckptdoctor.crash import no_torch, one_line\n"
        "print(no_torch() == one_line(ModuleNotFoundError(name='torch')), one_line(ValueError('x')), *sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("True ckptdoctor itself failed: ValueError")
    assert "torch" not in result.stdout.split()


def test_what_runs_before_torch_does_not_load_it():
    """Choosing GPUs comes before torch: it looks at CUDA_VISIBLE_DEVICES once. Starting ranks takes no torch either."""
    code = (
        "import importlib, sys\n"
        f"for module in {BEFORE_TORCH!r}:\n"
        "    importlib.import_module(module)\n"
        f"    print(module, *{set(HEAVY)!r} & set(sys.modules))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == BEFORE_TORCH


def test_importing_the_package_loads_nothing():
    """``import ckptdoctor`` costs next to nothing: no other module of the package is loaded."""
    code = "import ckptdoctor, sys; print(*[name for name in sys.modules if name.startswith('ckptdoctor')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["ckptdoctor"]


TESTS = Path(__file__).parent

# The doors of the rooms: what people call and read, and what rooms give to those that come after them. Tests of other
# rooms ask through these; what lies behind them can be moved and merged without a test that notices
DOORS = {
    *("", "__main__", "brief", "config", "crash", "differences", "errors", "findings"),
    *("noun", "regex", "wording"),
    *("checkpoint", "checkpoint.dtypes", "checkpoint.expectation", "checkpoint.progress"),
    *("pickles", "pickles.decode", "pickles.encode", "pickles.opcodes", "writing", "edits"),
    *("edits.applied.apply_edits", "edits.applied.wanted"),
    *("formats", "loading", "loading.load", "target.mapping"),
    *("values.statistics", "filters.table", "values.differences", "values.examine"),
    *("rules.examples", "rules.framework", "rules.registry"),
    *("explaining.explanation", "explaining.recognise"),
    *("diagnose.catalogue", "diagnose.events", "diagnose.findings", "diagnose.selection", "diagnose.settings"),
    *("repair.plan", "repair.repair", "repair.request", "converting.conversion", "converting.request"),
    *("examine.file", "examine.files", "examine.targets", "fit.fit", "fit.state_dict"),
    *("salvaging.salvage", "diffing.diff", "diffing.request", "look.inspector"),
    *("trainer.config", "trainer.run", "cli.exit_status", "cli.main"),
    *("integrations.transformers", "integrations.lightning", "integrations.ray"),
}

# The rooms whose tests list even what they see of their own room; "" are the files next to this one. Tests of all
# others may look inside the room that they mirror
NOT_EVEN_THEIR_OWN = {
    *("", "checkpoint", "diffing", "examine", "loading", "look", "oracles", "pickles", "real", "rendering"),
}

# What tests import from behind a door all the same. To be made shorter: a line that is no longer true has to go
BEHIND_DOORS = {
    # the makers of checkpoints without a file are nouns of other rooms put together
    "rules/nouns.py": {"checkpoint.state_dicts", "checkpoint.tensor", "checkpoint.weights", "match.comparison"},
    "rendering/samples.py": {"checkpoint.tensor"},
    # the laws of all examples ask for what no command shows: the request of a command, of which they want the plan
    "rules/sick.py": {"cli.fix"},
    "rules/test_printed_commands.py": {"checkpoint.weights"},
    # what rules are made of, given what no reader gives: a note of each kind, a comparison of nothing
    "rules/test_framework.py": {"match.comparison"},
    "rules/test_notes.py": {"values.damage"},
    # how often folders are grouped, which no command shows
    "stores/test_recall.py": {"runs.grouping"},
    # plain functions of names, shapes and sizes, asked for hundreds of them or for how their work grows
    "checkpoint/test_changed_trees.py": {"checkpoint.changed_trees"},
    "checkpoint/test_cached_by_identity.py": {"checkpoint.cached_by_identity"},
    "checkpoint/test_key_patterns.py": {"checkpoint.patterns", "rules.kit.wording", "rules.reference.missing_keys"},
    "rules/adapter/test_adapter_not_merged.py": {"facts.adapters"},
    "rules/kit/test_allowing.py": {"facts.globals"},
    "rules/adapter/test_layouts.py": {"rules.adapter.layouts"},
    "rules/container/test_archive_wrapped_checkpoint.py": {"formats.suffixes"},
    "rules/optimizer/test_broadcasting.py": {"rules.optimizer.optimizer_order_mismatch"},
    "rules/pickle/test_payload.py": {"rules.pickle.huge_non_tensor_payload"},
    # nouns that no reader gives: first bytes of no file, parts of views, storages that overlap, trees that are odder
    # than their paths say
    "checkpoint/test_first_bytes.py": {"checkpoint.first_bytes"},
    "checkpoint/test_mapping_at.py": {"checkpoint.tree"},
    "checkpoint/test_same_bytes.py": {"checkpoint.sharing"},
    "checkpoint/test_sharing.py": {"checkpoint.sharing"},
    "checkpoint/test_tensor.py": {"checkpoint.tensor"},
    "checkpoint/test_weights.py": {"checkpoint.weights"},
    "look/test_filtered.py": {"look.filtered"},
    # the machine is asked for its tables, of which each opcode has to be in one, and for what it folds
    "pickles/test_tensor_opcodes.py": {
        *("pickles.graph", "pickles.opcode_handlers.containers", "pickles.weights_only"),
    },
    # a limit that is lowered, or a step that is counted
    "pickles/test_nested.py": {"pickles.nested"},
    "examine/test_deep.py": {"examine.deep"},
    "examine/test_integrity.py": {"checkpoint.source", "examine.integrity", "values.storage_damage"},
    "loading/test_runs.py": {"loading.storages"},
    "rules/file/test_disk_holes.py": {"rules.file.zero_filled_region"},
    "rules/values/test_base.py": {"examine.deep"},
    # writers that are asked for what no request asks for
    "rules/pickle/test_whole_module_fix.py": {"rendering.fix_json", "rendering.fix_text"},
    # saves as on another machine
    "rules/device/test_xla_rebuild.py": {"trainer.snapshot.training"},
    "test_samples.py": {"trainer.networks", "trainer.snapshot.training"},
    # tables of one room that another has to agree with
    "cli/test_show_filter.py": {"filters.words"},
    "cli/test_show_stats.py": {"rendering.value_table"},
    "look/test_inspector.py": {"values.extremes", "values.preview"},
    "test_python_api.py": {"api.arguments"},
    "test_docs.py": {"formats.registry", "rendering.sarif"},
    # the words of commands, whatever they are
    "test_shell.py": {"shell"},
    # what is shown of a noun, asked without the command around it
    "watching/test_watch.py": {"rendering.watch"},
    "cli/test_explain.py": {"rendering.explain"},
    "explaining/test_hostile_text.py": {"rendering.explain"},
    "explaining/test_threads.py": {"rendering.explain"},
    "explaining/test_load_error.py": {"match.shapes.pairs"},
    # renderers, given reports that no file gives: hostile text in every part, golden screens that no rule changes
    "rendering/test_diff.py": {"diffing.summary", "rendering.diff_json", "rendering.diff_text"},
    "rendering/test_depth.py": {"rendering.depth"},
    "rendering/test_fates.py": {"rendering.fates"},
    "rendering/test_full.py": {"rendering.full", "rendering.paint"},
    "rendering/test_markdown.py": {"rendering.markdown"},
    "rendering/test_renumbered.py": {"rendering.fix_text"},
    "rendering/test_sarif.py": {"rendering.sarif"},
    "rendering/test_tree.py": {"rendering.contents", "rendering.devices", "rendering.show_json", "rendering.tree"},
    # plain functions of text and numbers, asked for whatever Hypothesis thinks of
    "rendering/html/test_parts.py": {
        *("rendering.html.charts", "rendering.html.markup", "rendering.html.table", "rendering.html.treemap"),
    },
    "rendering/test_escape.py": {"rendering.escape"},
    "rendering/test_grouping.py": {"rendering.grouping"},
    "rendering/test_numbers.py": {"rendering.numbers"},
    "rendering/test_value_numbers.py": {"rendering.value_numbers"},
    "rendering/test_wrapping.py": {"rendering.wrapping"},
    # what the browser offers, and what it says before it takes the terminal
    "examine/test_offers.py": {"examine.offers"},
    "examine/test_paths.py": {"examine.paths"},
    "test_brief.py": {"edits.elements"},
    "tui/models/test_comparison.py": {"rendering.depth"},
    "tui/test_damaged_shard.py": {"rendering.fates"},
    "tui/models/test_command_line.py": {"rendering.escape", "rendering.shell"},
    # makers of edits, of files and of contents: what is asked of them is asked of all kinds, of sabotaged ones too
    "account/repairs.py": {"edits.computing"},
    "account/sabotage.py": {"checkpoint.changed_trees", "edits.elements"},
    "account/test_account.py": {"checkpoint.changed_trees", "repair.draft"},
    "pairs/models.py": {"trainer.networks"},
    "repair/applying.py": {"account.account"},
    "inplace/test_promises.py": {"repair.in_place"},
    "repair/test_index.py": {"cli.fix", "converting.repaired"},
    # what is computed is held against what proves it, and contents that were written against those that were wanted
    "converting/test_dcp.py": {"formats.fresh.dcp", "formats.fresh.strided"},
    "converting/test_repaired.py": {"casting.cast", "formats.fresh.strided", "formats.suffixes"},
    "edits/applied/test_apply_edits.py": {"checkpoint.state_dicts", "prove.same_contents"},
    "edits/applied/test_casting.py": {"casting.cast"},
    "edits/applied/test_densifying.py": {"prove.elements"},
    "edits/test_elements.py": {"formats.elements", "prove.elements"},
    "formats/fresh/test_strided.py": {"checkpoint.tensor", "writing.checksums"},
    "formats/torch/patch/test_repickle.py": {"prove.same_contents"},
    "formats/torch/patch/test_shared_dicts.py": {"prove.same_contents"},
    "repair/test_dequantizing.py": {"formats.elements.quantization", "prove.quantization"},
    "repair/test_fusing_norms.py": {"edits.norms", "prove.norms"},
    "repair/test_merge_adapter.py": {"edits.computing"},
    "repair/test_orthogonal.py": {"computing.proof", "edits.computing", "edits.elements"},
    "against/test_formats.py": {"values.ggml_blocks"},
    # edits of whole modules name the tensors of these; what a plan says of an edit that no option asks for
    "edits/applied/test_told.py": {"rendering.fix_json", "rendering.fix_text"},
    "edits/applied/test_unwrapping.py": {"rules.kit.sharded_samples"},
    "formats/torch/patch/test_flatten.py": {"facts.whole_modules"},
    "formats/torch/patch/test_to_cpu.py": {"facts.whole_modules", "trainer.snapshot.training"},
    "formats/torch/tar/test_read.py": {"facts.whole_modules"},
    "repair/test_optimizers_by_name.py": {"rendering.fix_text"},
    # examined a thousand times, where every rule would take its time as well
    "formats/mangling.py": {"examine.integrity"},
    # nouns of one room that another is asked about, and its plain functions of texts and shapes
    "facts/test_optimizers.py": {"rules.optimizer.optimizer_order_mismatch"},
    "formats/folders/test_other_folders.py": {"rules.sharding.deepspeed_dir"},
    "formats/fresh/test_sidecar.py": {"checkpoint.keypath"},
    "grafting/test_heal.py": {"edits.grafts"},
    "grafting/test_refusals.py": {"edits.grafts"},
    "repair/test_repair_watched.py": {"checkpoint.process"},
    "repair/test_splitting.py": {"match.shapes.projections"},
    "target/test_error_text.py": {"match.shapes.pairs", "rules.incompatible_keys"},
    "trainer/progress/test_page.py": {"rendering.escape"},
}


def behind_doors(path):
    """The modules of the package that a file of tests imports from behind the doors."""
    room = room_of_tests(path) if room_of_tests(path) not in NOT_EVEN_THEIR_OWN else None
    named = {each.removeprefix("ckptdoctor").removeprefix(".") for each in package_modules_of(path)}
    return {name for name in named - DOORS if name.split(".")[0] != room or holds_a_rule(name)}


@cache
def package_modules_of(path):
    """The modules of the package that a file imports, wherever the imports stand."""
    return frozenset(_package_modules_of(path))


def _package_modules_of(path):
    for node, _ in import_statements(path):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] == "ckptdoctor")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ckptdoctor":
            yield from (full if is_module(full := f"{node.module}.{each.name}") else node.module for each in node.names)


def is_module(name):
    """Whether this dotted name is one of the modules of the package."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def holds_a_rule(name):
    """Whether a module stands in a family of rules: those are asked by their codes, by their own tests as well."""
    room, _, below = name.partition(".")
    return room == "rules" and "." in below and not below.startswith("kit.")


def test_every_door_is_there():
    """A door that was moved is named anew."""
    assert {name for name in DOORS if name and not is_module(f"ckptdoctor.{name}")} == set()


def test_every_door_is_used():
    """One that no test goes through any more is taken off the list."""
    used = {each for path in TESTS.rglob("*.py") for each in package_modules_of(path)}
    assert {name for name in DOORS if name and f"ckptdoctor.{name}" not in used} == set()


def test_tests_go_through_doors():
    """What is behind a door is imported where the list says so, and by the tests of its room where they may.

    A rule is asked by its code: what the list has of the families of rules is evidence, and no rule.
    """
    found = {path.relative_to(TESTS).as_posix(): behind_doors(path) for path in TESTS.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == BEHIND_DOORS
    assert len(found) > 300


def room_of_tests(path):
    """The folder of tests that a file belongs to; "" for those next to this one."""
    parts = path.relative_to(TESTS).parts
    return parts[0] if len(parts) > 1 else ""
