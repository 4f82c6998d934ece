"""Entries of a comparison, and the lines that they are shown on."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.differences import Difference, Numbers, Other, Pair, Side, Single, Tie, Values, Verdict
from ckptdoctor.errors import UsageError
from ckptdoctor.rendering.depth import FROM_ZERO, magnitude
from ckptdoctor.tui.models.comparison import ComparedEntries, Flag, module, news
from ckptdoctor.tui.models.comparison_facts import facts, title
from ckptdoctor.tui.models.side_by_side import (
    EntryLine,
    FoldLine,
    HeadLine,
    LineOrder,
    OtherLine,
    Show,
    WantedLines,
    arranged,
    require_filter,
)

NUMBERS = Numbers(elements=4, changed=2, largest=0.5, total=0.6, square=0.26, square_a=26.0, square_b=26.0)


def tensor(name, shape=(2, 2), dtype="float32", device="cpu"):
    """A tensor of no file."""
    return Tensor((name,), BY_NAME[dtype], shape, (shape[-1], 1)[-len(shape) :], None, device=device)


def pair(name, name_b=None, values=None, **other):
    """A pair that is alike but for what is said."""
    return Pair(name, name_b or name, tensor(name), tensor(name_b or name, **other), values=values)


def comparison(pairs, removed=(), added=(), **more):
    """A comparison of checkpoints that hold just these."""
    removed, added = [Single(name, tensor(name)) for name in removed], [Single(name, tensor(name)) for name in added]
    a = tuple([each.a for each in pairs] + [each.tensor for each in removed])
    b = tuple([each.b for each in pairs] + [each.tensor for each in added])
    sides = [Side(name, Checkpoint(name, "", 0, None, held, (), ())) for name, held in (("a", a), ("b", b))]
    return ComparedEntries(Difference(*sides, tuple(pairs), tuple(removed), tuple(added), **more))


@pytest.mark.parametrize(
    ("name", "lead"),
    [
        ("layer1.0.conv1.weight", "layer1.0"),
        ("layers.3.mlp.experts.17.w1.weight", "layers.3"),
        ("fc.weight", "fc"),
        ("head.norm.weight", "head"),
        ("weight", ""),
        ("0.weight", "0"),
        ("optimizer/state/0/exp_avg", "optimizer"),
        ("", ""),
    ],
)
def test_modules(name, lead):
    """Names stand under their first number, or their first word."""
    assert module(name) == lead


def test_a_module_whose_names_alone_differ():
    """Its line counts what was renamed, and what else differs makes that one of several differences."""
    heads = [pair(f"l.0.{part}", f"m.0.{part}") for part in "ab"]
    changed = pair("l.1.a", "m.1.a", values=Values(Verdict.CHANGED, NUMBERS))
    lines = arranged(comparison([*heads, changed, pair("l.1.b", "m.1.b")]), WantedLines())
    found = [(line.differing, line.renamed) for line in lines if isinstance(line, HeadLine)]
    assert found == [(2, 2), (2, 1)]


def test_a_long_pattern_has_fewer_alternatives():
    """None of them is cut."""
    leaves = ["self_attention", "cross_attention", "feed_forward", "layer_normalization", "output_projection"]
    leaves += ["relative_position_bias"]
    names = [f"model.decoder.layers.{layer}.{leaf}.kernel" for layer in range(20) for leaf in leaves]
    made = comparison([pair(name) for name in names])
    (fold,) = arranged(made, WantedLines())
    assert dict(facts(made, fold))[""] == (
        "model.decoder.layers.{0..19}.{self_attention,cross_attention,feed_forward,layer_normalization,…}.kernel"
    )


@pytest.mark.parametrize(
    ("made", "flags"),
    [
        (pair("x"), 0),
        (pair("x", "y"), Flag.RENAMED),
        (pair("x", shape=(3, 2)), Flag.RESHAPED),
        (pair("x", dtype="float16", values=Values(Verdict.ROUNDED)), Flag.RECAST),
        (pair("x", device="cuda:0"), Flag.RETAGGED),
        (pair("x", values=Values(Verdict.EQUAL)), 0),
        (pair("x", values=Values(Verdict.CLOSE, NUMBERS)), 0),
        (pair("x", values=Values(Verdict.CHANGED, NUMBERS)), Flag.CHANGED),
        (pair("x", values=Values(Verdict.OTHER_BYTES)), Flag.CHANGED),
        (pair("x", values=Values(Verdict.NOT_COMPARED, why="packed")), Flag.UNKNOWN),
        (replace(pair("x", "y"), sure=False), Flag.RENAMED | Flag.GUESSED),
        (replace(pair("x"), transposed=True), Flag.TRANSPOSED),
    ],
)
def test_flags(made, flags):
    """What is said of a pair."""
    assert comparison([made]).flags[0] == flags


def test_magnitudes():
    """Known, unknown, and without a number."""
    assert isnan(magnitude(pair("x")))
    assert magnitude(pair("x", values=Values(Verdict.EQUAL))) == 0
    assert magnitude(pair("x", values=Values(Verdict.CHANGED, NUMBERS))) == pytest.approx(0.1)
    assert magnitude(pair("x", values=Values(Verdict.CHANGED, replace(NUMBERS, odd=1)))) == inf
    assert magnitude(pair("x", values=Values(Verdict.CHANGED, replace(NUMBERS, square_a=0.0)))) == FROM_ZERO
    assert isnan(magnitude(pair("x", values=Values(Verdict.OTHER_BYTES))))


def shown(made, **wanted):
    """The lines in short."""

    def short(line):
        if isinstance(line, HeadLine):
            return f"{'▾' if line.is_open else '▸'} {made.groups[line.group]} {line.differing}/{len(line.entries)}"
        if isinstance(line, FoldLine):
            return f"{'▾' if line.is_open else '▸'} {len(line.entries)} same"
        if isinstance(line, OtherLine):
            return "beside" if line.number < 0 else made.found.others[line.number].name
        return f"{'  ' * line.depth}{made.name(line.entry)}"

    return [short(line) for line in arranged(made, WantedLines(**wanted))]


MIXED = comparison(
    [
        pair("stem.w"),
        pair("stem.b"),
        *[pair(f"l.{n}.{part}") for n in range(3) for part in "ab"],
        pair("l.3.a", values=Values(Verdict.CHANGED, NUMBERS)),
        pair("l.3.b", "l.3.c"),
        pair("l.3.d"),
        pair("l.3.e"),
    ],
    removed=["old"],
    added=["l.3.new", "aux.x"],
    others=(Other("epoch", 1, 2),),
)


def test_lines_by_module():
    """Modules without a difference are one fold; in others what does not differ is one."""
    # what only B has follows what it follows there
    assert shown(MIXED) == [
        "▸ 8 same",
        "▾ l.3 3/5",
        "  l.3.a",
        "  l.3.b",
        "  l.3.new",
        "▸ 2 same",
        "aux.x",
        "old",
        "beside",
        "epoch",
    ]


def test_opened_and_closed():
    """Lines open and close one by one."""
    first, head = arranged(MIXED, WantedLines())[:2]
    assert shown(MIXED, turned={first.key: True})[:3] == ["▾ 8 same", "stem.w", "stem.b"]
    assert shown(MIXED, turned={head.key: False})[1:3] == ["▸ l.3 3/5", "aux.x"]
    assert shown(MIXED, turned={("beside", -1): False})[-1] == "beside"


def test_kinds():
    """Only one kind of difference, and nothing folded."""
    assert shown(MIXED, show=Show.UNLIKE) == ["l.3.a"]
    assert shown(MIXED, show=Show.RENAMED) == ["l.3.b"]
    assert shown(MIXED, show=Show.ONLY_A) == ["old"]
    assert shown(MIXED, show=Show.ONLY_B) == ["l.3.new", "aux.x"]


def test_by_magnitude():
    """The largest change first, what is not known then, what is the same last."""
    assert shown(MIXED, order=LineOrder.MAGNITUDE) == [
        "l.3.a",
        "l.3.b",
        "l.3.new",
        "aux.x",
        "old",
        "▸ 10 same",
        "beside",
        "epoch",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("stem", ["▾ stem 0/2", "  stem.w", "  stem.b"]),
        ("l.3.c", ["l.3.b"]),
        ("*.c", ["l.3.b"]),
        ("is:renamed", ["l.3.b"]),
        ("is:different !is:only-b !is:only-a", ["▾ l.3 2/2", "  l.3.a", "  l.3.b"]),
        ("is:same l.0", ["▾ l.0 0/2", "  l.0.a", "  l.0.b"]),
    ],
)
def test_filter(text, names):
    """Names of either side, and kinds of difference."""
    require_filter(text)
    assert shown(MIXED, text=text) == names


def test_a_filter_that_makes_no_sense():
    """The sentence names the kinds."""
    with pytest.raises(UsageError, match="is:renamed"):
        require_filter("is:odd")


def test_what_is_learnt():
    """Values that become known change columns, and no entry."""
    made = comparison([pair("m.x"), pair("m.y")])
    assert shown(made) == ["▸ 2 same"]
    pairs = (made.found.pairs[0], replace(made.found.pairs[1], values=Values(Verdict.CHANGED, NUMBERS)))
    found = replace(made.found, pairs=pairs, compared=True)
    made.learn(news(found, [1]))
    assert shown(made) == ["▾ m 1/2", "  m.y", "m.x"[:0] + "  m.x"]
    assert made.counts()[Flag.CHANGED] == 1
    assert made.numbers(0) == NUMBERS


def test_modules_are_closed_where_there_are_many():
    """With more lines than a few screens hold, modules are closed to begin with."""
    made = comparison([pair(f"l.{n // 10}.{n}", f"m.{n}") for n in range(400)])
    assert shown(made)[0] == "▸ l.0 10/10" and len(shown(made)) == 40


def test_facts():
    """Both sides, how far they are apart, and what is tied on one side only."""
    tie = Tie("a", ("x", "y"), (), True)
    made = comparison([pair("x", values=Values(Verdict.CHANGED, NUMBERS)), pair("y")], ties=(tie,))
    said = dict(facts(made, EntryLine(0, 0)))
    assert said["values"] == "changed · 2 of 4 elements (50.0 %)"
    assert said[""] == "max |Δ| 0.5 · mean |Δ| 0.15 · rel. L2 0.1 · cosine 0.995000"
    assert said["ties"] == "tied to y in A; separate in B"
    assert "v compares" in dict(facts(made, EntryLine(1, 0)))["values"]


def test_text_of_the_files_is_escaped():
    """Names, devices and values."""
    made = comparison([pair("a\x1b[2J", "b\x1b[2J", device="\x1b[2J")], others=(Other("\x1b", "\x1b", 1),))
    for line in (EntryLine(0, 0), OtherLine(0), *arranged(made, WantedLines())):
        text = title(made, line) + "".join(f"{name}{said}" for name, said in facts(made, line))
        assert text.isprintable()


NAMES = st.lists(st.text("ab.01/", min_size=1, max_size=6), unique=True, max_size=12)


@given(NAMES, st.lists(st.sampled_from(["same", "changed", "renamed", "a", "b"]), min_size=12, max_size=12))
def test_every_entry_has_a_place(names, kinds):
    """Whatever the names: with everything open each entry has one line, in any order."""
    sorts = {kind: [name for name, each in zip(names, kinds, strict=False) if each == kind] for kind in set(kinds)}
    pairs = [pair(name) for name in sorts.get("same", [])]
    pairs += [pair(name, values=Values(Verdict.CHANGED, NUMBERS)) for name in sorts.get("changed", [])]
    pairs += [pair(name, f"{name}!") for name in sorts.get("renamed", [])]
    made = comparison(pairs, sorts.get("a", []), sorts.get("b", []))
    for order in LineOrder:
        lines = arranged(made, WantedLines(order=order))
        folds = {line.key: True for line in lines if isinstance(line, FoldLine)}
        entries = [
            line.entry for line in arranged(made, WantedLines(order=order, turned=folds)) if isinstance(line, EntryLine)
        ]
        assert sorted(entries) == list(range(len(made)))
        assert len({line.key for line in lines}) == len(lines)
