"""The language of the filter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.errors import UsageError
from ckptdoctor.filters.found import Findings
from ckptdoctor.filters.language import parse
from ckptdoctor.filters.table import Table
from ckptdoctor.findings import Finding, Severity
from tests.rendering.samples import tensor

TENSORS = (
    tensor("model", "Conv1.weight", shape=(64, 3, 7, 7)),
    tensor("model", "fc.weight", shape=(1000, 768), dtype="bfloat16", device="cpu"),
    tensor("model", "fc.bias", shape=(1000,), dtype="bfloat16", device="cpu"),
    tensor("model", "step", shape=(), dtype="int64", device="cpu"),
    tensor("model", "tied.weight", shape=(1000, 768), dtype="bfloat16", device="cpu", key="model/fc.weight"),
    tensor("model", "two words[0]", shape=(0, 768), device="cuda:1"),
)
FINDING = Finding("N401", "module-prefix", Severity.ERROR, "…", keys=(TENSORS[0].path, TENSORS[2].path))


def kept(text):
    """The rows that a filter lets through."""
    table = Table(TENSORS)
    rows = parse(text).rows(table, Findings(table, (FINDING,)))
    return None if rows is None else list(rows)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", None),
        ("  ", None),
        ("conv", [0]),
        ("WEIGHT", [0, 1, 4]),
        ("*.weight", [0, 1, 4]),
        ("fc.*", [1, 2]),
        ("model/*", [0, 1, 2, 3, 4, 5]),
        ("?c.bias", [2]),
        ("weight !fc", [0, 4]),
        ('"two words"', [5]),
        ('"words[0]"', [5]),
        ("dtype:bf16", [1, 2, 4]),
        ("dtype:bfloat16,i64", [1, 2, 3, 4]),
        ("dtype:torch.float32", [0, 5]),
        ("dtype:long", [3]),
        ("!dtype:bf16", [0, 3, 5]),
        ("shape:*x768", [1, 4, 5]),
        ("shape:64x3x7x7", [0]),
        ("shape:[1000]", [2]),
        ("shape:scalar", [3]),
        ("shape:[1000,768]", [1, 4]),
        ("shape:[0-9]x*", [5]),
        ("device:cuda", [0, 5]),
        ("device:cuda:1", [5]),
        (">1MB", [1, 4]),
        ("<=8B", [0, 1, 2, 3, 4, 5]),  # B is a billion elements, as people count those of models
        (">1M", []),
        (">100k", [1, 4]),
        ("=1", [3]),
        ("size>1MB", [1, 4]),
        ("size:<1", [5]),
        ("<1", [5]),
        ("finding:N401", [0, 2]),
        ("finding:N", [0, 2]),
        ("finding:error", [0, 2]),
        ("finding:module-prefix", [0, 2]),
        ("finding:*", [0, 2]),
        ("finding:D601", []),
        ("!finding:*", [1, 3, 4, 5]),
        ("is:tied", [1, 4]),
        ("is:empty", [5]),
        ("bf16 conv", []),
        ("fc dtype:bf16 >1MB", [1]),
        ("a:b", []),
    ],
)
def test_what_is_let_through(text, rows):
    """Every word of the language, alone and with others."""
    assert kept(text) == rows


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dtype:bf61", 'Unknown dtype "bf61". Did you mean "bf16"?'),
        ("dtype:", "dtype: needs a value, such as dtype:bf16."),
        ("dtyp:f32", 'Unknown filter "dtyp:". Did you mean "dtype:"?'),
        ("is:big", 'Unknown filter "is:big". Use one of is:tied, is:parameter, is:empty, is:meta.'),
        (">big", '">big" is not a size. Use >1MB for bytes, or >1M for elements.'),
        ("size>abc", '"size>abc" is not a size. Use >1MB for bytes, or >1M for elements.'),
        ("size:1MB", '"size:1MB" compares nothing. Use >1MB for bytes, or >1M for elements.'),
        ("sise>1MB", 'Unknown filter "sise". Use >1MB for bytes, or >1M for elements.'),
        ("numel>1M", 'Unknown filter "numel". Use >1MB for bytes, or >1M for elements.'),
        ("dtype=bf16", "dtype needs a colon, such as dtype:bf16."),
        ("dtype:zzz", 'Unknown dtype "zzz". Use a name such as float32, bf16 or i64.'),
        ("shape:big", '"big" is not a shape. Use shape:64x3x*, or shape:scalar.'),
        ("device:gpu", '"gpu" is not a device of PyTorch. Use device:cuda.'),
        (">1furlong", '"furlong" is not a unit. Use kB, MB, GB for bytes; k, M, B for elements.'),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(text, sentence):
    """A filter that is wrong says how it would be right."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.message == sentence


@given(st.text(max_size=40))
def test_any_text_is_understood_or_refused(text):
    """No text at all makes the filter fail in another way."""
    try:
        rows = kept(text)
    except UsageError as error:
        assert error.message.endswith((".", "?"))
    else:
        assert rows is None or set(rows) <= set(range(len(TENSORS)))


@given(st.sampled_from(["conv", "*.bias", "dtype:bf16", ">1kB", "is:tied", "finding:*", "shape:*x768"]))
def test_a_word_and_its_negation_are_everything(word):
    """What a word keeps out, its negation lets through."""
    assert sorted([*kept(word), *kept(f"!{word}")]) == list(range(len(TENSORS)))


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("finding:N401", True),
        ("fc !FINDING:*", True),
        ('"finding:N401"', False),
        ("finding", False),
        ("is:tied", False),
    ],
)
def test_whether_findings_are_asked_for(text, asks):
    """Only then does anybody have to examine the file."""
    assert parse(text).asks_findings is asks
