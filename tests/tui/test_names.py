"""Our classes call nothing of their own as Textual's call theirs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from ckptdoctor import tui

# what is meant to take the place of Textual's own
MEANT = {"_fatal_error"}


def _classes() -> list[type]:
    modules = [importlib.import_module(each.name) for each in pkgutil.walk_packages(tui.__path__, f"{tui.__name__}.")]
    ours = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    return sorted(
        {each for each in ours if each.__module__.startswith(tui.__name__)}, key=lambda each: each.__qualname__
    )


@pytest.mark.parametrize("ours", _classes(), ids=lambda each: each.__qualname__)
def test_no_private_name_of_textual_is_taken_by_accident(ours):
    """A method of ours that happens to be called as a private one of Textual's would be called in its place."""
    theirs = {name for base in ours.__mro__ if base.__module__.startswith("textual") for name in vars(base)}
    made = {name for name, value in vars(ours).items() if inspect.isfunction(value) or isinstance(value, property)}
    assert {name for name in made & theirs if name.startswith("_") and not name.endswith("__")} <= MEANT
