"""The tree of modules and its lines."""

from __future__ import annotations

import random
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Checkpoint, Mapping, Role, Sequence, StateDict
from ckptdoctor.filters.table import Table
from ckptdoctor.tui.models.lines import Visible
from ckptdoctor.tui.models.opened_checkpoint import opened_checkpoint
from ckptdoctor.tui.models.tree import Tree, TreeBranch, TreeOrder, TreeValue, holds
from tests.rendering.samples import tensor


def flat(*keys, shape=(2, 3)):
    """A checkpoint that is one state dict with these keys."""
    tensors = tuple(tensor(key, shape=shape, device="cpu") for key in keys)
    tree = Mapping("dict", tuple((each.path[0], each) for each in tensors))
    state_dict = StateDict((), Role.MODEL, tensors)
    storages = tuple(each.storage for each in tensors)
    return Checkpoint("model.pt", "torch zip", 1, tree, tensors, storages, (state_dict,))


def nested(entries):
    """A checkpoint of nested plain contents without tensors."""
    return Checkpoint("model.pt", "torch zip", 1, entries, (), (), ())


def tree_of(checkpoint, rows=None, order=TreeOrder.FILE):
    """The lines of a checkpoint."""
    return Visible(Tree(checkpoint, Table(checkpoint.tensors), rows, order))


def names(lines):
    """All lines as text, indented."""
    return ["  " * line.depth + lines.tree.name(line.parent, line.item) for line in lines.window(0, 10_000)]


def opened(lines):
    """The same lines with everything open."""
    lines.open_all(lines.tree.root, 10_000)
    return lines


def test_modules_unfold_at_dots():
    """Keys become modules; a tensor keeps what is left of its key."""
    lines = opened(tree_of(flat("a.x", "a.y", "b", "a.z")))
    assert names(lines) == ["a", "  x", "  y", "  z", "b"]


def test_chains_are_one_line():
    """Levels with one child each are folded, and a module with one tensor is that tensor."""
    lines = opened(tree_of(flat("m.n.a.x", "m.n.a.y", "m.n.b.c.x")))
    assert names(lines) == ["m.n", "  a", "    x", "    y", "  b.c.x"]


def test_a_name_that_is_module_and_tensor():
    """A key that is the beginning of others is a tensor beside the module."""
    assert names(opened(tree_of(flat("a", "a.x", "a.y", "a..z")))) == ["a", "a", "  x", "  y", "  .z"]


def test_nested_contents_fold_and_unfold():
    """What is not a state dict unfolds as it is nested."""
    contents = Mapping("dict", (("deep", Mapping("dict", (("er", Sequence("list", (1, 2))),))), ("plain", 3)))
    lines = opened(tree_of(nested(contents)))
    assert names(lines) == ["deep/er", "  0", "  1", "plain"]


def test_a_tensor_alone():
    """A file may be one tensor and nothing else."""
    one = tensor(shape=(2,), device="cpu", key="0")
    lines = tree_of(Checkpoint("t.pt", "torch zip", 1, one, (one,), (one.storage,), ()))
    assert names(lines) == ["(root)"]


def test_many_plain_values_are_counted():
    """Lists of a million numbers do not become a million lines."""
    lines = tree_of(nested(Sequence("list", tuple(range(5000)))))
    assert len(lines) == 2001
    last = lines.at(2000).item
    assert isinstance(last, TreeValue) and last.more == 3000


def test_largest_first():
    """The other order puts what takes most bytes first, at every level."""
    made = flat("small.x", "small.y", "large.x", "large.y", "large.z")
    assert names(opened(tree_of(made, order=TreeOrder.LARGEST)))[0] == "large"


def test_only_some_rows():
    """A filtered tree has the modules of its rows and no others."""
    lines = opened(tree_of(flat("a.x", "a.y", "b.x", "b.y"), [1, 2]))
    assert names(lines) == ["a.y", "b.x"]


def test_the_metadata_is_a_branch():
    """The metadata of a safetensors file stands behind its tensors."""
    from dataclasses import replace

    lines = tree_of(replace(flat("a"), metadata={"format": "pt"}))
    lines.open(lines.at(1).item)
    assert names(lines) == ["a", "metadata", "  format"]


def test_ties_count_once():
    """Two names of one tensor are linked, and counted once where both are in."""
    one, other = tensor("m", "a.w", key="0"), tensor("m", "b.w", key="0")
    table = Table((one, other, tensor("m", "c.w", key="1")))
    assert table.tied_to(0) == (1,) and table.tied_to(2) == ()
    assert table.figures(range(3)).elements == 2 * one.numel
    assert table.figures(range(1, 3)).elements == 2 * one.numel
    assert table.figures([0, 1]).elements == one.numel


def test_the_weights_are_unfolded_to_begin_with():
    """What people come to see is open when the file is."""
    lines = opened_checkpoint("m.pt", flat("m.a.x", "m.a.y", "m.b.x", "m.b.y")).lines
    assert names(lines) == ["m", "  a", "  b"]


def test_reveal_opens_what_is_above():
    """A jump opens all levels above its tensor and gives its line."""
    lines = tree_of(flat("a.x.w", "a.x.b", "a.y.w", "a.y.b", "c.w", "c.b"))
    number = lines.reveal(("a.y.b",))
    line = lines.at(number)
    assert lines.tree.path(line.item) == ("a.y.b",)
    assert names(lines) == ["a", "  x", "  y", "    w", "    b", "c"]


def test_reveal_what_is_not_there():
    """A jump to a place that does not exist goes nowhere."""
    assert tree_of(flat("a.x")).reveal(("nothing",)) is None


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(".".join), min_size=1, unique=True),
    st.randoms(),
)
def test_lines_are_where_they_say(keys, dice):
    """Whatever is open: every line has the number that it is looked up by, and every open level its lines below it."""
    lines = tree_of(flat(*keys))
    for _ in range(12):
        item = lines.at(dice.randrange(len(lines))).item
        if isinstance(item, TreeBranch):
            (lines.close if item.is_open and dice.random() < 0.4 else lines.open)(item)
        check(lines)
    shuffled = lines.again(TreeOrder.LARGEST, None)
    check(shuffled)
    assert len(shuffled) == len(lines)


def check(lines):
    """Hold the index against a walk through the tree."""
    walked = list(walk(lines.tree.root, 0))
    assert len(walked) == len(lines)
    for number, (parent, index, depth) in enumerate(walked):
        line = lines.at(number)
        assert (line.parent, line.index, line.depth) == (parent, index, depth)
        assert lines.number(parent, index) == number
    with pytest.raises(IndexError):
        lines.at(len(lines))


def walk(branch, depth):
    """All lines below a level, without the index."""
    for index, item in enumerate(branch.children):
        yield branch, index, depth
        if isinstance(item, TreeBranch) and item.is_open:
            yield from walk(item, depth + 1)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "", "10"]), min_size=1, max_size=4).map(".".join), unique=True))
def test_every_tensor_is_in_the_tree_once(keys):
    """Nothing is lost and nothing doubled, whatever the names; and every level holds what is below it."""
    lines = opened(tree_of(flat(*keys)))
    items = [line.item for line in lines.window(0, 10_000)]
    assert sorted(item for item in items if isinstance(item, int)) == list(range(len(keys)))
    for line in lines.window(0, 10_000):
        if isinstance(line.item, int):
            above = line.parent
            while above is not None:
                assert holds(above.rows, line.item)
                above = above.parent


def test_figures_of_neighbours_and_of_scattered_rows():
    """Sums are right whether rows are neighbours or not."""
    made = flat(*[f"a.{n}" for n in range(50)])
    table = Table(made.tensors)
    rows = sorted(random.Random(1).sample(range(50), 20))
    assert table.figures(rows).elements == 20 * 6
    assert table.figures(range(5, 9)).nbytes == 4 * 24


def natural(*keys, **options):
    """All lines in natural order, with the first levels open."""
    return tree_of(flat(*keys, **options), order=TreeOrder.NATURAL)


def test_numbers_come_in_their_order():
    """Layer 2 before layer 10, however the file has them; what is between them stays in its place."""
    lines = natural("h.0.x", "h.10.x", "norm", "h.2.x")
    assert names(opened(lines)) == ["h", "  0.x", "  2.x", "  10.x", "norm"]


def test_a_block_of_one_tensor_is_in_its_place():
    """Its line has the name of the tensor as well, and still comes between its neighbours."""
    keys = [f"h.{layer}.{leaf}" for layer in (10, 11, 9, 12) for leaf in "ab"] + ["h.13.x"]
    level = [name for name in names(opened(natural("h.8.a", *keys))) if name.startswith("  ") and name[2] != " "]
    assert level == ["  8.a", "  {9…12}", "  13.x"]


def test_blocks_that_are_alike_are_one_line():
    """It has the name of both levels, and opens to the blocks."""
    lines = natural("first", *[f"layers.{layer}.{leaf}" for layer in range(12) for leaf in "ab"], "last")
    assert names(lines) == ["first", "layers.{0…11}", "last"]
    fold = lines.at(1).item
    lines.open(fold)
    assert names(lines)[:4] == ["first", "layers.{0…11}", "  0", "  1"]
    assert [len(block.rows) for block in fold.blocks] == [2] * 12 and len(fold.rows) == 24


def test_blocks_of_an_only_child_are_one_line():
    """Its name follows the numbers; blocks whose only child has another name are not among them."""
    keys = [f"h.{layer}.block.{leaf}" for layer in range(5) for leaf in "ab"]
    lines = natural("first", *keys)
    assert names(lines) == ["first", "h.{0…4}.block"]
    lines.open(lines.at(1).item)
    assert names(lines)[2:4] == ["  0.block", "  1.block"]
    others = [f"h.{layer}.other.{leaf}" for layer in range(5, 9) for leaf in "ab"]
    folds = [name for name in names(opened(natural(*keys, *others))) if "{" in name]
    assert folds == ["  {0…4}.block", "  {5…8}.other"]


def test_a_block_that_differs_has_its_own_line():
    """So has one that is missing: only neighbours are put together."""
    keys = [f"layers.{layer}.{leaf}" for layer in range(11) for leaf in "ab" if layer != 9]
    lines = opened(natural(*keys, "layers.4.c"))
    assert [name for name in names(lines) if name.startswith("  ") and not name.startswith("   ")] == [
        *("  {0…3}", "  4", "  {5…8}", "  10")
    ]


def test_blocks_are_alike_whatever_the_order_of_their_tensors():
    """A shard lists what it has in its own order, so a block that is in two shards has another one."""
    keys = [f"h.{block}.{leaf}" for block in range(6) for leaf in ("ab" if block != 3 else "ba")]
    lines = tree_of(flat(*keys), order=TreeOrder.NATURAL)
    assert names(lines) == ["h.{0…5}"]


def test_no_level_waits_for_another():
    """While a thread grows one, however large, the screen has the others."""
    begun, go_on, busy = Event(), Event(), set()

    def values_of(row):
        if row in busy:
            begun.set()
            assert go_on.wait(30)

    checkpoint = flat("a.x", "a.y", "b.x", "b.y")
    tree = Tree(checkpoint, Table(checkpoint.tensors), None, TreeOrder.STD, values_of)
    large, small = tree.grow(tree.root)
    busy.update(large.rows)
    thread = Thread(target=tree.grow, args=(large,))
    thread.start()
    assert begun.wait(30)
    assert tree.grow(small) == [2, 3] and large.children is None
    go_on.set()
    thread.join()
    assert large.children == [0, 1]


def test_what_lies_in_a_fold_is_found():
    """A jump opens the fold, and the block in it."""
    lines = natural(*[f"layers.{layer}.{leaf}" for layer in range(12) for leaf in "ab"])
    number = lines.reveal(("layers.7.b",))
    assert names(lines)[number] == "    b" and names(lines)[number - 2] == "  7"
