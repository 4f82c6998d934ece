"""Tests of what prune lets go: a model of stores, in which the promises are asked again in other words."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import replace
from ckptdoctor.pruning.plan import Held, Pin, Plan, Policy, plan
from tests.scale import Scale


def _store(chance: random.Random) -> tuple[list[Held], list[Pin]]:
    """Make a store of a few runs with a few series each, whatever may be wrong with them."""
    store: list[Held] = []
    for run in range(chance.randint(1, 3)):
        for series in chance.sample(["checkpoint-#", "model_#.pt", "ema_#.pt", "best.pt"], chance.randint(1, 3)):
            count = 1 if series == "best.pt" else chance.randint(1, 12)
            counted = chance.choice(["step", "epoch", "both", "neither", "some"])
            for number in range(count):
                step = number * chance.choice([1, 50, 100])
                store.append(
                    Held(
                        f"/s/run{run}/{series.replace('#', str(number))}",
                        f"/s/run{run}",
                        series,
                        layout=chance.choice(["a", "a", "a", "b"]),
                        size=chance.randint(1, 100),
                        step=step
                        if counted in ("step", "both") or (counted == "some" and chance.random() < 0.5)
                        else None,
                        epoch=float(number) if counted in ("epoch", "both") else None,
                        resumable=chance.random() < 0.4,
                        trouble=chance.choice(["", "", "", "it is cut"]),
                        unsure=chance.choice([""] * 9 + ["it could not be opened"]),
                        fresh=chance.random() < 0.2,
                        metric=chance.choice([None, 0.1, 0.2, 0.3, float("nan")]),
                        metric_name="val_loss",
                        mode="min",
                    )
                )
    paths = [each.path for each in store]
    for at in chance.sample(range(len(store)), min(len(store), chance.randint(0, 3))):
        one = store[at]
        needed = chance.choice([chance.choice(paths), f"{chance.choice(paths)}/model.pt", "/s/run0", "org/name"])
        store[at] = replace(one, needs=(needed,))
    if chance.random() < 0.2:
        store.append(Held(f"{chance.choice(paths)}/inner", "/s/run0", "inner", step=1))
    pins = [Pin("/s/latest", chance.choice(paths)) for _ in range(chance.randint(0, 1))]
    return store, pins


def _policy(chance: random.Random, has_metric: bool) -> Policy:
    while True:
        policy = Policy(
            chance.choice([0, 1, 2, 5]),
            chance.choice([0, 0, 100]),
            has_metric and chance.random() < 0.5,
            chance.choice(["", "val_loss", "val_loss:max"]),
            chance.random() < 0.5,
        )
        if policy.last or policy.every or policy.best:
            return policy


def _inside(path: str, other: str) -> bool:
    return os.path.commonpath([path, other]) in (path, other)


def _require_promises(store: list[Held], pins: list[Pin], policy: Policy, made: Plan) -> None:
    going = {each.path for each in made.going}
    assert {each.held.path for each in made.verdicts} == {each.path for each in store}
    assert made.freed == sum(each.size for each in store if each.path in going)
    assert all(each.reasons for each in made.verdicts)
    for each in store:
        alike = [other for other in store if (other.run, other.series) == (each.run, each.series)]
        if each.path not in going:
            for needed in each.needs:
                assert not any(
                    path.startswith(f"{needed}/") or needed.startswith(f"{path}/") or path == needed for path in going
                )
            assert not any(path.startswith(f"{each.path}/") or each.path.startswith(f"{path}/") for path in going)
            continue
        # something newer and valid of the same kind stays
        stays = [other for other in alike if other.path not in going and not other.trouble and not other.unsure]
        assert not each.unsure
        newer = [
            other
            for other in stays
            if (other.step is not None and each.step is not None and other.step > each.step)
            or (other.epoch is not None and each.epoch is not None and other.epoch > each.epoch)
        ]
        if each.trouble:
            assert policy.broken and not each.fresh and newer
            continue
        same = [other for other in newer if other.layout == each.layout]
        assert same
        assert not each.resumable or any(other.resumable for other in same)
        assert not policy.every or (each.step is not None and each.step % policy.every)
        assert len(same) >= max(policy.last, 1)
        if policy.best:
            assert each.metric is not None and each.metric == each.metric
            sign = -1 if policy.metric.endswith(":max") else 1
            assert any(other.metric is not None and sign * other.metric < sign * each.metric for other in stays)
    for pin in pins:
        assert pin.target not in going


def _ask(chance: random.Random) -> int:
    store, pins = _store(chance)
    policy = _policy(chance, any(each.metric is not None for each in store))
    made = plan(store, policy, pins)
    _require_promises(store, pins, policy, made)
    return len(made.going)


def test_of_all_that_goes_something_newer_and_valid_of_the_same_kind_stays() -> None:
    """In random stores, under random policies, every promise of prune is kept."""
    gone = [_ask(random.Random(f"prune {seed}")) for seed in range(600)]
    assert sum(gone) > 300


@pytest.mark.slow
def test_the_promises_are_kept_in_a_hundred_thousand_stores(scale: Scale) -> None:
    """The same at scale."""
    assert sum([_ask(chance) for _, chance in scale.cases(100_000, 100)]) > 100


def _series(*steps: int, **fields: Any) -> list[Held]:
    return [Held(f"/s/run/checkpoint-{step}", "/s/run", "checkpoint-#", step=step, **fields) for step in steps]


def _stay(made: Plan) -> list[int | None]:
    return [each.step for each in made.staying]


def test_only_valid_ones_count_for_keep_last() -> None:
    """The last three are the last three valid ones, however many broken ones came after them."""
    store = [*_series(1, 2, 3, 4), *_series(5, 6, trouble="it is cut")]
    made = plan(store, Policy(last=3))
    assert _stay(made) == [2, 3, 4, 5, 6]


def test_a_broken_one_goes_only_if_asked_and_only_once_a_newer_one_is_valid() -> None:
    """A cut checkpoint may be all that is left of the newest step."""
    store = [*_series(1), *_series(2, trouble="it is cut"), *_series(3), *_series(4, trouble="it is cut")]
    assert _stay(plan(store, Policy(last=9))) == [1, 2, 3, 4]
    assert _stay(plan(store, Policy(last=9, broken=True))) == [1, 3, 4]


def test_the_newest_that_a_training_can_resume_from_stays() -> None:
    """Weights that were exported after it do not replace it."""
    store = [*_series(1, 2, resumable=True), *_series(3, 4)]
    assert _stay(plan(store, Policy(last=1))) == [2, 4]


def test_every_so_many_steps_one_stays() -> None:
    """Those whose step is a multiple of the number; and what has no step is not counted, and stays."""
    assert _stay(plan(_series(150, 200, 250, 300, 350), Policy(every=100))) == [200, 300, 350]
    epochs = [Held(f"/s/run/e{at}", "/s/run", "e#", epoch=float(at)) for at in range(3)]
    made = plan(epochs, Policy(every=1))
    assert made.going == () and "no step that --keep-every could count" in made.verdicts[0].reasons[0]
    assert [each.epoch for each in plan(epochs, Policy(last=1)).staying] == [2.0]


def test_names_that_differ_in_more_than_numbers_do_not_replace_each_other() -> None:
    """The newest generator is no reason to let the discriminator go."""
    store = [
        Held(f"/s/run/{name}_{step}.pt", "/s/run", f"{name}_#.pt", step=step)
        for name in ("generator", "discriminator")
        for step in (1, 2)
    ]
    assert [each.path for each in plan(store, Policy(last=1)).going] == [
        "/s/run/discriminator_1.pt",
        "/s/run/generator_1.pt",
    ]


def test_what_stays_keeps_what_it_needs() -> None:
    """The base of an adapter that stays does, and so does the base of that."""
    bases = _series(1, 2, 3)
    first = Held("/s/run/checkpoint-1", "/s/run", "checkpoint-#", step=1)
    second = Held("/s/run/checkpoint-2", "/s/run", "checkpoint-#", step=2, needs=(first.path,))
    adapter = Held("/s/tune/a-9", "/s/tune", "a-#", step=9, needs=(f"{second.path}/model.safetensors",))
    made = plan([first, second, bases[2], adapter], Policy(last=1))
    assert made.going == ()
    assert "/s/tune/a-9 needs it, and stays" in {reason for each in made.verdicts for reason in each.reasons}


def test_what_a_link_or_a_file_names_stays() -> None:
    """A file “latest” that names an old one is followed by whoever resumes."""
    made = plan(_series(1, 2, 3), Policy(last=1), [Pin("/s/run/latest", "/s/run/checkpoint-1")])
    assert _stay(made) == [1, 3]


def test_what_is_in_something_that_stays_does() -> None:
    """And what has something in it that stays."""
    outer = _series(1, 2)
    inner = [Held(f"/s/run/checkpoint-2/{name}", "/s/run", "x#", step=step) for name, step in (("x1", 1), ("x2", 2))]
    within = Held("/s/run/checkpoint-1/best.pt", "/s/run", "best.pt", step=1)
    made = plan([*outer, *inner], Policy(last=1))
    assert [each.path for each in made.going] == ["/s/run/checkpoint-1"]
    assert "it is in /s/run/checkpoint-2, which stays" in {reason for each in made.verdicts for reason in each.reasons}
    assert plan([*outer, within], Policy(last=1)).going == ()


def test_epochs_that_only_some_know_do_not_count() -> None:
    """All know their step, and that is the order."""
    store = [replace(each, epoch=epoch) for each, epoch in zip(_series(1, 2, 3), (1.0, None, 3.0), strict=True)]
    assert _stay(plan(store, Policy(last=1))) == [3]


def test_nothing_goes_where_nothing_says_which_is_newer() -> None:
    """Without steps, or with steps that contradict epochs, everything stays."""
    unknown = [Held(f"/s/run/{name}", "/s/run", "x", step=step) for name, step in (("a", None), ("b", 3), ("c", 4))]
    anew = [
        Held(f"/s/run/{name}", "/s/run", "x", step=step, epoch=epoch)
        for name, step, epoch in (("a", 100, 1.0), ("b", 200, 2.0), ("c", 50, 3.0))
    ]
    assert plan(unknown, Policy(last=1)).going == plan(anew, Policy(last=1)).going == ()


def test_the_best_stays_and_so_does_what_has_no_score() -> None:
    """Less of a loss is better; what nobody measured may be the best."""
    store = [
        replace(each, metric=metric, metric_name="val_loss", mode="min")
        for each, metric in zip(_series(1, 2, 3, 4, 5), (0.3, 0.1, None, 0.2, 0.4), strict=True)
    ]
    assert _stay(plan(store, Policy(best=True))) == [2, 3, 5]
    assert _stay(plan(store, Policy(best=True, metric="val_loss:max"))) == [3, 5]


def test_of_several_metrics_one_is_chosen() -> None:
    """What has another one has no score by it, and stays."""
    said = [("loss", 0.3), ("loss", 0.1), ("acc", 0.05), ("loss", 0.2), ("loss", 0.4)]
    store = [
        replace(each, metric=metric, metric_name=name, mode="min" if name == "loss" else "max")
        for each, (name, metric) in zip(_series(1, 2, 3, 4, 5), said, strict=True)
    ]
    assert _stay(plan(store, Policy(best=True, metric="loss"))) == [2, 3, 5]
    for metric, why in (("", "several metrics: acc and loss"), ("f1", "no checkpoint has the metric f1")):
        with pytest.raises(UsageError, match=f"(?i){why}"):
            plan(store, Policy(best=True, metric=metric))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(), "Choose what to keep"),
        (Policy(broken=True), "Choose what to keep"),
        (Policy(last=-1), "at least 1"),
        (Policy(best=True), "No checkpoint has a metric"),
    ],
)
def test_a_policy_that_says_nothing_is_refused(policy: Policy, said: str) -> None:
    """What is to stay is said by a person."""
    with pytest.raises(UsageError, match=said):
        plan(_series(1, 2), policy)


def test_a_metric_of_which_nobody_knows_whether_more_is_better_is_refused() -> None:
    """A guess would let the best go."""
    store = [replace(each, metric=0.5, metric_name="foo") for each in _series(1, 2)]
    with pytest.raises(UsageError, match="foo:min or foo:max"):
        plan(store, Policy(best=True))
    assert plan(store, Policy(best=True, metric="foo:min")).going == ()
