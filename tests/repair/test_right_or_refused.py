"""``fix --auto`` is right or refuses, with and without ``--unsafe-fixes``: one law after another, on small files."""

from __future__ import annotations

import shlex

import pytest
import torch

from ckptdoctor.cli.main import run

SQUARE = (8, 8)


@pytest.fixture(params=[(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
def fixed(request, tmp_path, monkeypatch, capsys):
    """What comes out for a target with these shapes: the tensors, or None; and what was said."""
    monkeypatch.chdir(tmp_path)

    def fix(here, shapes):
        torch.save(here, "sick.pt")
        torch.save({key: torch.rand(shape) for key, shape in shapes.items()}, "target.pt")
        status = run(["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt", *request.param])
        path = tmp_path / "well.pt"
        assert path.exists() is (status == 0)
        return (torch.load(path, weights_only=True) if status == 0 else None), capsys.readouterr().out

    return fix


def rand(**shapes):
    """Tensors of these shapes; two underscores are a dot."""
    return {key.replace("__", "."): torch.rand(shape) for key, shape in shapes.items()}


@pytest.mark.parametrize("word", ["ema_{}", "{}_momentum", "teacher_{}", "aux_{}", "inv_{}", "{}_grad", "exp_avg_{}"])
def test_a_word_that_makes_another_thing_is_no_other_spelling(word, fixed):
    """The averages, gradients or teachers of layers do not become the layers."""
    shapes = {f"{part}.{n}.weight": SQUARE for part in ("stem", "layers") for n in range(3)}
    here = {key.replace("layers", word.format("layers")): torch.rand(shape) for key, shape in shapes.items()}
    assert fixed(here, shapes)[0] is None


def test_a_bare_square_parameter_is_no_linear_layer(fixed):
    """Which of its sides are outputs no shape tells; of a matrix that is not square it does."""
    here = rand(embed__weight=(9, 8), proj=SQUARE)
    assert fixed(here, {"embed.weight": (9, 8), "proj.weight": SQUARE})[0] is None


def test_a_bare_parameter_with_two_sizes_gets_its_weight(fixed):
    """The shape says how it lies."""
    here = rand(embed__weight=(9, 8), proj=(8, 5), second=(7, 5))
    well, _ = fixed(here, {"embed.weight": (9, 8), "proj.weight": (8, 5), "second.weight": (7, 5)})
    assert well is not None
    assert torch.equal(well["proj.weight"], here["proj"])


@pytest.mark.parametrize("prefix", ["", "model.", "module."])
def test_integers_are_no_weights(prefix, fixed):
    """Codes of a quantised layer are not loaded into a float parameter, under whatever name."""
    here = {f"{prefix}{n}.weight": torch.ones(SQUARE, dtype=torch.int8) for n in "ab"}
    well, said = fixed(here, {"a.weight": SQUARE, "b.weight": SQUARE})
    assert well is None
    assert "integers, which are not weights without their scale: a.weight, b.weight" in said


@pytest.mark.parametrize("numbers", [(0, 2, 3, 4), (0, 1, 3, 7), (0, 4, 8, 9)])
def test_a_list_without_a_member_is_not_closed_up(numbers, fixed):
    """One is missing and one is too many: which one is which, nobody knows."""
    here = {f"layers.{n}.weight": torch.rand(SQUARE) for n in numbers}
    assert fixed(here, {f"layers.{n}.weight": SQUARE for n in range(4)})[0] is None


@pytest.mark.parametrize(("old", "new"), [((0, 2, 4), (0, 1, 2)), ((1, 2, 3), (0, 1, 2)), ((5, 7, 8), (0, 1, 2))])
def test_a_list_moves_as_a_whole_or_not_at_all(old, new, fixed):
    """A shift, every second number, or other numbers altogether: each member is the one that it was."""
    here = {f"layers.{n}.weight": torch.rand(SQUARE) for n in old}
    well, _ = fixed(here, {f"layers.{n}.weight": SQUARE for n in new})
    for one, other in zip(old, new, strict=True):
        assert well is None or torch.equal(well[f"layers.{other}.weight"], here[f"layers.{one}.weight"])


def test_a_lone_part_is_not_put_where_another_is_missing(fixed):
    """Its shapes fit, and say nothing."""
    here = rand(a__weight=SQUARE, b__weight=SQUARE, zeta__weight=SQUARE)
    assert fixed(here, {f"{name}.weight": SQUARE for name in ("a", "b", "head")})[0] is None


BLOCKS = {f"blocks.{n}.{part}.{leaf}": (8,) for n in range(3) for part in ("bn1", "bn2") for leaf in ("weight", "bias")}


def renamed(old, new):
    """The blocks with a part called otherwise in each."""
    return {key.replace(old, new): torch.rand(shape) for key, shape in BLOCKS.items()}


def test_one_foreign_word_in_every_block_is_the_one_that_is_missing_in_every_block(fixed):
    """Its numbered neighbour has its name, and nothing is left over on either side."""
    here = renamed("bn2", "iota")
    well, _ = fixed(here, BLOCKS)
    assert well is not None
    assert all(torch.equal(value, well[key.replace("iota", "bn2")]) for key, value in here.items())


@pytest.mark.parametrize(
    "here",
    [
        renamed("bn2", "ema_bn"),
        renamed("bn2", "aux"),
        renamed("bn1", "xi") | {key.replace("bn2", "tau"): value for key, value in renamed("bn1", "xi").items()},
        {key.replace("bn2", "tau"): value for key, value in renamed("bn1", "xi").items()},
        renamed("bn2", "iota") | {"blocks.3.iota.weight": torch.rand(8), "blocks.3.iota.bias": torch.rand(8)},
        {key: value for key, value in renamed("bn2", "iota").items() if "2.iota" not in key},
        {key.replace("0.bn2", "0.iota").replace("1.bn2", "1.psi"): torch.rand(8) for key in BLOCKS},
        renamed("blocks.2", "blocks.last"),
        renamed("bn2", "bn3"),
    ],
    ids=[
        *("an average", "a second one", "two words and more", "two words", "one too many", "one too few"),
        *("two words for one part", "a whole block", "another number"),
    ],
)
def test_a_foreign_word_that_leaves_a_choice_is_none_of_a_numbered_list(here, fixed):
    """Two words, one that says something else, a member too many or too few, one place alone, another number."""
    assert fixed(here, BLOCKS)[0] is None


@pytest.mark.parametrize(("one", "other"), [("student", "teacher"), ("netG", "netD"), ("module.online", "module.ema")])
def test_two_parts_that_fit_are_a_choice(one, other, fixed, capsys):
    """Each is named with the command that takes it, which works as it stands."""
    shapes = {"fc.weight": SQUARE, "out.weight": (3, 8)}
    here = {f"{part}.{key}": torch.rand(shape) for part in (one, other) for key, shape in shapes.items()}
    well, said = fixed(here, shapes)
    assert well is None
    line = next(each for each in said.splitlines() if each.startswith(f"  {other}, "))
    assert run(shlex.split(line.partition("ckptdoctor ")[2])) == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], here[f"{other}.{key}"]) for key in shapes)


def test_equal_parts_are_no_rivals(tmp_path, monkeypatch):
    """Where the checksums of both agree there is one answer; the copy is dropped by name."""
    monkeypatch.chdir(tmp_path)
    net = {"fc.weight": torch.rand(SQUARE), "out.weight": torch.rand(3, 8)}
    here = {f"{part}.{key}": value.clone() for part in ("model", "best") for key, value in net.items()}
    torch.save(here, "sick.pt")
    torch.save({key: torch.rand(value.shape) for key, value in net.items()}, "target.pt")
    words = ["fix", "sick.pt", "--auto", "--like", "target.pt", "-o", "well.pt", "--unsafe-fixes"]
    assert run(words) == 0
    well = torch.load("well.pt", weights_only=True)
    assert all(torch.equal(well[key], value) for key, value in net.items())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("fc2", "fc3", "fc4"), ("fc1", "fc2", "fc3")),
        (("net.0", "net.4", "net.8"), ("net.0", "net.2", "net.4")),
        (("conv3", "conv4", "conv5"), ("conv1", "conv2", "conv3")),
    ],
)
def test_a_list_that_overlaps_moves_as_a_whole(old, new, fixed):
    """Each member is accounted for, by one rule: counted from another number, or with other gaps, inside names too."""
    here = {f"{name}.{leaf}": torch.rand(SQUARE[: 2 - (leaf == "bias")]) for name in old for leaf in ("weight", "bias")}
    here["stem.weight"] = torch.rand(8, 3)
    shapes = {f"{name}.{leaf}": SQUARE[: 2 - (leaf == "bias")] for name in new for leaf in ("weight", "bias")}
    well, said = fixed(here, {**shapes, "stem.weight": (8, 3)})
    assert well is not None, said
    for one, other in zip(old, new, strict=True):
        assert torch.equal(well[f"{other}.weight"], here[f"{one}.weight"])


@pytest.mark.parametrize("numbers", [(1, 2, 4), (2, 3, 5), (1, 3, 4)])
def test_a_list_inside_names_without_a_member_is_not_closed_up(numbers, fixed):
    """One is missing and one is too many, whatever stands before the numbers."""
    here = {f"fc{n}.weight": torch.rand(SQUARE) for n in numbers}
    assert fixed(here, {f"fc{n}.weight": SQUARE for n in (1, 2, 3)})[0] is None


def test_the_matrices_of_a_gated_layer_are_no_list(fixed):
    """w2 and w3 are other parts than w1 and w2, though they are numbered."""
    here = {f"layers.{n}.mlp.w{m}.weight": torch.rand(SQUARE) for n in range(2) for m in (2, 3)}
    assert fixed(here, {f"layers.{n}.mlp.w{m}.weight": SQUARE for n in range(2) for m in (1, 2)})[0] is None


def test_projections_are_known_by_the_words_in_their_names(fixed):
    """to_query is q_proj, wherever it stands among the others."""
    here = rand(o_proj__weight=SQUARE, to_value__weight=SQUARE, to_query__weight=SQUARE, to_key__weight=SQUARE)
    well, _ = fixed(here, {f"{name}_proj.weight": SQUARE for name in "qkvo"})
    assert well is not None
    for word in ("query", "key", "value"):
        assert torch.equal(well[f"{word[0]}_proj.weight"], here[f"to_{word}.weight"])


def test_a_part_that_was_wrapped_is_the_part(fixed):
    """DataParallel around one of four stages that hold the same."""
    shapes = {f"stage{n}.{m}.weight": SQUARE for n in range(1, 5) for m in range(2)}
    here = {key.replace("stage1.", "stage1.module."): torch.rand(shape) for key, shape in shapes.items()}
    well, _ = fixed(here, shapes)
    assert well is not None
    assert torch.equal(well["stage1.1.weight"], here["stage1.module.1.weight"])


@pytest.mark.parametrize("back", [False, True], ids=["unbound", "stacked"])
def test_square_slices_of_experts_may_be_transposed(back, fixed):
    """No shape shows it, and no library's name says it."""
    here = {"embed.weight": torch.rand(9, 8), "experts.w1": torch.rand(3, *SQUARE)}
    apart = {"embed.weight": (9, 8), **{f"experts.{n}.w1.weight": SQUARE for n in range(3)}}
    if back:
        shapes = {key: tuple(value.shape) for key, value in here.items()}
        here = {key: torch.rand(shape) for key, shape in apart.items()}
        assert fixed(here, shapes)[0] is None
    else:
        assert fixed(here, apart)[0] is None


def test_slices_that_are_not_square_show_that_they_are_transposed(fixed):
    """Inputs × outputs, as some libraries stack them."""
    here = {"embed.weight": torch.rand(9, 8), "experts.w1": torch.rand(3, 8, 5)}
    well, _ = fixed(here, {"embed.weight": (9, 8), **{f"experts.{n}.w1.weight": (5, 8) for n in range(3)}})
    assert well is not None
    assert torch.equal(well["experts.2.w1.weight"], here["experts.w1"][2].T)


def test_the_linear_layers_of_nanogpt_are_gpt2s(fixed):
    """c_attn shows by its shape that it is transposed, and of c_proj beside it is published that it is as well."""
    shapes = {"wte.weight": (11, 8)}
    for n in range(2):
        shapes |= {f"h.{n}.attn.c_attn.weight": (24, 8), f"h.{n}.attn.c_proj.weight": SQUARE}
        shapes |= {f"h.{n}.attn.c_attn.bias": (24,), f"h.{n}.attn.c_proj.bias": (8,), f"h.{n}.ln_1.weight": (8,)}
    here = {key: torch.rand(shape) for key, shape in shapes.items()}
    well, _ = fixed(here, {key: shape[::-1] if "h." in key else shape for key, shape in shapes.items()})
    assert well is not None
    assert torch.equal(well["h.1.attn.c_proj.weight"], here["h.1.attn.c_proj.weight"].T)
