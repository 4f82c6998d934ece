import pytest

from ckptdoctor.checkpoint import ROOT, Mapping, Sequence
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.errors import UsageError

TREE = Mapping(
    "dict",
    (
        ("state_dict", Mapping("dict", (("w", 1),))),
        ("nets", Sequence("list", (Mapping("dict", (("g", 1),)), 2))),
        ("a/b", Mapping("dict", (("c", 1),))),
        ("a", Mapping("dict", (("b", Mapping("dict", (("d", 1),))),))),
    ),
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("state_dict", ("state_dict",)),
        ("/state_dict/", ("state_dict",)),
        ("nets/0/g", ("nets", 0, "g")),
        ("a/b/c", ("a/b", "c")),
        ("a/b/d", ("a", "b", "d")),
        ("", ROOT),
        ("(root)", ROOT),
    ],
)
def test_a_path_as_reports_print_it_is_found(text, path):
    """Steps are joined by slashes; keys that hold slashes themselves are found too."""
    assert find_root(TREE, text) == path


def test_what_is_not_there_is_refused_with_what_is():
    """The message names the keys of the top level."""
    with pytest.raises(UsageError, match="Its top level holds state_dict, nets"):
        find_root(TREE, "model")
