"""What check finds in a file is found in it compressed, in a tar archive, and in a compressed one."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

import ckptdoctor
from ckptdoctor.formats import PACKED
from ckptdoctor.formats.packed import scratch
from tests.builders import build
from tests.planted import PLACES, broken, cut, whole
from tests.rules.sick import SICK

pytestmark = pytest.mark.filterwarnings("ignore")

OF_PACKING = {"C102", "C105"}  # that it is packed, and what its name should end with

# what is in them is unpacked no further, or is a checkpoint inside of what is none by itself
OTHERWISE = {"torch.package", "joblib, compressed", "pickle that begins with a long text"}


@pytest.fixture(autouse=True)
def clean():
    yield
    scratch.remove()


def in_tar(name, data, mode, **how):
    """An archive with nothing but this file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, **how) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


PACKINGS = {
    ".gz": lambda name, data: gzip.compress(data, 1, mtime=0),
    ".tar": lambda name, data: in_tar(name, data, "w"),
    ".tar.gz": lambda name, data: in_tar(name, data, "w:gz", compresslevel=1),
}


def packings(path, endings=tuple(PACKINGS)):
    """The file in each of the three, beside it."""
    data = path.read_bytes()
    for ending in endings:
        other = path.with_name(path.name + ending)
        other.write_bytes(PACKINGS[ending](path.name, data))
        yield other


def each_in_one(names):
    """Each name with one of the three packings, in turn; and, where it may take long, with all of them.

    Of the examples of one rule the first goes for the others: the rule does not know how a file is packed.
    """
    endings, made, rules = tuple(PACKINGS), [], set()
    for at, name in enumerate(names):
        ending = endings[at % len(endings)]
        rule, label = (name, name) if isinstance(name, str) else (name[0], "-".join(name))
        if rule not in rules:
            made.append(pytest.param(name, (ending,), id=f"{label}{ending}"))
            rules.add(rule)
        made.append(pytest.param(name, endings, marks=pytest.mark.slow, id=f"{label}, each"))
    return made


def found(path, deep=False):
    """The codes of the findings and the tensors."""
    report = ckptdoctor.check(path, deep=deep)
    tensors = None if report.checkpoint is None else [(each.path, each.shape) for each in report.checkpoint.tensors]
    return {each.code for each in report.findings} - OF_PACKING, tensors


@pytest.mark.parametrize("mend", [whole, pytest.param(broken, marks=pytest.mark.slow), cut], ids=lambda m: m.__name__)
@pytest.mark.parametrize(("place", "endings"), each_in_one(each for each in PLACES if each not in OTHERWISE))
def test_a_planted_call_is_found_through_what_it_is_packed_in(place, endings, mend, tmp_path):
    """Wherever it lies in the file, whole and broken, with and without the values."""
    path = PLACES[place](tmp_path, mend)
    if path.is_dir() or ckptdoctor.check(path).container.format in PACKED:
        return
    plain = found(path)
    assert "P206" in plain[0]
    for packed in packings(path, endings):
        assert found(packed) == found(packed, deep=True) == plain, packed.name


@pytest.mark.parametrize(("name", "endings"), each_in_one(SICK))
def test_what_is_wrong_is_found_through_what_it_is_packed_in(name, endings, tmp_path):
    """Each sick example of each rule that is one readable file, without what its name and its neighbours say."""
    example = SICK[name][1]
    path = build(example, tmp_path)
    if path.is_dir():
        return
    (tmp_path / "alone").mkdir()
    path = path.rename(tmp_path / "alone" / "model")
    report = ckptdoctor.check(path)
    if not report.container.readable or any(each.code == "C102" for each in report.findings):
        return
    plain = found(path, example.deep)
    for packed in packings(path, endings):
        assert found(packed, example.deep) == plain, packed.name
