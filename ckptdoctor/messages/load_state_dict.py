"""What the keys and shapes in an error of ``load_state_dict`` mean: each cause takes what it explains off the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ckptdoctor.messages import shapes
from ckptdoctor.messages.leaves import LEAVES, Leaves
from ckptdoctor.messages.load_error import LoadError, Mismatch
from ckptdoctor.messages.message import CHECK, COMPARE, SAFE, Hit, Way, Weight
from ckptdoctor.messages.text import Text

_SHOWN = 3
_QUOTED = 130  # characters of a warning
_DEPTH = 6  # tokens of a prefix that are tried
_TOKENS = {
    "_orig_mod": ("N404", "torch.compile"),
    "_fsdp_wrapped_module": ("N405", "FSDP"),
    "_fpw_module": ("N405", "FSDP"),
    "_checkpoint_wrapped_module": ("N407", "activation checkpointing"),
}
_CONTAINERS = (
    *("state_dict", "model_state_dict", "model", "net", "network", "params_ema", "params", "module", "weights"),
    *("model_state", "generator", "ema", "g_ema"),
)
_BESIDE = frozenset(("epoch", "global_step", "optimizer", "optimizer_states", "optimizer_state_dict", "lr_schedulers"))
_STRIP = Way("repair it", "ckptdoctor fix FILE --strip-module")


@dataclass
class _Rest:
    """What no cause has explained yet."""

    missing: list[str]
    unexpected: list[str]
    mismatched: list[Mismatch]

    def without(self, missing: Iterable[str] = (), unexpected: Iterable[str] = ()) -> None:
        gone, more = set(missing), set(unexpected)
        self.missing = [key for key in self.missing if key not in gone]
        self.unexpected = [key for key in self.unexpected if key not in more]


_Cause = tuple[str, str, tuple[Way, ...]]


def causes(error: LoadError, text: Text) -> Iterator[Hit]:
    """One hit for each cause, the one that explains most of the error first."""
    rest = _Rest(list(error.missing), list(error.unexpected), list(error.mismatched))
    weight = Weight.OUTCOME if error.warning else Weight.CAUSE
    words = _line(error, text) if error.warning else _words(error)
    for code, meaning, ways in _causes(rest, error):
        yield Hit(code, words, meaning, ways, error.offset, _also(code), weight)


def _causes(rest: _Rest, error: LoadError) -> Iterator[_Cause]:
    finders: tuple[Callable[[_Rest], _Cause | None], ...] = (
        *(_optimizer, _nested, _wrapped_file, _wrapped_model, _flat, _averaged, _prefix),
        *[_of_leaves(leaves) for leaves in LEAVES],
    )
    if error.running_stats:
        yield _running_stats(rest, error)
    for find in finders:
        cause = find(rest)
        if cause is not None:
            yield cause
    yield from shapes.causes(rest.mismatched)
    if rest.missing:
        filled = ": the loader gives them random values, which is right only for layers yet to be trained"
        meaning = f"the checkpoint lacks {_keys(rest.missing)} that the model expects{filled * error.warning}"
        yield "R001", meaning, (COMPARE,)
    if rest.unexpected:
        yield "R002", f"the checkpoint has {_keys(rest.unexpected)} that the model does not know", (COMPARE,)


def _optimizer(rest: _Rest) -> _Cause | None:
    if not {"state", "param_groups"} <= set(rest.unexpected):
        return None
    rest.without(rest.missing, ("state", "param_groups"))
    return "W303", "the file holds the state of an optimizer, not the weights of a model", (CHECK,)


def _nested(rest: _Rest) -> _Cause | None:
    """The training checkpoint was given to load_state_dict whole."""
    top = {key for key in rest.unexpected if "." not in key}
    container = next((name for name in _CONTAINERS if name in top), None)
    if container is None and not (top & _BESIDE and len(top) >= 2 and rest.missing):
        return None
    if container is None or not (rest.missing or top & _BESIDE):
        return None
    rest.without(rest.missing, top)
    meaning = f"the file is a training checkpoint; the weights are one level down, in “{container}”"
    return (
        "W301",
        meaning,
        (
            Way("load it with", f'model.load_state_dict(checkpoint["{container}"])'),
            Way("or take them out", f"ckptdoctor fix FILE --root {container}"),
        ),
    )


def _wrapped_file(rest: _Rest) -> _Cause | None:
    """Wrappers of training have left tokens in the file's keys."""
    known = set(rest.missing)
    for token, (code, wrapper) in _TOKENS.items():
        found = [key for key in rest.unexpected if token in key.split(".")]
        if found:
            rest.without({_bare(key) for key in found} & known, found)
            return (
                code,
                f"the file was saved from a model inside {wrapper}, which put “{token}.” into its keys",
                (_STRIP,),
            )
    found = [key for key in rest.unexpected if key.startswith("module.")]
    if not found or 2 * len(found) < len(rest.unexpected):
        return None
    if any(key.startswith("module.") for key in rest.missing):
        return None
    bare = {_bare(key) for key in found}
    if known and not bare & known and "n_averaged" not in rest.unexpected:
        return None  # another name under module., not this model behind a wrapper
    rest.without(bare, found)
    if "n_averaged" in rest.unexpected:
        rest.without((), ("n_averaged",))
        return (
            "N411",
            "the file was saved from an averaged model (AveragedModel), with its counter and its prefix",
            (SAFE,),
        )
    meaning = (
        "the file was saved from a model inside DataParallel or DistributedDataParallel: its keys begin with “module.”"
    )
    return "N401", meaning, (_STRIP,)


def _wrapped_model(rest: _Rest) -> _Cause | None:
    known = set(rest.unexpected)
    for token, wrapper in (("module", "DataParallel or DistributedDataParallel"), ("_orig_mod", "torch.compile")):
        found = [key for key in rest.missing if key.startswith(f"{token}.")]
        bare = {_bare(key) for key in found}
        if found and (bare & known or not known) and 2 * len(found) >= len(rest.missing):
            rest.without(found, bare)
            return (
                "N402",
                f"the model is inside {wrapper}, the file was saved from the bare model",
                (
                    Way("load it into the bare model", f"model.{token}.load_state_dict(weights)"),
                    Way("or repair the file", f"ckptdoctor fix FILE --add-prefix {token}."),
                ),
            )
    return None


def _flat(rest: _Rest) -> _Cause | None:
    found = [key for key in rest.unexpected if key.split(".")[-1].startswith(("_flat_param", "flat_param_"))]
    if not found:
        return None
    rest.without(rest.missing, found)
    meaning = "the file holds FSDP's flat parameters, each rank its own part; names and shapes cannot be told from them"
    return "N406", meaning, (Way("save again with", "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)"),)


def _averaged(rest: _Rest) -> _Cause | None:
    if "n_averaged" not in rest.unexpected:
        return None
    rest.without((), ("n_averaged",))
    return "N411", "the file was saved from an averaged model (AveragedModel), with its counter", (SAFE,)


def _prefix(rest: _Rest) -> _Cause | None:
    """One prefix too many, or too few."""
    for longer, shorter, option in (
        (rest.unexpected, rest.missing, "--strip-prefix"),
        (rest.missing, rest.unexpected, "--add-prefix"),
    ):
        prefix = _best_prefix(longer, set(shorter))
        if prefix is None:
            continue
        moved = [key for key in longer if key.startswith(prefix)]
        rest.without((*moved, *[key[len(prefix) :] for key in moved]), (*moved, *[key[len(prefix) :] for key in moved]))
        side = (
            "the file's keys begin" if option == "--strip-prefix" else "the model's keys begin, and the file's do not,"
        )
        meaning = (
            f"{side} with “{prefix}”: the same network, held by an attribute of another (a LightningModule, a wrapper)"
        )
        return "N409", meaning, (Way("repair it", f"ckptdoctor fix FILE {option} {_quoted(prefix)}"),)
    return None


def _best_prefix(longer: list[str], shorter: set[str]) -> str | None:
    """The prefix without which most of the keys are among the others; None unless it is so for half of either side."""
    tally: Counter[str] = Counter()
    for key in longer:
        tokens = key.split(".", _DEPTH)
        for depth in range(1, len(tokens)):
            rest = ".".join(tokens[depth:])
            if rest in shorter:
                tally[key[: len(key) - len(rest)]] += 1
    if not tally:
        return None
    prefix, found = tally.most_common(1)[0]
    return prefix if 2 * found >= min(len(longer), len(shorter)) else None


def _of_leaves(leaves: Leaves) -> Callable[[_Rest], _Cause | None]:
    def find(rest: _Rest) -> _Cause | None:
        missing = [key for key in rest.missing if leaves.is_missing(key)]
        unexpected = [key for key in rest.unexpected if leaves.is_unexpected(key)]
        if not leaves.enough(missing, unexpected):
            return None
        rest.without(missing, unexpected)
        return leaves.code, leaves.meaning, leaves.ways

    return find


def _running_stats(rest: _Rest, error: LoadError) -> _Cause:
    rest.without((), error.running_stats)
    meaning = "the file, from before torch 0.4, holds running statistics of InstanceNorm layers that no longer keep any"
    drops = " ".join(f"--drop '*.{leaf}'" for leaf in ("running_mean", "running_var"))
    return (
        "N418",
        meaning,
        (
            Way("if the model has no BatchNorm either", f"ckptdoctor fix FILE {drops}"),
            Way("or build its layers with", "track_running_stats=True"),
        ),
    )


def _bare(key: str) -> str:
    return ".".join([token for token in key.split(".") if token not in _TOKENS and token != "module"])


def _also(code: str) -> tuple[str, ...]:
    return {"W301": ("W302",), "N401": ("N404", "N405", "N411"), "N409": ("N408", "N410")}.get(code, ())


def _keys(keys: list[str]) -> str:
    shown = ", ".join(keys[:_SHOWN])
    return f"{len(keys):,} key{'s' * (len(keys) != 1)} ({shown}{', …' * (len(keys) > _SHOWN)})"


def _quoted(prefix: str) -> str:
    """A prefix as one word of the shell: it comes from the text."""
    from shlex import quote

    return quote(prefix)


def _line(error: LoadError, text: Text) -> str:
    """The line of a warning, abridged."""
    line = " ".join(text.lines[text.line_at(error.offset)].split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]} …"


def _words(error: LoadError) -> str:
    """The error in one line, in torch's words, abridged."""
    parts = [
        f"{name} key(s) in state_dict: {', '.join(keys[:_SHOWN])}{', …' * (len(keys) > _SHOWN)}"
        for name, keys in (("Missing", error.missing), ("Unexpected", error.unexpected))
        if keys
    ]
    parts += [f"size mismatch for {each.key}" for each in error.mismatched[:1] if not parts]
    model = f"Error(s) in loading state_dict for {error.model_class}: " if error.model_class else ""
    return model + "; ".join(parts)
