"""S503 position-embedding-resize, S504 input-channel-mismatch and S513 conv-rank-mismatch."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.rules.examples import T
from tests.match.architectures import Contents, bert, gpt2, resnet18, swin, vit
from tests.rules import nouns


def _convolutions(kind: type[torch.nn.Module], channels: int = 3) -> torch.nn.Module:
    first, second = kind(channels, 4, 3), kind(4, 4, 3)
    return torch.nn.Sequential(first, torch.nn.BatchNorm2d(4), second, torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("here", "there", "cause"),
    [
        (
            vit(1),
            vit(1, patches=576),
            "The checkpoint's images have 14 × 14 patches and a class token, the model's 24 × 24 patches and "
            "a class token: a different image or patch size.",
        ),
        (swin(7), swin(12), "The checkpoint was trained with windows of 7 × 7, the model has 12 × 12."),
        (
            bert(1),
            bert(1, positions=1024),
            "The checkpoint has 512 positions, the model 1,024: inputs of another length.",
        ),
        (
            vit(1),
            vit(1, patches=197),
            "The checkpoint's images have 14 × 14 patches and a class token, the model's 14 × 14 patches and "
            "two tokens before them: different tokens before the patches.",
        ),
    ],
)
def test_the_sizes_are_said_in_words(here: Contents, there: Contents, cause: str) -> None:
    """Grids of patches, windows, and places in a text."""
    [found] = nouns.findings("S503", here, there)
    assert found.cause == cause
    assert found.fix is None


def test_masks_as_long_as_the_text_belong_to_the_positions() -> None:
    """The causal masks that GPT-2 keeps in buffers are not listed apart."""
    sides = []
    for positions in (1024, 2048):
        masks = {f"transformer.h.{at}.attn.bias": T((1, 1, positions, positions), "uint8") for at in range(12)}
        sides.append({**gpt2(positions=positions), **masks})
    [found] = nouns.findings("S503", *sides)
    assert len(found.keys) == 13
    assert found.message.endswith("12 more keys likewise")


def test_a_mask_alone_is_no_table_of_positions() -> None:
    """A bias of another size is a bias."""
    body: Contents = {f"layers.{at}.weight": T((4, 4)) for at in range(4)}
    assert nouns.findings("S503", {**body, "bias": T((8,))}, {**body, "bias": T((9,))}) == []


@pytest.mark.parametrize(("here", "there"), [(3, 1), (1, 3), (3, 4), (4, 9)])
def test_other_inputs_are_found(here: int, there: int) -> None:
    """Only the first layer differs, and only in what it takes."""
    [found] = nouns.findings("S504", resnet18(channels=here), resnet18(channels=there))
    assert found.message == f"conv1.weight [64, {here}, 7, 7] here, [64, {there}, 7, 7] in the model"
    noun = "channel" if here == 1 else "channels"
    assert found.cause == f"The checkpoint takes {here} input {noun}, the model {there}."
    assert ("weight." in found.advice) == ({here, there} == {1, 3})


def test_the_lines_about_channels_are_those_of_torch() -> None:
    """The first layer of a Sequential, which nobody calls conv1."""
    model, saved = _convolutions(torch.nn.Conv2d, 1), _convolutions(torch.nn.Conv2d).state_dict()
    [found] = nouns.findings("S504", nouns.described(saved), nouns.described(model.state_dict()))
    error = nouns.torch_error(model, saved)
    assert all(line in error for line in found.torch_says)


def test_the_advice_about_grey_images_is_true() -> None:
    """The summed weights do for a grey image what the others do for one with three equal channels."""
    torch.manual_seed(0)
    colour, grey = torch.nn.Conv2d(3, 4, 3, dtype=torch.float64), torch.nn.Conv2d(1, 4, 3, dtype=torch.float64)
    grey.load_state_dict({**colour.state_dict(), "weight": colour.weight.data.sum(1, keepdim=True)})
    image = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    assert torch.allclose(grey(image), colour(image.repeat(1, 3, 1, 1)))
    colour.load_state_dict({**grey.state_dict(), "weight": grey.weight.data.repeat(1, 3, 1, 1) / 3})
    assert torch.allclose(grey(image), colour(image.repeat(1, 3, 1, 1)))


def test_a_later_layer_is_not_the_first() -> None:
    """Groups, and a narrower layer before it, change inputs too."""
    for name, shape in (("layer1.0.conv1.weight", (64, 32, 3, 3)), ("layer3.0.downsample.0.weight", (256, 64, 1, 1))):
        assert nouns.findings("S504", resnet18(), {**resnet18(), name: T(shape)}) == []


@pytest.mark.parametrize("kind", [torch.nn.Conv1d, torch.nn.Conv3d])
def test_other_dimensions_are_found(kind: type[torch.nn.Module]) -> None:
    """Every convolution is named at once, in torch's words."""
    model, saved = _convolutions(kind), _convolutions(torch.nn.Conv2d).state_dict()
    [found] = nouns.findings("S513", nouns.described(saved), nouns.described(model.state_dict()))
    error = nouns.torch_error(model, saved)
    assert all(line in error for line in found.torch_says)
    assert len(found.keys) == 2


def test_inflating_as_advised_keeps_what_the_model_does() -> None:
    """Repeated and divided kernels give for a constant volume what the flat ones gave for the image."""
    flat, deep = torch.nn.Conv2d(3, 4, 3, dtype=torch.float64), torch.nn.Conv3d(3, 4, 3, dtype=torch.float64)
    kernel = flat.weight.data.unsqueeze(2).repeat(1, 1, 3, 1, 1) / 3
    deep.load_state_dict({**flat.state_dict(), "weight": kernel})
    image = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    volume = image.unsqueeze(2).repeat(1, 1, 3, 1, 1)
    assert torch.allclose(deep(volume).squeeze(2), flat(image))
