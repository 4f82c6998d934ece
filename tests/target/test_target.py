"""The name in --model is taken apart without evaluating anything."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.errors import UsageError
from ckptdoctor.target.target import NamedTarget, parse_target

LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NAMES = st.from_regex(r"a[a-z0-9_]{0,6}b", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "module", "attributes"),
    [
        ("nets:Net", "nets", ("Net",)),
        ("pkg.nets:Net.build", "pkg.nets", ("Net", "build")),
        ("path/to/nets.py:Net", "path/to/nets.py", ("Net",)),
        ("C:\\work\\nets.py:Net", "C:\\work\\nets.py", ("Net",)),
        ("odd (old):name/nets.py:Net", "odd (old):name/nets.py", ("Net",)),
        (" nets : Net ", "nets", ("Net",)),
    ],
)
def test_modules_files_and_attributes(text, module, attributes):
    """A dotted module or a file, then a name in it or further inside."""
    found = parse_target(text)
    assert (found.module, found.attributes, found.called) == (module, attributes, False)


@given(NAMES, st.lists(LITERALS, max_size=3), st.dictionaries(NAMES, LITERALS, max_size=3))
def test_literals_arrive_as_they_were_written(name, values, keywords):
    """Whatever Python writes as a literal is given to the factory unchanged, colons and parentheses in it too."""
    written = ", ".join([*map(repr, values), *(f"{key}={value!r}" for key, value in keywords.items())])
    found = parse_target(f"some.nets:{name}({written})")
    assert found == NamedTarget("some.nets", (name,), tuple(values), tuple(keywords.items()), True)


@given(st.text() | st.text(alphabet="ab:.()[]{}=,*'\"\\ \n0\x00", max_size=40))
def test_any_text_is_a_target_or_a_usage_error(text):
    """No text raises anything but UsageError."""
    with contextlib.suppress(UsageError):
        parse_target(text)


@pytest.mark.parametrize(
    "text",
    ["", ":", "nets", "nets.Net", "nets:", ":Net", "nets:3", "nets:Net)", "nets:Net[0]", "nets:Net()()", "..nets:Net",
     "nets:class", "nets:Net().x", "nets:lambda: 1", "nets:Net(" + "[" * 1000 + "]" * 1000 + ")"],
)  # fmt: skip
def test_anything_else_is_refused_with_an_example(text):
    """The sentence shows what would be understood."""
    with pytest.raises(UsageError, match=r"Use nets:Net, pkg\.nets:build\(num_classes=10\) or path/to/nets\.py:Net"):
        parse_target(text)


@pytest.mark.parametrize(
    "text",
    ["nets:Net(exit())", "nets:Net(__import__('os'))", "nets:Net(x=torch.int8)", "nets:Net({[]: 1})", "nets:N(*a)"],
)
def test_code_is_no_argument(text):
    """Arguments are never evaluated: what is not a literal is refused, with a way out."""
    with pytest.raises(UsageError, match=r"must be Python literals .* write a function that builds the model"):
        parse_target(text)


@pytest.mark.parametrize(("text", "why"), [("nets:Net(**{})", r"has \*\* in its"), ("nets:Net(a=1, a=2)", "twice")])
def test_arguments_have_one_name_each(text, why):
    """Double stars and repeated names are refused."""
    with pytest.raises(UsageError, match=why):
        parse_target(text)


def test_the_name_for_reports_is_short():
    """Folders and the suffix go, arguments stay unless they are long."""
    assert parse_target("path/to/nets.py:Net(10, name='x')").name == "nets:Net(10, name='x')"
    assert parse_target("a.b.nets:Net()").name == "a.b.nets:Net"
    assert len(parse_target(f"nets:Net('{'x' * 1000}')").name) < 80
