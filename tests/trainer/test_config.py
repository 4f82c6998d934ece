"""The configuration of a run survives the way to another process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.config import SAVES, RunConfig

configs = st.builds(
    replace,
    st.just(RunConfig()),
    lr=st.floats(1e-6, 1),
    out=st.text(),
    save=st.lists(st.sampled_from(SAVES)).map(tuple),
    data_dir=st.none() | st.text(),
    resume=st.booleans(),
    width=st.none() | st.integers(1, 64),
)


@given(configs)
def test_what_is_written_as_json_is_read_back(config):
    """Every field comes back as it was, tuples as tuples."""
    assert RunConfig.from_json(config.to_json()) == config


@given(configs)
def test_fields_of_a_newer_version_are_passed_over(config):
    """A field that this version does not know is not an error."""
    text = config.to_json().replace("{", '{"not yet invented": 1,', 1)
    assert RunConfig.from_json(text) == config


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "3", '{"save": 3}'])
def test_anything_else_is_a_usage_error(text):
    """Text that is no configuration is refused with a sentence."""
    with pytest.raises(UsageError, match="this is not the configuration of a run"):
        RunConfig.from_json(text)
