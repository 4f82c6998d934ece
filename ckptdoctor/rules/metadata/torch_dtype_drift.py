"""``config.json`` has a different dtype from the tensors.

Meaning
    Its ``dtype`` (``torch_dtype`` before transformers 5) is that of an earlier save or conversion, and no tensor has
    it.

Why it matters
    ``from_pretrained`` casts the weights to the config's dtype when it is asked for ``dtype="auto"``, as it is by
    default since transformers 5: the model silently takes twice the memory, or loses precision.

Symptoms
    Nothing, or a model of twice the size.

Detection
    The field is compared with the dtypes of the floating-point tensors.

Repair
    None: the finding gives the line of ``config.json`` to change, if the weights are right. Info only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.siblings import config_beside
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.metadata.config_against_tensors import dtype_drift
from ckptdoctor.rules.metadata.config_weights_disagree import change
from ckptdoctor.rules.when import file_beside

_MODEL = {"w": T((3,), "bfloat16"), "n": T((1,), "int64")}
SICK = (
    Example(
        "bfloat16 under a config of float32", _MODEL, "safetensors", metadata={"format": "pt"},
        name="model.safetensors", beside={"config.json": b'{\n  "torch_dtype": "float32"\n}\n'},
    ),
)  # fmt: skip
HEALTHY = (
    Example(
        "bfloat16 under its config", _MODEL, "safetensors", metadata={"format": "pt"},
        name="model.safetensors", beside={"config.json": b'{\n  "torch_dtype": "bfloat16"\n}\n'},
    ),
)  # fmt: skip


@rule("M975", "torch-dtype-drift", Severity.INFO, when=file_beside("config.json"))
def torch_dtype_drift(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a dtype that no tensor has."""
    config = config_beside(checkpoint)
    drift = dtype_drift(checkpoint, config) if config is not None else None
    if config is not None and drift is not None:
        yield Problem(
            message=f"config.json has {drift.name} {drift.said}, but the tensors are {drift.found}",
            cause="transformers may cast the weights to the dtype of config.json when it loads them.",
            advice=f"If the weights are right, {change(config, drift)}.",
        )
