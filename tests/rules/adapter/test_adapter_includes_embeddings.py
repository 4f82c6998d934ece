"""L907: which of the tensors beside an adapter are embeddings."""

from __future__ import annotations

import pytest

from ckptdoctor.rules.examples import T
from tests.rules.nouns import findings

Q = "base_model.model.model.layers.0.q_proj"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("model.embed_tokens.weight", True),
        ("lm_head.modules_to_save.default.weight", True),
        ("my_lm_head.weight", False),
        ("lm_head.bias", False),
    ],
)
def test_embeddings_are_told_as_tokens(key: str, told: bool) -> None:
    """A name that merely holds the word is none, and neither is a bias."""
    contents = {f"{Q}.lora_A.weight": T((2, 4)), f"{Q}.lora_B.weight": T((4, 2)), f"base_model.model.{key}": T((90, 4))}
    assert bool(findings("L907", contents)) is told
