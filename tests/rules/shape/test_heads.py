"""S501 head-size-mismatch and S502 vocab-resize."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ckptdoctor.rules.examples import T
from tests.commands import run_here
from tests.match.architectures import Contents, bert, llama, resnet50
from tests.rules import nouns


def _net(classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, classes))


def _perceptron(sizes: tuple[int, int, int], classes: int) -> Contents:
    """Three perceptron layers, the last with so many rows."""
    found: Contents = {}
    for index, (columns, rows) in enumerate([sizes[:2], sizes[1:], (sizes[2], classes)]):
        found[f"lin{index}.weight"] = T((rows, columns))
        found[f"lin{index}.bias"] = T((rows,))
    return found


def test_the_screen_is_the_one_that_people_know() -> None:
    """Both shapes, the bias likewise, what the checkpoint is, and both ways out."""
    [found] = nouns.findings("S501", resnet50(), resnet50(classes=10))
    assert found.message == "fc.weight [1000, 2048] here, [10, 2048] in the model; fc.bias likewise"
    assert found.cause == "The checkpoint is a 1000-class model."
    assert found.advice == (
        "Either build the model with num_classes=1000, or leave the head out when you load the file, and train it "
        "again: model.load_state_dict({key: value for key, value in weights.items() "
        'if not key.startswith("fc.")}, strict=False)'
    )
    assert found.fix is None, "the file has the only copy of the head"


def test_the_line_that_leaves_the_head_out_loads_the_rest() -> None:
    """What it says is carried out by torch, and the head of the model stays as it is."""
    model, saved = _net(2), _net(5).state_dict()
    [found] = nouns.findings("S501", nouns.described(saved), nouns.described(model.state_dict()))
    line = found.advice.partition(": ")[2]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = eval(line, {"model": model, "weights": saved})
    after = model.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in result.missing_keys)
    assert all(torch.equal(after[key], saved[key]) for key in after if key not in result.missing_keys)
    assert 0 < len(result.missing_keys) < len(after)


def test_the_lines_are_those_of_torch() -> None:
    """Weight and bias are quoted as torch says them."""
    model, saved = _net(2), _net(5).state_dict()
    [found] = nouns.findings("S501", nouns.described(saved), nouns.described(model.state_dict()))
    error = nouns.torch_error(model, saved)
    assert len(found.torch_says) == 2
    assert all(line in error for line in found.torch_says)


def test_what_is_explained_is_not_listed_again() -> None:
    """R003 has nothing to add."""
    assert nouns.findings("R003", resnet50(), resnet50(classes=10)) == []


def test_the_last_layer_of_the_file_is_a_head_whatever_it_is_called() -> None:
    """Nobody calls it a head, but it stands at the end, and nothing takes its outputs."""
    [found] = nouns.findings("S501", _perceptron((6, 8, 8), 5), _perceptron((6, 8, 8), 3))
    assert found.cause == "The checkpoint is a 5-class model."


@pytest.mark.parametrize("order", ["model", "sorted"])
def test_a_hidden_layer_is_no_head(order: str) -> None:
    """What the next layer takes is a width, not a number of classes: whatever the layer is called."""
    here: Contents = {"fc.weight": T((9, 4)), "fc.bias": T((9,)), "out2.weight": T((3, 9)), "a": T((2,)), "b": T((2,))}
    there: Contents = {**here, "fc.weight": T((8, 4)), "fc.bias": T((8,)), "out2.weight": T((3, 8)), "c": T((2,))}
    if order == "sorted":
        here, there = dict(sorted(here.items())), dict(sorted(there.items()))
    assert nouns.findings("S501", here, there) == []


def test_a_layer_that_nothing_explains_may_stand_behind_it() -> None:
    """What is called fc and is joined with other features is no head: the next layer has other sizes, too."""
    rest: Contents = {f"block{at}.weight": T((4, 4)) for at in range(6)}
    here = {"fc.weight": T((9, 4)), "fc.bias": T((9,)), "joined.weight": T((3, 13)), **rest}
    there = {"fc.weight": T((8, 4)), "fc.bias": T((8,)), "joined.weight": T((3, 12)), **rest}
    assert nouns.findings("S501", here, there) == []


def test_a_head_with_weight_norm_is_a_head() -> None:
    """All tensors of the layer that have a row for each class go together."""
    body: Contents = {f"blocks.{index}.weight": T((4, 4)) for index in range(4)}
    here = {**body, "head.last_layer.weight_g": T((9, 1)), "head.last_layer.weight_v": T((9, 4))}
    there = {**body, "head.last_layer.weight_g": T((7, 1)), "head.last_layer.weight_v": T((7, 4))}
    [found] = nouns.findings("S501", here, there)
    assert len(found.keys) == 2


def test_a_single_output_is_no_class() -> None:
    """A regression head has an output, not a class."""
    [found] = nouns.findings("S501", _perceptron((6, 8, 8), 1), _perceptron((6, 8, 8), 3))
    assert found.cause == "The checkpoint's head has a single output."


def test_nothing_is_said_where_the_model_is_another() -> None:
    """That two unrelated models have a layer called fc says nothing about classes."""
    here: Contents = {f"a{index}.weight": T((4, 4)) for index in range(6)}
    there: Contents = {f"b{index}.weight": T((5, 5)) for index in range(6)}
    heads = ({**here, "fc.weight": T((9, 4))}, {**there, "fc.weight": T((7, 4))})
    assert nouns.findings("S501", *heads) == []


@pytest.mark.parametrize(
    ("here", "there", "reason"),
    [
        (32001, 32000, "tokens were added to the checkpoint's table, or it was padded."),
        (50257, 50304, "the model's table seems to be padded to a multiple of 64."),
        (32064, 32000, "tokens were added to the checkpoint's table, or it was padded."),
        (30522, 28996, "they seem to belong to different tokenizers."),
        (32000, 128256, "they seem to belong to different tokenizers."),
    ],
)
def test_the_difference_tells_padding_from_another_tokenizer(here: int, there: int, reason: str) -> None:
    """A token more, a padded table, another tokenizer."""
    contents = llama(2, 64, 160, here), llama(2, 64, 160, there)
    [found] = nouns.findings("S502", *contents)
    assert found.cause == f"The checkpoint's vocabulary has {here:,} tokens, the model's {there:,}: {reason}"
    assert f"resize_token_embeddings({here})" in found.advice
    assert found.fix is None
    assert nouns.findings("S501", *contents) == []


def test_a_head_and_its_bias_belong_to_the_vocabulary() -> None:
    """Whatever has just these two sizes is named with the table, and not as a head of its own."""
    heads = [
        {"cls.predictions.bias": T((size,)), "cls.predictions.decoder.weight": T((size, 768))} for size in (99, 90)
    ]
    here, there = {**bert(2, vocabulary=99), **heads[0]}, {**bert(2, vocabulary=90), **heads[1]}
    [found] = nouns.findings("S502", here, there)
    assert {path[-1] for path in found.keys} == {"embeddings.word_embeddings.weight", *heads[0]}
    assert found.message.startswith("embeddings.word_embeddings.weight [99, 768] here")
    assert nouns.findings("S501", here, there) == []


NETS = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width=4, n_out=3, **others):
        super().__init__(nn.Linear(2, width), nn.Linear(width, n_out))

class Twice(nn.Sequential):
    def __init__(self, first=3, second=3):
        super().__init__(nn.Linear(2, 4), nn.Linear(4, second))

def build(*, targets, depth=3, out_features=3):
    return Net(n_out=out_features)

net = Net()
"""


@pytest.mark.parametrize(
    ("model", "way"),
    [
        ("head_nets.py:Net", "n_out=5"),
        ("head_nets.py:Net(4, 3)", "n_out=5"),
        ("head_nets.py:Net(n_out=7, classes=7)", "5 classes"),  # either may be the one
        ("head_nets.py:build(targets=1)", "out_features=5"),  # the depth is called like nothing of the kind
        ("head_nets.py:Twice", "5 classes"),
        ("head_nets.py:net", "5 classes"),
    ],
)
def test_the_advice_names_the_parameter_of_the_model(model: str, way: str, tmp_path: Path) -> None:
    """The argument that has the model's number of classes, given or by default; none where it may be another."""
    (tmp_path / "head_nets.py").write_text(NETS)
    saved = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 5))
    torch.save(saved.state_dict(), tmp_path / "m.pt")
    said = run_here("check", "m.pt", "--model", model, "--format", "json", cwd=tmp_path).stdout.decode()
    assert f"Either build the model with {way}, or leave the head out" in said
