"""Renumber and Reorder: worked out on the nouns, carried out in the pickle, and held against each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from ckptdoctor.edits import Edit, Renumber, Reorder
from ckptdoctor.errors import RefusedError
from tests.repair.applying import planned, repaired
from tests.repair.same import assert_same

PLACE = ("optimizer", "state")


def _contents() -> dict[str, object]:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    shared = {"step": torch.tensor(3.0)}
    state = {0: shared, 2: {"exp_avg": torch.ones(3)}, "note": [1, 2], 5: shared}
    return {"model": net.state_dict(), "optimizer": {"state": state, "param_groups": []}, "tied": shared}


@pytest.mark.parametrize("old_format", [True, False])
def test_numbers_change_places(old_format: bool, tmp_path: Path) -> None:
    """Also those that are taken by others before; what else is in the dict stays, and what is shared stays shared."""
    contents = _contents()
    torch.save(contents, tmp_path / "x.pt", _use_new_zipfile_serialization=not old_format)
    outcome = repaired(tmp_path / "x.pt", [Renumber(PLACE, ((0, 2), (2, 0), (5, 9)))])
    state = contents["optimizer"]["state"]
    contents["optimizer"]["state"] = {2: state[0], 0: state[2], "note": [1, 2], 9: state[5]}
    assert_same(torch.load(outcome.plan.output), contents)


@pytest.mark.parametrize("pairs", [((0, 2),), ((1, 7),), ((0, 9), (2, 9))])
def test_two_entries_never_become_one(pairs: tuple[tuple[int, int], ...], tmp_path: Path) -> None:
    """A number that is taken, one that is not there, and one for two."""
    torch.save(_contents(), tmp_path / "x.pt")
    with pytest.raises(RefusedError, match="cannot be renumbered"):
        planned(tmp_path / "x.pt", [Renumber(PLACE, pairs)])


@given(order=st.permutations(range(7)), protocol=st.sampled_from([2, 3]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_entries_come_in_any_order(order: list[int], protocol: int, tmp_path: Path) -> None:
    """With ``_metadata`` and values that several entries share."""
    contents = _contents()
    model = contents["model"]
    model["again"] = model["0.weight"]
    keys = list(model)[:7]
    torch.save(contents, tmp_path / "x.pt", pickle_protocol=protocol)
    rest = list(model)[7:]
    wanted = [*[keys[at] for at in order], *rest]
    outcome = repaired(tmp_path / "x.pt", [Reorder(("model",), tuple(wanted))])
    # our own file; of protocols but 2 weights_only warns
    saved = torch.load(outcome.plan.output, weights_only=False)
    made = type(model)([(key, model[key]) for key in wanted])
    made._metadata = model._metadata
    assert_same(saved, {**contents, "model": made})


@pytest.mark.parametrize(
    "edit", [Reorder(("model",), ("0.weight",)), Reorder(("model",), ("a", "b")), Renumber(("tied", "step"), ())]
)
def test_only_the_keys_of_a_dict_are_put_in_order(edit: Edit, tmp_path: Path) -> None:
    """Other keys, too few, and what is no dict."""
    torch.save(_contents(), tmp_path / "x.pt")
    with pytest.raises(RefusedError):
        planned(tmp_path / "x.pt", [edit])
