"""The state dict is that of a wrapper which averages weights: AveragedModel, or an EMA class.

Meaning
    ``torch.optim.swa_utils.AveragedModel`` holds the averaged copy of the model in an attribute called ``module`` and
    counts its updates in a buffer called ``n_averaged``. Other EMA classes hold it in ``ema_model``, ``ema``,
    ``shadow`` …, and some also hold the trained weights in ``online_model``.

Why it matters
    The bare model knows neither the prefix nor the counter: ``load_state_dict`` fails, or with ``strict=False``
    silently loads nothing at all.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "n_averaged", "module.conv1.weight", "module.bn1.weight", …

Detection
    An ``n_averaged`` buffer of one int64, with ``module.`` before every other key: an AveragedModel (an error). Every
    key begins with ``ema_model.``, ``model_ema.``, ``ema.``, ``averaged_model.`` or ``shadow.``, or with one of these
    or ``online_model.``: an EMA class (a warning, since the class that wrote it can load it). With a reference that
    has an ``n_averaged`` of its own nothing is wrong.

Repair
    ``ckptdoctor fix FILE --select N411``. For an AveragedModel it drops ``n_averaged`` and strips ``module.``, in the
    keys and in ``_metadata``. Safe: every averaged value stays as it is, and ``n_averaged`` matters only for averaging
    further. For other classes it strips the prefix that all keys have, which is unsafe: the name is the only evidence.
    Where both averaged and trained weights are there, choose: ``--keep 'ema_model.*' --strip-prefix ema_model.``, or
    the same with ``online_model``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor, show_path
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.facts import names
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.names_in_errors import lead_cause, without_wrappers
from ckptdoctor.rules.kit.renames import how_many, rename_fix, weights, wrapped_lines
from ckptdoctor.rules.messages import SAFE, Way
from ckptdoctor.rules.naming.wrapped_keys import led_keys
from ckptdoctor.rules.signs import Sign
from ckptdoctor.rules.when import keys_mention

ALSO = ("N409", "N428")
SIGNS = (
    Sign(
        # mmcv 1.x runner/hooks/ema.py: register_buffer(f"ema_{name.replace('.', '_')}")
        "the file also holds averaged weights, as mmcv's EMAHook keeps them next to the others (ema_…, with "
        "underscores for dots), and the model has no such hook",
        Repair.BY_HAND,
        (Way("load the others with", "model.load_state_dict(weights, strict=False)  # and look at what it returns"),),
        unexpected=r"ema_\w+_(?:weight|bias|running_mean|running_var|num_batches_tracked)",
        general=6,
    ),
)
SICK = (
    Example(
        "an averaged model",
        Odict(
            {
                "n_averaged": T((), "int64", value=3),
                "module.fc.weight": T((2, 4)),
                "module.fc.bias": T((2,)),
            },
            {"": {"version": 1}, "module": {"version": 1}, "module.fc": {"version": 1}},
        ),
    ),
    Example(
        "averaged and trained weights",
        {
            "initted": T((), "bool", value=1),
            "step": T((), "int64", value=9),
            "online_model.fc.weight": T((2, 4)),
            "ema_model.fc.weight": T((2, 4)),
        },
    ),
    Example("one EMA prefix", {"ema.fc.weight": T((2, 4)), "ema.fc.bias": T((2,))}),
)
HEALTHY = (
    Example("DataParallel keeps no counter", {"module.fc.weight": T((2, 4)), "module.fc.bias": T((2,))}),
    Example("a model with a counter of its own", {"n_averaged": T((), "int64"), "fc.weight": T((2, 4))}),
    Example("a module called ema", {"ema.decay": T(()), "fc.weight": T((2, 4)), "fc.bias": T((2,))}),
)

# attributes that EMA classes hold averaged weights in (ema-pytorch, timm, LitEma and home-made ones)
AVERAGED = ("ema_model", "model_ema", "averaged_model", "ema", "shadow")
# the attribute in which ema-pytorch holds the weights that are being trained
ONLINE = "online_model"


@rule("N411", "swa-ema-prefix", Severity.ERROR, when=keys_mention("ema", "averaged", "shadow"))
def swa_ema_prefix(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report state dicts of AveragedModel and of EMA classes."""
    for state_dict in weights(subject, "N411"):
        counter = names.average_counter(state_dict)
        if counter is not None:
            yield _averaged_model(state_dict, counter)
        else:
            yield from _ema_class(state_dict)


def _averaged_model(state_dict: StateDict, counter: Tensor) -> Problem:
    old = [key for key in names.keys_of(state_dict) if key != counter.key]
    fix, advice = rename_fix(
        state_dict,
        names.without_module,
        f'drop {counter.key} and strip "module."',
        Safety.SAFE,
        "--select N411",
        dropped=[counter],
    )
    where = show_path(state_dict.path) if state_dict.path else "the checkpoint"
    return Problem(
        message=f'{where} is an AveragedModel: {counter.key}, and {wording.plural(len(old), "key")} in "module."',
        cause=(
            "Saved from torch.optim.swa_utils.AveragedModel, which holds the averaged model in an attribute called "
            "module. Loading it into the bare model fails, and with strict=False loads nothing."
        ),
        torch_says=wrapped_lines(old, [counter.key]),
        advice=advice,
        keys=tuple([tensor.path for tensor in state_dict.tensors]),
        location=Location(path=state_dict.path),
        fix=fix,
    )


def _ema_class(state_dict: StateDict) -> Iterator[Problem]:
    if not names.mentions(state_dict, AVERAGED):
        return
    prefixes = _prefixes(state_dict)
    averaged = [token for token in AVERAGED if token in prefixes]
    if len(averaged) != 1 or not prefixes <= {averaged[0], ONLINE}:
        return
    prefix = f"{averaged[0]}."
    led = [key for key in names.keys_of(state_dict) if key.startswith(prefix)]
    both = ONLINE in prefixes
    fix, advice = (None, _CHOICE) if both else _strip(state_dict, prefix)
    yield Problem(
        message=f'{how_many(len(led), state_dict)} {"begins" if len(led) == 1 else "begin"} with "{prefix}"'
        + (f', the others with "{ONLINE}."' if both else ""),
        cause=(
            "Saved from a wrapper that averages weights (an EMA class), which holds the averaged model in an attribute "
            f"called {averaged[0]}. The wrapper itself can load it; the bare model cannot."
        ),
        torch_says=(
            wording.missing_line([key[len(prefix) :] for key in led]),
            wording.unexpected_line(names.keys_of(state_dict)),
        ),
        advice=advice,
        keys=tuple([(*state_dict.path, key) for key in led]),
        location=Location(path=state_dict.path),
        fix=fix,
        severity=Severity.WARNING,
        commands=tuple(map(_keeping, (prefix, f"{ONLINE}."))) if both else (),
    )


def _prefixes(state_dict: StateDict) -> set[str]:
    """Return the first tokens of the keys; counters (keys of one token, one element) do not matter."""
    dotted = {key.partition(".")[0] for key in names.keys_of(state_dict) if "." in key}
    counters = {tensor.key for tensor in state_dict.tensors if "." not in tensor.key and tensor.numel == 1}
    return dotted | {tensor.key for tensor in state_dict.tensors if "." not in tensor.key} - counters


def _strip(state_dict: StateDict, prefix: str) -> tuple[Fix | None, str]:
    return rename_fix(
        state_dict,
        lambda key: key[len(prefix) :] if key.startswith(prefix) else key,
        f'strip "{prefix}"',
        Safety.UNSAFE,
        "--select N411",
    )


_CHOICE = "Both averaged and trained weights are here. Choose:"


def _keeping(prefix: str) -> str:
    return f"ckptdoctor fix FILE --keep '{prefix}*' --strip-prefix {prefix}"


@judges(Turn.WRAPPER, general=1)
def of_its_counter(rest: IncompatibleKeys) -> Iterator[Cause]:
    """AveragedModel counts its updates; it holds the model in ``module``."""
    if names.N_AVERAGED not in rest.unexpected:
        return
    led = led_keys(rest)
    also = " and its prefix" if led else ""
    yield Cause(
        f"the file was saved from an averaged model (AveragedModel), with its counter{also}",
        Repair.SAFE,
        (SAFE,),
        missing={without_wrappers(key) for key in led},
        unexpected=[*led, names.N_AVERAGED],
    )


@judges(Turn.PREFIX, general=1)
def of_a_prefix(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Half of the keys begin with the name of an average."""
    yield from lead_cause(rest, "N411", "averaged weights (EMA), saved under the name of the average")
