"""R001 missing-keys, R002 unexpected-keys, R003 shape-mismatch and R004 dtype-mismatch."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.checkpoint import Mapping
from ckptdoctor.edits import Drop, Safety
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Odict, T
from tests.rules import nouns

BODY = {f"layer{number}.weight": T((4, 4)) for number in range(6)}
ALL = ("R001", "R002", "R003", "R004")


def _net(classes: int, *, width: int = 3, extra: bool = False) -> torch.nn.Module:
    layers = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, width), torch.nn.Linear(width, classes)]
    return torch.nn.Sequential(*layers, *([torch.nn.Linear(1, 1)] if extra else []))


def test_the_lines_are_those_of_torch() -> None:
    """Missing, unexpected and mismatched keys are quoted as torch says them."""
    small, large = _net(2), _net(2, extra=True)
    for rule, model, saved in (
        ("R001", large, small.state_dict()),
        ("R002", small, large.state_dict()),
        ("R003", _net(2, width=4), small.state_dict()),
    ):
        [found] = nouns.findings(rule, nouns.described(saved), nouns.described(model.state_dict()))
        error = nouns.torch_error(model, saved)
        assert found.torch_says
        assert all(line in error for line in found.torch_says)


def test_nothing_is_said_of_what_other_rules_explain() -> None:
    """After the proposed renames everything fits, so R has nothing to add."""
    contents = {"state_dict": {f"module.model.{key}": value for key, value in BODY.items()}}
    assert [found for rule in ALL for found in nouns.findings(rule, contents, BODY)] == []


def test_nothing_is_listed_where_the_model_is_another() -> None:
    """Where W311 speaks, hundreds of missing keys would only be noise."""
    contents = {f"other{number}.weight": T((9, 9)) for number in range(6)}
    assert [found for rule in ALL for found in nouns.findings(rule, contents, BODY)] == []


def test_missing_keys_are_grouped_and_weighed() -> None:
    """Counts by module, the share of the parameters, and the nearest key of the same shape."""
    like = {**BODY, "fc.weight": T((1000, 4)), "fc.bias": T((1000,)), "aux.weight": T((2, 2))}
    [found] = nouns.findings("R001", {"model": {**BODY, "head.weight": T((1000, 4))}}, {"model": like})
    assert found.message == "3 of 9 keys of like.pt are missing in model (98.1 % of its parameters)"
    assert "fc (2 keys, 5,000 parameters) and aux (1 key, 4 parameters)" in found.cause
    assert found.advice == "The nearest keys here with the same shape: head.weight [1000, 4] for fc.weight."
    assert found.keys == (("model", "fc.weight"), ("model", "fc.bias"), ("model", "aux.weight"))


@pytest.mark.parametrize(("version", "missed"), [(None, False), (1, False), (2, True)])
def test_the_counter_of_batchnorm_is_missed_as_torch_misses_it(version: int | None, missed: bool) -> None:
    """N416 misses ``num_batches_tracked`` where ``_metadata`` gives BatchNorm version 2, and nobody elsewhere."""
    model = torch.nn.Sequential()
    model.add_module("bn", torch.nn.BatchNorm1d(3))
    saved = {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}
    metadata = {"": {"version": 1}, "bn": {"version": version}} if version is not None else None
    state_dict = torch.nn.modules.module.OrderedDict(saved)
    state_dict._metadata = metadata or {}
    assert bool(model.load_state_dict(state_dict, strict=False).missing_keys) is missed
    checkpoint = nouns.checkpoint(Odict(nouns.described(saved), metadata))
    wanted = nouns.reference(nouns.described(model.state_dict()))
    assert nouns.findings_in("R001", checkpoint, wanted) == []
    assert bool(nouns.findings_in("N416", checkpoint, wanted)) is missed
    assert all(isinstance(each.metadata, Mapping) is (metadata is not None) for each in checkpoint.state_dicts)


def test_unexpected_keys_can_be_dropped_when_asked() -> None:
    """The command names patterns that match them and nothing else; the keys are those of the file."""
    contents = {f"module.{key}": value for key, value in BODY.items()} | {
        "module.aux.a.weight": T((1,)),
        "module.aux.b.weight": T((1,)),
        "module.layer0.bias": T((4,)),
    }
    [found] = nouns.findings("R002", contents, BODY)
    assert found.message == "3 of 9 keys are unknown to like.pt"
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE
    assert found.fix.option == "--drop 'module.aux.*' --drop module.layer0.bias"
    assert found.fix.edits == (Drop((("module.aux.a.weight",), ("module.aux.b.weight",), ("module.layer0.bias",))),)


def test_many_unexpected_keys_do_not_make_an_endless_command() -> None:
    """Beyond a few patterns the whole chain is asked for."""
    contents = {**BODY, **{f"x{n}.y{n}": T((1,)) for n in range(12)}}
    [found] = nouns.findings("R002", contents, BODY)
    assert found.fix is not None
    assert found.fix.options == ("--auto --like like.pt", "--unsafe-fixes")


def test_what_the_rules_of_shapes_explain_is_not_said_again() -> None:
    """A head of other classes has its own rule; what differs beside it is still listed, alone."""
    here = {"mix.weight": T((8, 3)), **BODY, "fc.weight": T((5, 4)), "fc.bias": T((5,))}
    there = {"mix.weight": T((9, 2)), **BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))}
    assert nouns.findings("R003", {**BODY, "fc.weight": T((5, 4))}, {**BODY, "fc.weight": T((2, 4))}) == []
    [found] = nouns.findings("R003", here, there)
    assert found.keys == (("mix.weight",),)
    assert found.message == "1 key has a different shape in like.pt: mix.weight [8, 3] here, [9, 2] there"
    assert "load_state_dict" not in found.advice, "it would not be enough: the head has another shape, too"


@pytest.mark.parametrize(
    ("here", "there", "says"),
    [
        ((8, 4), (6, 4), "One size explains it: 8 here, 6 there."),
        ((8, 4), (6, 2), "different sizes"),
        ((8, 4, 2), (8, 4), "different sizes"),
    ],
)
def test_one_size_that_explains_a_shape_is_said(here: tuple[int, ...], there: tuple[int, ...], says: str) -> None:
    """Sizes that explain a shape are named; where more differs, nothing is guessed."""
    [found] = nouns.findings("R003", {"mix.weight": T(here), **BODY}, {"mix.weight": T(there), **BODY})
    assert says in found.cause


def test_the_versions_follow_renamed_modules() -> None:
    """The version of a module is looked up under the name that it was saved with."""
    saved = Odict(
        {"model.fc.weight": T((2, 4)), "model.fc.bias": T((2,)), "model.bn.weight": T((3,))},
        {"model.bn": {"version": 2}},
    )
    like = {"fc.weight": T((2, 4)), "fc.bias": T((2,)), "bn.weight": T((3,)), "bn.num_batches_tracked": T((), "int64")}
    [found] = nouns.findings("R001", saved, like)
    assert found.keys == (("bn.num_batches_tracked",),)


def test_one_size_that_explains_many_layers_is_said() -> None:
    """Another width everywhere is one cause."""
    here = {"first.weight": T((4, 4)), "a.weight": T((8, 4)), "a.bias": T((8,)), "b.weight": T((4, 8)), **BODY}
    there = {"first.weight": T((4, 4)), "a.weight": T((6, 4)), "a.bias": T((6,)), "b.weight": T((4, 6)), **BODY}
    [found] = nouns.findings("R003", here, there)
    assert found.cause == "One size explains all of them: 8 here, 6 there."


@pytest.mark.parametrize(
    ("here", "there", "severity"),
    [
        ("float32", "float16", Severity.WARNING),
        ("float16", "float32", Severity.INFO),
        ("bfloat16", "float16", Severity.WARNING),
        ("int8", "float32", Severity.INFO),
        ("int64", "float32", Severity.WARNING),
    ],
)
def test_a_cast_is_a_warning_where_it_loses_values(here: str, there: str, severity: Severity) -> None:
    """A cast that keeps every value is worth knowing; one that does not is a warning."""
    contents = {key: T(value.shape, here) for key, value in BODY.items()}
    [found] = nouns.findings("R004", contents, {key: T(value.shape, there) for key, value in BODY.items()})
    assert found.severity is severity
    assert found.message == f"6 keys are {here} here and {there} in like.pt"


def test_each_pair_of_dtypes_is_one_finding() -> None:
    """Weights and counters that are cast differently are two findings."""
    contents = {**BODY, "n": T((), "int32")}
    like = {**{key: T(value.shape, "float64") for key, value in BODY.items()}, "n": T((), "int64")}
    assert len(nouns.findings("R004", contents, like)) == 2


@pytest.mark.parametrize(("lacking", "said"), [(1, "1 key of it has no weights yet"), (2, "2 keys of it have no")])
def test_what_has_no_weights_yet_is_counted(lacking: int, said: str) -> None:
    """The verb agrees with the number of keys."""
    like = {**BODY, **{f"new{number}.weight": T((number + 2, 5)) for number in range(lacking)}}
    [found] = nouns.findings("R002", {**BODY, "old.weight": T((7, 3))}, like)
    assert said in found.advice
