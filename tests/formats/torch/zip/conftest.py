"""What the tests of torch archives share."""

import pytest
import torch

from tests.formats.torch.zip import forge, rewriting


@pytest.fixture
def parts():
    """The records of a sound archive, ready to be forged."""
    return forge.parts_of(forge.saved(forge.CONTENTS))


@pytest.fixture
def path(tmp_path):
    """A file that torch wrote, with a state dict of prefixed keys."""
    torch.save(rewriting.CONTENTS, tmp_path / "file.pt")
    return tmp_path / "file.pt"
