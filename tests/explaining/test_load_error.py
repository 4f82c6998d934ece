"""Errors of load_state_dict, read into keys and shapes."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ckptdoctor.explaining.load_error import load_error, load_errors
from ckptdoctor.explaining.text import cleaned
from ckptdoctor.match.shapes.pairs import Pair


def error_of(model, weights):
    """What torch says, read."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        return load_error(cleaned(str(error)))
    raise AssertionError("it loaded")


def read(text):
    return load_error(cleaned(text))


NAMES = st.lists(
    st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=4).map(".".join),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(NAMES)
@settings(max_examples=60, deadline=None)
def test_torchs_own_error_is_read_back(keys):
    """Every key and shape that the installed torch names comes out as it went in."""
    weights = {f"x.{key}": torch.ones(2) for key in keys} | {"bias": torch.ones(7)}
    error = error_of(nn.Linear(2, 3), weights)
    assert error.missing == ("weight",)
    assert sorted(error.unexpected) == sorted(f"x.{key}" for key in keys)
    assert error.mismatched == (Pair("bias", (7,), (3,)),)
    assert error.complete
    assert error.model_class == "Linear"


def test_scalars_and_empty_shapes():
    """torch.Size([]) is a shape too."""
    layer = nn.Module()
    layer.scale = nn.Parameter(torch.ones(1))
    assert error_of(layer, {"scale": torch.ones(())}).mismatched == (Pair("scale", (), (1,)),)


def test_a_wrapped_text_is_the_same():
    """Keys that were broken over two lines, behind the prefix of a rank, are put together."""
    text = 'Missing key(s) in state_dict: "layer1.conv1.wei\n[rank0]: ght", "fc.bias". \n'
    assert read(text).missing == ("layer1.conv1.weight", "fc.bias")
    assert read(text).complete


def test_cut_texts_are_not_complete():
    """A list that breaks off, is abridged, or names only the first key says so."""
    for text in (
        'Missing key(s) in state_dict: "a.b", "c.d',
        'Missing key(s) in state_dict: "a.b", "c.d", ',
        'Missing key(s) in state_dict: "a.b", ...',
        'Missing key(s) in state_dict: "a.b", …',
        "KeyError: 'unexpected key \"a.b\" in state_dict'",
    ):
        assert not read(text).complete
        assert "a.b" in (*read(text).missing, *read(text).unexpected)


def test_ranks_repeat_each_other():
    """Each key is named once, however many ranks say it."""
    text = 'Missing key(s) in state_dict: "a.b", "c.d". \n'
    assert read(text * 8).missing == ("a.b", "c.d")


def test_the_words_of_safetensors():
    """load_model ends its lists without a full stop."""
    text = (
        'Error(s) in loading state_dict for Linear:\n    Missing key(s) in state_dict: "bias", "weight"\n'
        '    Unexpected key(s) in state_dict: "a", "b"'
    )
    error = read(text)
    assert (error.missing, error.unexpected, error.complete) == (("bias", "weight"), ("a", "b"), True)


def test_the_words_of_old_torch():
    """0.3 printed a set, and shapes in another order."""
    assert set(read("KeyError: 'missing keys in state_dict: \"{\\'a\\', \\'b\\'}\"'").missing) == {"a", "b"}
    text = (
        "While copying the parameter named fc.weight, whose dimensions in the model are torch.Size([10, 5]) and whose"
        " dimensions in the checkpoint are torch.Size([7, 5])."
    )
    assert read(text).mismatched == (Pair("fc.weight", (7, 5), (10, 5)),)
    text = (
        "size mismatch for fc.bias: copying a param of torch.Size([7]) from checkpoint, where the shape is"
        " torch.Size([10]) in current model."
    )
    assert read(text).mismatched == (Pair("fc.bias", (7,), (10,)),)


def test_incompatible_keys_as_printed():
    """What strict=False returns, printed."""
    text = "_IncompatibleKeys(missing_keys=['a.b'], unexpected_keys=[])"
    assert (read(text).missing, read(text).unexpected, read(text).complete) == (("a.b",), (), True)


def test_the_words_of_transformers():
    """Warnings are read as errors are, and marked as what they are."""
    text = (
        "Some weights of the model checkpoint at x were not used when initializing BertModel: ['cls.a', 'cls.b']\n"
        "Some weights of BertModel were not initialized from the model checkpoint at x and are newly initialized:"
        " ['pooler.a']\n"
    )
    error = read(text)
    assert (error.missing, error.unexpected) == (("pooler.a",), ("cls.a", "cls.b"))
    assert (error.model_class, error.warning) == ("BertModel", True)


def test_nothing_is_nothing():
    """A text without keys is no error."""
    assert read("all keys matched successfully") is None


ENC = """Traceback (most recent call last):
  File "train.py", line 7, in <module>
RuntimeError: Error(s) in loading state_dict for Enc:
\tMissing key(s) in state_dict: "a.weight".
\tUnexpected key(s) in state_dict: "fc.weight", "fc.bias".
"""
NET = ENC.replace("Enc", "Net").replace('"fc.weight", "fc.bias"', '"extra.weight"')


def of(text):
    """The class and the unexpected keys of every error of a text."""
    return [(each.model_class, each.unexpected) for each in load_errors(cleaned(text))]


def test_errors_of_two_models_are_two():
    """What one model calls unexpected is not said to be unexpected to the other, whatever is between them."""
    enc, net = ("Enc", ("fc.weight", "fc.bias")), ("Net", ("extra.weight",))
    assert of(ENC + NET) == [enc, net]
    assert of(ENC + "\nDuring handling of the above exception, another exception occurred:\n\n" + NET) == [enc, net]
    assert of("\n".join([ENC, NET, ENC, NET, NET])) == [enc, net]
    assert of(ENC + ENC.replace('"fc.weight", ', "")) == [enc, ("Enc", ("fc.bias",))]
    first, second = load_errors(cleaned(ENC + NET))
    assert first.offset < second.offset
    assert load_error(cleaned(ENC + NET)) == first


def test_an_error_that_is_repeated_is_one():
    """Ranks and retries print the same error again, one after another, line by line among each other, or cut short."""
    enc = [("Enc", ("fc.weight", "fc.bias"))]
    ranks = ["".join(f"[rank{rank}]: {line}\n" for line in ENC.splitlines()) for rank in range(3)]
    lines = [each.splitlines(keepends=True) for each in ranks]
    assert of("".join(ranks)) == enc
    assert of("".join(line for each in zip(*lines, strict=True) for line in each)) == enc
    shifted = zip(lines[0], ["", *lines[1][:-1]], strict=True)
    assert of("".join(line for each in shifted for line in each) + lines[1][-1]) == enc
    assert of(ENC + ENC[: ENC.index('"fc.bias"')]) == enc
    source = "    raise RuntimeError('Error(s) in loading state_dict for {}:\\n\\t{}'.format(\n"
    assert of(source + ENC + source + ENC) == enc


def test_a_warning_before_the_first_of_two_errors_is_about_the_same_load():
    """The library warns, and then torch raises."""
    warning = "Some weights of Enc were not initialized and are newly initialized: ['head.bias']\n"
    first, second = load_errors(cleaned(warning + ENC + NET))
    assert {*first.missing} == {"head.bias", "a.weight"}
    assert second.missing == ("a.weight",)
