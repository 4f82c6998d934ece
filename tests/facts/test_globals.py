"""Names of classes and functions: what torch accepts, what is dangerous."""

from __future__ import annotations

import pytest
import torch._weights_only_unpickler as unpickler

from ckptdoctor.facts.globals import (
    NEEDS_IMPORT,
    WEIGHTS_ONLY,
    is_allowed,
    is_dangerous,
    is_standard,
    modern,
)


def test_the_allow_list_is_the_installed_torch_s():
    """Every name that torch accepts is on the list, and no other."""
    assert {f"{module}.{name}" for module, name in WEIGHTS_ONLY} == set(unpickler._get_allowed_globals())


def test_no_allowed_name_is_dangerous_or_needs_an_import():
    """The two lists do not contradict each other."""
    assert not [pair for pair in WEIGHTS_ONLY if is_dangerous(*pair)]
    assert not [path for path in NEEDS_IMPORT if is_allowed(*path.rsplit(".", 1))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("__builtin__", "set"), ("builtins", "set")),
        (("__builtin__", "xrange"), ("builtins", "range")),
        (("cPickle", "loads"), ("pickle", "loads")),
        (("argparse", "Namespace"), ("argparse", "Namespace")),
    ],
)
def test_python_2_names_become_python_3_s(old, new):
    """Protocol 2 writes the old names, and torch reads them as the new ones."""
    assert modern(*old) == new


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("posix", "system"),
        ("subprocess", "Popen"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("runpy", "_run_code"),
        ("importlib", "import_module"),
        ("torch.hub", "load"),
        ("torch.storage", "_load_from_bytes"),
        ("numpy", "__builtins__.eval"),
        ("torch.serialization", "os.system"),
        ("torch", "_utils.os.popen"),
        ("pip._internal", "main"),
        ("_xxsubinterpreters", "run_string"),  # of Python 3.12
        ("_interpreters", "run_string"),  # the same of 3.13
        ("concurrent.interpreters", "Interpreter.exec"),  # and of 3.14
        ("pydoc", "pipepager"),
        ("_pyrepl.pager", "pipe_pager"),
    ],
)
def test_names_that_run_code_are_dangerous(module, name):
    """Exact names, whole modules, and names that walk from attribute to attribute."""
    assert is_dangerous(module, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("argparse", "Namespace"),
        ("pathlib", "PosixPath"),
        ("types", "SimpleNamespace"),
        ("mypackage.os", "Thing"),
        ("models.code.net", "Net"),
        ("code.models", "Net"),
        ("__main__", "Net"),
        ("__main__", "Outer.Inner"),
        ("torch.nn.modules.linear", "Linear"),
        ("numpy._core.multiarray", "scalar"),
    ],
)
def test_everyday_names_are_not_dangerous(module, name):
    """Configuration, layers and the user's own classes, even in modules of unlucky names."""
    assert not is_dangerous(module, name)


def test_the_script_is_not_part_of_python():
    """__main__ is the user's."""
    assert is_standard("argparse")
    assert not is_standard("__main__")
    assert not is_standard("yaml.nodes")


@pytest.mark.parametrize(
    "path", ["distutils.version.LooseVersion", "asyncore.dispatcher", "chunk.Chunk", "tomllib.TOMLDecodeError",
             "compression.zstd.ZstdDict"]
)  # fmt: skip
def test_what_only_some_pythons_have_is_part_of_every_one(path):
    """Modules that Python dropped or added: what is said of a file does not depend on who says it."""
    assert is_standard(path)
