"""Objects as plain data, from what the pickle says of them."""

from __future__ import annotations

import datetime
import pathlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Cycle, Mapping, Named, Opaque, Sequence, Special, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.facts.plain_data import NotPlainError, as_plain

TENSOR = Tensor(("w",), BY_NAME["float32"], (1,), (1,), None)


def dtype(code, order="<"):
    return Opaque("numpy.dtype", (code, False, True), Sequence("tuple", (3, order, None, None, None, -1, -1, 0)))


def encoded(data):
    return Opaque("_codecs.encode", (data.decode("latin-1"), "latin1"))


def scalar(code, data, order="<", module="numpy._core.multiarray"):
    return Opaque(f"{module}.scalar", (dtype(code, order), encoded(data)))


def namespace(**entries):
    return Opaque("argparse.Namespace", (), Mapping("dict", tuple(entries.items())))


def test_a_namespace_is_its_attributes():
    """Nested too, and with lists, tuples, dicts, bytes and paths inside."""
    inner = namespace(
        lr=0.1, betas=Sequence("tuple", (0.9, 0.999)), save=Opaque("pathlib.PosixPath", ("/", "runs", "a"))
    )
    node = namespace(optim=inner, names=Sequence("list", ("a", None, True, b"x")), by_id=Mapping("dict", ((1, "x"),)))
    assert as_plain(node) == {
        "optim": {"lr": 0.1, "betas": (0.9, 0.999), "save": "/runs/a"},
        "names": ["a", None, True, b"x"],
        "by_id": {1: "x"},
    }
    assert as_plain(Opaque("argparse.Namespace")) == {}


@pytest.mark.parametrize("path", ["/", "a", "/data/runs/a.pt", "../x/..", "a b/ü"])
def test_a_posix_path_is_its_text(path):
    """The same text that str gives, from the parts that pickle writes."""
    parts = pathlib.PurePosixPath(path).parts
    assert as_plain(Opaque("pathlib.PosixPath", parts)) == str(pathlib.PurePosixPath(path))


@pytest.mark.parametrize("path", ["C:\\data\\a.pt", "\\\\host\\share\\x", "a\\b"])
def test_a_windows_path_is_its_text(path):
    """Also on a machine that is no Windows, and as Python 3.13 names its class."""
    parts = pathlib.PureWindowsPath(path).parts
    assert as_plain(Opaque("pathlib._local.WindowsPath", parts)) == str(pathlib.PureWindowsPath(path))


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([np.float64, np.float32, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64]),
    st.binary(min_size=8, max_size=8),
    st.sampled_from("<>"),
)
def test_a_numpy_number_is_python_s(kind, data, order):
    """The value is NumPy's own item(), bit for bit, in both byte orders."""
    element = np.dtype(kind).newbyteorder(order)
    data = data[: element.itemsize]
    value = as_plain(scalar(element.str[1:], data, order))
    expected = np.frombuffer(data, element)[0].item()
    assert type(value) is type(expected)
    assert value == expected or (value != value and expected != expected)


def test_booleans_and_texts_of_numpy():
    """A NumPy boolean is True or False, a NumPy text its text; NumPy 1's module name is known as well."""
    assert as_plain(scalar("b1", b"\1", "|")) is True
    assert as_plain(scalar("U3", "añ".encode("utf-32-le") + bytes(4))) == "añ"
    assert as_plain(scalar("f8", struct.pack("<d", 0.1), module="numpy.core.multiarray")) == 0.1
    assert as_plain(scalar("c16", struct.pack("<dd", 0.5, -1.5))) == 0.5 - 1.5j


def test_a_date_is_its_iso_text():
    """Without a time zone: with one the text would not say which class it had."""
    when = datetime.datetime(2024, 5, 1, 12, 30, 15, 7)
    assert as_plain(Opaque("datetime.datetime", (encoded(when.__reduce__()[1][0]),))) == when.isoformat()
    day = datetime.date(2024, 5, 1)
    assert as_plain(Opaque("datetime.date", (day.__reduce__()[1][0],))) == "2024-05-01"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (TENSOR, "a tensor"),
        (namespace(w=TENSOR), "a tensor"),
        (Sequence("set", (1,)), "a set"),
        (Cycle(()), "unread value"),
        (Named("torch.float32"), "a class or function"),
        (Mapping("dict", ((Special("(1, 2)"), 3),)), "keys"),
        (Mapping("dict", (), Mapping("dict", (("_metadata", 1),))), "attributes"),
        (namespace(x=Opaque("utils.Meter")), "utils.Meter"),
        (namespace(x=Mapping("utils.Config", ())), "utils.Config"),
        (Mapping("easydict.EasyDict", (("a", 1),), Mapping("dict", (("a", 2),))), "attributes"),
        (Opaque("omegaconf.dictconfig.DictConfig", (), Mapping("dict", (("content", 1),))), "usual way"),
        (scalar("g16", bytes(16)), "NumPy"),
        (scalar("f8", bytes(4)), "usual way"),
        (Opaque("numpy._core.multiarray.scalar", (1, 2)), "usual way"),
        (Opaque("argparse.Namespace", (1,)), "usual way"),
        (Opaque("pathlib.PosixPath", (1,)), "usual way"),
        (Opaque("datetime.datetime", (b"junk",)), "an invalid"),
        (Opaque("datetime.datetime", (b"junk", Opaque("datetime.timezone"))), "time zone"),
    ],
)
def test_what_is_not_plain_says_why(node, why):
    """Nothing is guessed and nothing left out: the whole value is refused."""
    with pytest.raises(NotPlainError, match=why):
        as_plain(node)


def test_deep_nesting_is_refused():
    """A tree built to exhaust the reader is no configuration."""
    node = 1
    for _ in range(10_000):
        node = Sequence("list", (node,))
    with pytest.raises(NotPlainError, match="levels"):
        as_plain(node)


def omegaconf(kind, attribute, value):
    """An object of OmegaConf, which leads back to the one around it."""
    state = (("_metadata", Opaque("omegaconf.base.Metadata")), ("_parent", Cycle(())), (attribute, value))
    return Opaque(f"omegaconf.{kind}", (), Mapping("dict", state))


def test_a_configuration_is_what_its_nodes_hold():
    """Dicts, lists and values of OmegaConf; an interpolation is the text that it is."""
    layers = omegaconf("listconfig.ListConfig", "_content", Sequence("list", (omegaconf("nodes.AnyNode", "_val", 3),)))
    entries = (("lr", omegaconf("nodes.FloatNode", "_val", 0.1)), ("layers", layers), ("x", "${lr}"))
    assert as_plain(omegaconf("dictconfig.DictConfig", "_content", Mapping("dict", entries))) == {
        "lr": 0.1,
        "layers": [3],
        "x": "${lr}",
    }
    assert as_plain(omegaconf("dictconfig.DictConfig", "_content", None)) is None


def test_a_dict_whose_entries_are_attributes_is_its_entries():
    """EasyDict writes them twice; settings of the class stand between underscores."""
    entries = (("a", 1), ("b", Sequence("list", (2,))))
    assert as_plain(Mapping("easydict.EasyDict", entries, Mapping("dict", entries))) == {"a": 1, "b": [2]}
    frozen = Mapping("dict", (("__frozen", False), ("__parent__", None)))
    with pytest.raises(NotPlainError):
        as_plain(Mapping("addict.addict.Dict", entries, frozen))
    assert as_plain(Mapping("munch.Munch", entries)) == {"a": 1, "b": [2]}


def test_objects_of_any_class_only_when_asked():
    """What is nothing but attributes, or made of one plain value; never what could run code."""
    meter = Opaque("utils.Meter", (), Mapping("dict", (("n", 3), ("colour", Opaque("utils.Colour", (1,))))))
    with pytest.raises(NotPlainError):
        as_plain(meter)
    assert as_plain(meter, loosely=True) == {"n": 3, "colour": 1}
    for odd in (Opaque("os.system", ("ls",)), Opaque("torch.Generator", (1,)), Opaque("utils.Two", (1, 2))):
        with pytest.raises(NotPlainError, match="class"):
            as_plain(odd, loosely=True)
