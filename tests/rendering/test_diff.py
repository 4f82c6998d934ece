"""A difference is told to people, to filters, in a pull request, and to programs."""

import json
from dataclasses import replace

from ckptdoctor.checkpoint import Mapping, StateDict
from ckptdoctor.differences import ABSENT, Difference, Numbers, Other, Rank, Ranks, Side, Values, Verdict
from ckptdoctor.diffing.diff import compare_headers
from ckptdoctor.diffing.summary import summary
from ckptdoctor.rendering import diff_json, diff_text
from tests.cli.files import HOSTILE, printable
from tests.golden import golden
from tests.rendering import samples


def compared() -> Difference:
    """A wrapped checkpoint against a bare one with another head, of which some values changed."""
    a, b = samples.checkpoint(), samples.checkpoint("runs/other.pt", prefix="")
    head = samples.tensor("state_dict", "fc.weight", shape=(10, 2048), device="cpu", dtype="bfloat16")
    model = replace(b.state_dicts[0], tensors=(*b.state_dicts[0].tensors[:2], head))
    b = replace(
        b,
        tensors=(*model.tensors, *b.tensors[3:-1], samples.tensor("extra", shape=(3,))),
        state_dicts=(model, *b.state_dicts[1:]),
        tree=replace(
            b.tree,
            entries=(
                ("state_dict", Mapping("dict", tuple((each.key, each) for each in model.tensors))),
                *b.tree.entries[1:2],
                ("epoch", 42),
            ),
        ),
    )
    found = compare_headers(Side("runs/resnet50.pt", a), Side("runs/other.pt", b))
    numbers = Numbers(9408, 9000, 9000, 2, 0.0125, 20.0, 0.5, 90.0, 91.0, 0, 2)
    told = {
        "module.conv1.weight": Values(Verdict.CHANGED, numbers),
        "module.bn1.weight": Values(Verdict.EQUAL),
        "module.fc.weight": Values(Verdict.NOT_COMPARED, why="their shapes differ"),
    }
    pairs = [replace(pair, values=told.get(pair.name, Values(Verdict.EQUAL))) for pair in found.pairs]
    ranks = Ranks((Rank("module.conv1.weight", (64, 147), 8, 1e-6),), ("module.fc.weight",), 72)
    made = replace(found, pairs=tuple(pairs), compared=True, ranks=ranks, atol=0.001, seconds=1.5)
    return replace(made, summary=summary(made))


def test_the_full_report():
    """One sentence, then what is the same and what is not, then how far values are apart."""
    golden("diff.txt", diff_text.render(compared()))
    golden("diff_80.txt", diff_text.render(compared(), width=80))
    assert all(len(line) <= 80 for line in diff_text.render(compared(), width=80).split("\n"))


def test_every_tensor_on_request():
    """--all names each tensor."""
    golden("diff_all.txt", diff_text.render(compared(), every=True))


def test_concise_and_markdown():
    """One line a group for filters, tables for pull requests."""
    golden("diff_concise.txt", diff_text.concise(compared()))
    golden("diff.md", diff_text.markdown(compared()))


def test_json_says_everything():
    """Programs get every tensor that differs, with its figures, and every other value."""
    document = json.loads(diff_json.render(compared(), "1.0"))
    assert document["same"] is False and document["compared_values"] is True
    assert document["counts"]["renamed"] == 3 and document["counts"]["changed"] == 1
    (conv,) = [each for each in document["tensors"] if each["a"]["name"] == "module.conv1.weight"]
    assert conv["values"]["numbers"]["max_abs"] == 0.0125 and conv["differs_in"] == ["renamed"]
    assert {each["name"]: (each["a"], each["b"]) for each in document["others"]}["epoch"] == (41, 42)
    assert document["ranks"]["low"][0]["rank"] == 8
    many = json.loads(diff_json.render(compared(), "1.0", every=True))
    assert len(many["tensors"]) > len(document["tensors"])


def test_figures_that_json_cannot_hold():
    """NaN and infinity become text."""
    found = compared()
    odd = Values(Verdict.CHANGED, Numbers(1, 1, 1, 0, float("inf"), float("inf"), 0.0, 0.0, 1.0))
    document = json.loads(diff_json.render(replace(found, pairs=(replace(found.pairs[0], values=odd),)), "1"))
    numbers = document["tensors"][0]["values"]["numbers"]
    assert (numbers["max_abs"], numbers["cosine"]) == ("inf", "nan")


def test_nothing_hostile_reaches_a_terminal():
    """Keys, values and paths that would take over a terminal are escaped everywhere, and do not break tables."""
    bad = samples.tensor(f"{HOSTILE}|`b`.weight")
    contents = replace(
        samples.checkpoint(HOSTILE),
        tensors=(bad,),
        state_dicts=(StateDict((), samples.checkpoint().state_dicts[0].role, (bad,)),),
        tree=Mapping("dict", ((bad.key, bad), (HOSTILE, HOSTILE))),
    )
    other = replace(contents, tensors=(), state_dicts=(), tree=Mapping("dict", ()))
    found = compare_headers(Side(HOSTILE, contents), Side(HOSTILE, other))
    pair = compare_headers(Side(HOSTILE, contents), Side(HOSTILE, contents))
    values = Values(Verdict.CHANGED, Numbers(1, 1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0), HOSTILE)
    changed = replace(pair, pairs=(replace(pair.pairs[0], values=values),), compared=True, notes=(HOSTILE,))
    for each in (found, replace(changed, summary=summary(changed)), replace(found, summary=HOSTILE)):
        for render in (diff_text.render, diff_text.concise, diff_text.markdown):
            for every in (False, True):
                assert printable(render(each, every=every).encode())
    rows = [line for line in diff_text.markdown(found).split("\n") if line.startswith("| only")]
    assert rows and all(line.replace(r"\|", "").count("|") == 5 for line in rows)


def test_thousands_of_differences_are_a_few_lines():
    """Groups come first; what is more is counted."""
    found = compared()
    others = tuple(Other(f"hparams/{i}", i, ABSENT) for i in range(5000))
    pairs = tuple(replace(found.pairs[0], name=f"a{i}.b{i % 7}.c{i % 3}.weight") for i in range(5000))
    for render in (diff_text.render, diff_text.concise, diff_text.markdown):
        assert len(render(replace(found, others=others, pairs=pairs)).split("\n")) < 60
