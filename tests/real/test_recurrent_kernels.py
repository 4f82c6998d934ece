"""LSTM, GRU and Bidirectional of Keras, brought to the same layers of torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.real.recurrent import UNITS, Recurrent, computed, numbers
from tests.real.test_published import fixed, refused

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU}
SQUARE = {nn.LSTM: 4 * UNITS, nn.GRU: 3 * UNITS}  # inputs with which a kernel is square


def saved(folder, state, target):
    """Both, beside each other."""
    torch.save(state, folder / "m.pt")
    torch.save(target.state_dict(), folder / "like.pt")


@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both directions"])
@pytest.mark.parametrize("square", [False, True], ids=["sizes of its own", "a square kernel"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_torch_computes_what_keras_does(tmp_path, kind, square, both):
    """Gates go where torch has them; the second bias of an LSTM is zero, that of a GRU is Keras's second row."""
    torch.manual_seed(0)
    size = SQUARE[kind] if square else UNITS
    state, target = numbers(kind, size, both), Recurrent(kind, size, both)
    saved(tmp_path, state, target)
    made = fixed(tmp_path, "m.pt", "--like", "like.pt")
    target.load_state_dict(made, strict=True)
    assert made["rnn.bias_hh_l0"].any() == (kind is nn.GRU)
    x = torch.rand(2, 5, size)
    with torch.no_grad():
        assert torch.allclose(target(x), computed(state, x), atol=1e-6)


@pytest.mark.parametrize("name", ["inner", "rnn.inner", ""])
def test_two_directions_have_the_name_of_either_layer(tmp_path, name):
    """Keras names both ``Bidirectional`` and what is inside; torch has one module, or a layer alone."""
    torch.manual_seed(0)
    state = numbers(nn.GRU, both=True)
    state = state if name else {key: value for key, value in state.items() if "fc" not in key}
    target = Recurrent(nn.GRU, both=True).state_dict()
    keys = {key: key.replace("rnn.", f"{name}." if name else "") for key in target if name or "rnn." in key}
    torch.save(state, tmp_path / "m.pt")
    torch.save({new: target[old] for old, new in keys.items()}, tmp_path / "like.pt")
    made = fixed(tmp_path, "m.pt", "--like", "like.pt")
    kernel = state["rnn/backward_inner/gru_cell/kernel"].T
    wanted = torch.cat([kernel[UNITS : 2 * UNITS], kernel[:UNITS], kernel[2 * UNITS :]])
    assert torch.equal(made[keys["rnn.weight_ih_l0_reverse"]], wanted)


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize(
    ("change", "why"), [("one bias", "reset_after=False, as its bias of one row shows"), ("no bias", "has no bias")]
)
def test_a_gru_that_torch_cannot_compute_is_refused_with_the_reason(tmp_path, change, why, unsafe):
    """Its reset gate comes before the product, or nothing tells where it comes; and no command is offered."""
    state, target = numbers(nn.GRU, reset_after=False), Recurrent(nn.GRU)
    if change == "no bias":
        state = {key: value for key, value in state.items() if key != "rnn/gru_cell/bias"}
        target.rnn = nn.GRU(UNITS, UNITS, bias=False) if unsafe else target.rnn
    saved(tmp_path, state, target)
    said = refused(tmp_path, "m.pt", "--like", "like.pt", *unsafe)
    assert why in said
    assert "no command can finish" in said


TRAPS = {
    "no recurrent kernel": lambda state: state.pop("rnn/gru_cell/recurrent_kernel"),
    "a weight for a kernel": lambda state: state.update({"rnn/gru_cell/weight": state.pop("rnn/gru_cell/kernel")}),
    "a kernel the other way round": lambda state: state.update(
        {"rnn/gru_cell/recurrent_kernel": torch.rand(3 * UNITS, UNITS)}
    ),
    "biases one after another": lambda state: state.update({"rnn/gru_cell/bias": torch.rand(6 * UNITS)}),
    "biases in columns": lambda state: state.update({"rnn/gru_cell/bias": torch.rand(3 * UNITS, 2)}),
    "two layers": lambda state: state.update(numbers(nn.GRU, inner="x") | {"rnn_1/gru_cell/bias": torch.rand(2, 12)}),
    "codes": lambda state: state.update({"rnn/gru_cell/kernel": torch.ones(4, 12, dtype=torch.int8)}),
}
TARGETS = {
    "gates of an LSTM": lambda: Recurrent(nn.LSTM),
    "two directions": lambda: Recurrent(nn.GRU, both=True),
    "another size": lambda: Recurrent(nn.GRU, 5),
}


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("change", [*TRAPS, *TARGETS])
def test_what_is_not_the_layer_that_its_name_says_is_refused(tmp_path, change, unsafe):
    """Parts that are not there or lie otherwise, and targets of other gates, directions or sizes."""
    state = numbers(nn.GRU)
    if change in TRAPS:
        TRAPS[change](state)
    saved(tmp_path, state, TARGETS[change]() if change in TARGETS else Recurrent(nn.GRU))
    refused(tmp_path, "m.pt", "--like", "like.pt", *unsafe)


@pytest.mark.parametrize("unsafe", [(), ("--unsafe-fixes",)], ids=["plain", "unsafe"])
@pytest.mark.parametrize("change", ["one direction alone", "a target of one direction", "both names", "other ways"])
def test_directions_that_names_do_not_tell_are_refused(tmp_path, change, unsafe):
    """A half of ``Bidirectional``, a target without the other half, or two modules that it could be."""
    torch.manual_seed(0)
    state, target = numbers(nn.LSTM, both=True), Recurrent(nn.LSTM, both=True)
    if change == "one direction alone":
        state = {key: value for key, value in state.items() if "backward" not in key}
    elif change == "a target of one direction":
        target = Recurrent(nn.LSTM)
        target.fc = nn.Linear(2 * UNITS, 3)
    elif change == "both names":
        target.inner = nn.LSTM(UNITS, UNITS, bidirectional=True)
    else:
        state = {key.replace("forward", "left").replace("backward", "right"): value for key, value in state.items()}
    saved(tmp_path, state, target)
    refused(tmp_path, "m.pt", "--like", "like.pt", *unsafe)


@pytest.mark.parametrize("flattened", [False, True])
def test_what_reads_a_flattened_image_is_refused(tmp_path, flattened):
    """Columns of an image as steps: Keras has their channels last, so that inputs come in another order."""
    state, target = numbers(nn.GRU, 12 if flattened else UNITS), Recurrent(nn.GRU, 12 if flattened else UNITS)
    target.conv = nn.Conv2d(3, UNITS, 3)
    saved(tmp_path, state | {"conv/kernel": torch.rand(3, 3, 3, UNITS), "conv/bias": torch.rand(UNITS)}, target)
    if flattened:
        refused(tmp_path, "m.pt", "--like", "like.pt")
    else:
        assert "conv.weight" in fixed(tmp_path, "m.pt", "--like", "like.pt")
