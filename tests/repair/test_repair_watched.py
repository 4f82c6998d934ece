"""A repair tells how far it is, and can be ended until the new file has its name."""

from __future__ import annotations

import os

import pytest

from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.progress import Progress, heard
from ckptdoctor.converting.conversion import convert
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import T
from tests import builders


@pytest.fixture
def planned(tmp_path):
    """A repair of a file of a few megabytes."""
    path = tmp_path / "sick.pt"
    builders.save({f"module.{index}.weight": T((512, 512)) for index in range(4)}, path)
    return plan(FixRequest(str(path)))


def test_it_tells_how_far_it_is(planned):
    """Copying, comparing, verifying; the first two up to the last byte, never backwards."""
    told = []
    with heard(told.append):
        outcome = repair(planned)
    assert outcome.proof is not None
    assert list(dict.fromkeys([each.what for each in told])) == ["copying", "comparing", "verifying"]
    for what in ("copying", "comparing"):
        done = [each.done for each in told if each.what == what]
        assert done == sorted(done)
        assert done[-1] == planned.recipe.size
    assert {each.total for each in told} == {planned.recipe.size}


@pytest.mark.parametrize("what", ["copying", "comparing", "verifying"])
def test_whoever_watches_can_end_it(planned, what):
    """Then nothing is left, under no name."""
    before = os.listdir(os.path.dirname(planned.output))

    def listener(progress):
        if progress.what == what:
            raise KeyError(what)

    with pytest.raises(KeyError), heard(listener):
        repair(planned)
    assert os.listdir(os.path.dirname(planned.output)) == before


def test_nothing_is_left_of_what_a_process_abandons(planned):
    """A process that ends at once removes what its threads were writing."""
    folder, seen = os.path.dirname(planned.output), []

    def listener(progress):
        if not seen:
            seen.append(len(os.listdir(folder)))
            process.do_last_things()
            seen.append(len(os.listdir(folder)))
            raise KeyError

    with pytest.raises(KeyError), heard(listener):
        repair(planned)
    assert seen == [2, 1]


def test_a_cast_tells_how_far_it_is_all_the_time(planned):
    """Measuring what it loses before there is a plan, writing, comparing, and proving every number again."""
    told = []
    with heard(told.append):
        cast = plan(FixRequest(planned.request.path, dtype="bfloat16"))
        outcome = repair(cast)
    phases = list(dict.fromkeys([each.what for each in told]))
    assert phases == ["measuring the loss", "copying", "comparing", "verifying"]
    given, made = 4 * 4 * 512 * 512, 2 * 4 * 512 * 512
    assert Progress("measuring the loss", given, given) in told
    assert max(each.done for each in told if each.what == "verifying") >= made - (1 << 20)
    assert outcome.written is not None
    assert outcome.report.seconds == cast.seconds + outcome.written.seconds
    assert cast.seconds > 0


@pytest.mark.parametrize("output", ["out.safetensors", "folder/", "dcp"])
def test_a_conversion_tells_how_far_it_is(planned, tmp_path, output):
    """Whatever is written, and in any order."""
    told = []
    request = ConvertRequest((planned.request.path,), f"{tmp_path}/{output}", to="dcp" if output == "dcp" else None)
    with heard(told.append):
        report = convert(request)
    assert report.seconds > 0
    assert {"copying", "comparing", "verifying"} <= {each.what for each in told}
    assert all(0 <= each.done <= each.total for each in told)
