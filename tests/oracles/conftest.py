"""The libraries, and the command on a file and a target."""

from __future__ import annotations

import importlib
import importlib.util
from unittest import mock

import pytest
import torch

from tests.commands import run


@pytest.fixture
def fixed(tmp_path):
    """``fixed(state_dict, like, *options)``: what ``fix`` writes of one for the other."""

    def make(source, like, *options, status=0):
        torch.save(source, tmp_path / "source.pt")
        torch.save(like, tmp_path / "like.pt")
        done = run("fix", "source.pt", "--like", "like.pt", "-o", "out.pt", "--force", *options, cwd=tmp_path)
        assert done.returncode == status, done.stdout + done.stderr
        return torch.load(tmp_path / "out.pt", weights_only=True) if status == 0 else done.stdout.decode()

    return make


@pytest.fixture(autouse=True, scope="session")
def _torchvision():
    """What timm, OpenCLIP and transformers import."""
    if importlib.util.find_spec("torchvision") is not None:
        library("torchvision")


def library(name):
    """A library that imports torchvision, of which only plain Python is needed: also where that was built for CUDA."""
    register = torch.library.register_fake

    def but_of_torchvision(operator, *arguments, **options):
        if isinstance(operator, str) and operator.startswith("torchvision::"):
            return lambda function: function
        return register(operator, *arguments, **options)

    with mock.patch.object(torch.library, "register_fake", but_of_torchvision):
        return pytest.importorskip(name, exc_type=ImportError)


def module_of(package, path):
    """One file of a package, without the package around it, which asks for more than the file does."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    spec = importlib.util.spec_from_file_location(f"{package}_file", f"{found.submodule_search_locations[0]}/{path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
