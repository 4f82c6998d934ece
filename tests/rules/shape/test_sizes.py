"""S510 wrong-model-size, S511 placeholder-shape and S512 tp-shard-shape."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.rules.examples import T
from tests.match.architectures import SIZES, Contents, bert, llama, llama_rank, resnet18, resnet34, vit
from tests.rules import nouns


@pytest.mark.parametrize(
    ("here", "there", "message"),
    [
        (
            "BERT large",
            "BERT base",
            "the checkpoint has 24 blocks of width 1,024, the model 12 blocks of width 768: BERT large for BERT base?",
        ),
        (
            "resnet50",
            "resnet18",
            "the checkpoint has stages of 3, 4, 6 and 3 blocks, the model stages of 2, 2, 2 and 2 blocks: "
            "resnet50 for resnet18?",
        ),
        ("resnet50", "resnet34", "most layers are 4 times as wide as in the model: resnet50 for resnet34?"),
        ("vgg16", "vgg11", "the sizes differ throughout: vgg16 for vgg11?"),
        (
            "Llama 7B",
            "Llama 13B",
            "the checkpoint has 32 blocks of width 4,096, the model 40 blocks of width 5,120: Llama 7B for Llama 13B?",
        ),
    ],
)
def test_both_models_are_described_and_named(here: str, there: str, message: str) -> None:
    """Depth and width of both, and what such models are called."""
    [found] = nouns.findings("S510", SIZES[here], SIZES[there])
    assert found.message == message
    assert found.fix is None


def test_models_without_a_name_are_described_alike() -> None:
    """Depth, width and vocabulary are told from the shapes of any transformer."""
    [found] = nouns.findings("S510", llama(3, 96, 200, 320), llama(5, 64, 160, 500))
    assert found.message == (
        "the checkpoint has 3 blocks of width 96 and 320 tokens, the model 5 blocks of width 64 and 500 tokens"
    )
    assert found.cause == "30 of 30 keys that both have differ in shape."


def test_a_perceptron_of_another_width_is_described_by_its_proportion() -> None:
    """Where nothing is repeated, the one proportion says it."""
    nets = []
    for width in (8, 16):
        layers = [torch.nn.Linear(6, width), torch.nn.Linear(width, width), torch.nn.Linear(width, width)]
        nets.append(torch.nn.Sequential(*layers, torch.nn.Linear(width, 3)))
    small, large = nets
    here, there = nouns.described(small.state_dict()), nouns.described(large.state_dict())
    [found] = nouns.findings("S510", here, there)
    assert found.message == "most layers are half as wide as in the model"
    assert all(line in nouns.torch_error(large, small.state_dict()) for line in found.torch_says)


def test_depth_alone_is_said_in_terms_of_missing_keys() -> None:
    """All shapes agree, and torch complains of whole blocks."""
    [found] = nouns.findings("S510", resnet18(), resnet34())
    assert found.torch_says[0].startswith('Missing key(s) in state_dict: "layer1.2.conv1.weight"')
    [found] = nouns.findings("S510", bert(6), bert(4))
    assert found.torch_says[0].startswith('Unexpected key(s) in state_dict: "encoder.layer.4.')
    assert found.cause == "Everything else fits: 32 keys of additional blocks are only in the checkpoint."


@pytest.mark.parametrize("change", ["another block", "a gap", "a tail", "both ways"])
def test_more_than_further_blocks_is_no_depth(change: str) -> None:
    """Blocks of another form, missing in the middle, or with something else beside them are somebody else's."""
    there = bert(6)
    here: Contents = dict(there)
    for key in list(here):
        if key.startswith(f"encoder.layer.{2 if change == 'a gap' else 5}."):
            del here[key]
    if change == "another block":
        there["encoder.layer.5.output.dense.weight"] = T((768, 99))
    elif change == "a tail":
        del here["pooler.dense.weight"]
    elif change == "both ways":
        here["head.weight"] = T((2, 768))
    assert nouns.findings("S510", here, there) == []


def test_another_model_with_the_same_parts_is_no_other_size() -> None:
    """An encoder with its decoder is not a decoder of another width, though all names of the one are in the other."""
    decoder = {f"decoder.{key}": value for key, value in bert(3, 64).items()}
    both = {f"{side}.{key}": value for side in ("encoder", "decoder") for key, value in bert(3, 96).items()}
    assert nouns.findings("S510", decoder, both) == []
    assert nouns.findings("S510", both, decoder) == []


def test_a_few_wider_layers_are_no_larger_model() -> None:
    """A head and its neighbour, or all of one layer, are not the whole."""
    here, there = vit(classes=10), vit(classes=100)
    assert nouns.findings("S510", here, there) == []
    there = {key: T(value.shape[::-1]) if "fc1.w" in key else value for key, value in vit().items()}  # type: ignore[attr-defined]
    assert nouns.findings("S510", vit(), there) == []


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_of_llama_is_known(ranks: int) -> None:
    """Matrices in parts, norms whole: by rows and by columns, whatever the file is called."""
    [found] = nouns.findings("S512", llama_rank(ranks), llama_rank(1))
    assert found.message.startswith(f"one of {ranks} parts of 282 tensors: output.weight")
    assert found.cause.startswith("201 tensors are split by rows and 81 by columns, and the norms are complete")
    assert nouns.findings("S510", llama_rank(ranks), llama_rank(1)) == []


def test_a_padded_vocabulary_is_a_part_too() -> None:
    """Megatron pads the table before it splits it."""
    here = {**llama_rank(2), "tok_embeddings.weight": T((16064, 5120))}
    assert len(nouns.findings("S512", here, llama_rank(1))) == 1


@pytest.mark.parametrize("name", ["consolidated.00.pth", "mp_rank_01_model_states.pt", "model.pt"])
def test_a_file_called_like_a_rank_needs_less(name: str) -> None:
    """Where tables are whole only the name of the file tells a rank from a narrower model."""
    whole = {key: value for key, value in llama_rank(1).items() if key in ("tok_embeddings.weight", "output.weight")}
    checkpoint = nouns.checkpoint({**llama_rank(2), **whole})
    object.__setattr__(checkpoint, "path", f"runs/{name}")
    found = nouns.findings_in("S512", checkpoint, nouns.reference(llama_rank(1)))
    assert bool(found) == (name != "model.pt")


def test_what_zero_leaves_of_a_model_is_known() -> None:
    """Small parameters stay whole below DeepSpeed's threshold, the others are empty."""
    contents = {key: value if len(value.shape) == 1 else T((0,)) for key, value in bert(2).items()}  # type: ignore[attr-defined]
    [found] = nouns.findings("S511", {"module": contents})
    assert found.message == (
        "16 of 39 tensors of module are placeholders without values, such as embeddings.word_embeddings.weight [0]"
    )


def test_torch_says_what_is_quoted_of_placeholders() -> None:
    """The line begins as torch's does, whatever the model."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(4)])
    empty = {key: torch.empty(0) for key in model.state_dict()}
    [found] = nouns.findings("S511", nouns.described(empty))
    assert found.torch_says[0] in nouns.torch_error(model, empty)


def test_a_model_of_vectors_is_no_placeholder() -> None:
    """Norms, slopes and a few odd tensors are what they are."""
    odd: Contents = {f"layers.{at}.norm.weight": T((1,)) for at in range(8)}
    assert nouns.findings("S511", odd) == []
    assert nouns.findings("S511", bert(2)) == []
