"""A weight tensor is all zeros.

Meaning
    No training leaves a weight of two or more dimensions exactly zero. It was never filled: saved under
    ``torch.serialization.skip_data``, allocated and not written, or a part of the file that was never downloaded.

Why it matters
    The layer outputs zeros, or its bias, for any input.

Symptoms
    Nothing: the file has its right size, and it loads.

Detection
    ``check --deep`` reads every value. Biases, and weights whose names show that they begin as zeros (LoRA's ``B``,
    zero convolutions of a ControlNet, gates, adaptive norms), are left out.

Repair
    None: the values are not in the file. Download or save it again, or take the tensors from another copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.facts import names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Values, weights_read

SICK = (
    Example("a layer of zeros", {"a.weight": T((4, 3), value=0.5), "b.weight": T((4, 3), value=0.0)}, deep=True),
    Example("only zeros", {"a.weight": T((4, 3), value=0.0), "b.weight": T((4, 3), value=0.0)}, deep=True),
)
HEALTHY = (
    Example("a bias of zeros", {"a.weight": T((4, 3), value=0.5), "a.bias": T((4,), value=0.0)}, deep=True),
    Example("a fresh LoRA", {"a.lora_A.weight": T((4, 3), value=0.5), "a.lora_B.weight": T((4, 3))}, deep=True),
)


@rule("V653", "all-zero-tensor", Severity.WARNING)
def all_zero_tensor(values: Values) -> Iterator[Problem]:
    """Report weights without any value."""
    matrices = [each for each in weights_read(values) if each.is_matrix]
    zero = [each for each in matrices if each.values.zeros == each.values.count and not zero_at_first(each.tensor)]
    if not zero:
        return
    first = zero[0].tensor
    every = len(zero) == len(matrices) > 1
    yield Problem(
        message=(
            f"{wording.all_of(len(zero), 'weight tensor') if every else wording.plural(len(zero), 'weight tensor')} "
            f"{'is' if len(zero) == 1 else 'are'} all zeros"
            f"{wording.the_first(show_path(first.path), len(zero))}"
        ),
        cause=(
            "The file was saved without its values, as torch.serialization.skip_data does, or never filled."
            if every
            else "Training does not leave a weight exactly zero: it was never filled, or never downloaded."
        ),
        advice="Download or save it again, or use another copy for these tensors.",
        keys=tuple([each.tensor.path for each in zero]),
        location=Location(path=first.path),
    )


# parts of names of layers that begin with zeros, and of tensors that do: LoRA's B, ControlNet's zero convolutions,
# adaptive norms of diffusion transformers, ReZero and LayerScale, the last layer of a residual branch
ZERO_AT_FIRST = (
    *("lora_b", "lora_up", "zero_conv", "zero_module", "controlnet_", "input_hint_block", "cond_embedding.conv_out"),
    *("adaln", "modulation", "adapter", "gate", "gamma", "beta", "scale", "alpha", "rezero", "final_layer", "proj_out"),
    *("zero_init", "relative_position", "rel_pos", "pos_embed", "token", "mask", "out_layers.3", "hada_w2", "lokr_w2"),
)


def zero_at_first(tensor: Tensor) -> bool:
    """Return whether its name is that of a layer that begins with zeros."""
    key = names.bare(tensor.key).lower()
    return any(word in key for word in ZERO_AT_FIRST)
