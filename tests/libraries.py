"""Libraries that a few tests are about, and which take seconds and gigabytes: imported when a test first uses one.

One worker runs all tests that do (the mark ``real``), so that the others never import them; and all of them are slow,
so that the first run needs none of it installed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

# what no module of tests imports by being collected, and what only marked tests import at all
NEVER_COLLECTED = (
    *("accelerate", "diffusers", "lightning", "moto", "peft", "ray", "selenium", "torchmetrics", "transformers"),
)
MARKED_ONLY = ("accelerate", "diffusers", "lightning", "peft", "transformers")

real = pytest.mark.xdist_group("real")


@dataclass(frozen=True)
class Library:
    """A library by its name: what is asked of it is asked of the module; without it the test that asks is skipped."""

    name: str

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks at what a module holds, to find fixtures
            raise AttributeError(attribute)
        how = f"{self.name} is not installed: pip install -c constraints.txt -e '.[slow]'"
        return getattr(pytest.importorskip(self.name, exc_type=ImportError, reason=how), attribute)


accelerate = Library("accelerate")
huggingface_hub = Library("huggingface_hub")
lightning = Library("lightning")
peft = Library("peft")
transformers = Library("transformers")


def imported(names: tuple[str, ...]) -> set[str]:
    """Which of these are imported in this process."""
    return {name for name in names if sys.modules.get(name) is not None}
