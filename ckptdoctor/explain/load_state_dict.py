"""What the keys and shapes in an error of ``load_state_dict`` mean: each cause takes what it explains off the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from shlex import quote

from ckptdoctor.explain import shapes
from ckptdoctor.explain.cause import Cause, Hit
from ckptdoctor.explain.formats import changes
from ckptdoctor.explain.load_error import LoadError, Mismatch, line_of, words_of
from ckptdoctor.explain.named_pairs import of_change, of_pairs
from ckptdoctor.explain.pairs import COUNTER, Pairs, bare, cut_pairs, name_pairs
from ckptdoctor.explain.text import Text
from ckptdoctor.noun import noun
from ckptdoctor.rules.messages import CHECK, Way, Weight
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.rules.signs import Repair, Sign
from ckptdoctor.wording import and_so_on, plural

_SHOWN = 3
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
_AVERAGES = frozenset(("ema", "ema_model", "model_ema", "online_model", "shadow", "averaged_model"))
_WRAPPED_CLASSES = ("DataParallel", "DistributedDataParallel", "OptimizedModule", "AveragedModel")
_STRIP = Way("repair it", "ckptdoctor fix FILE --strip-module")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
_HEADS = ("lm_head.weight", "lm_head.decoder.weight", "predictions.decoder.weight", "embed_out.weight")


@noun(frozen=False)
class _Rest:
    """What no cause has explained yet."""

    missing: list[str]
    unexpected: list[str]
    mismatched: list[Mismatch]
    error: LoadError

    def without(self, missing: Iterable[str] = (), unexpected: Iterable[str] = ()) -> None:
        gone, more = set(missing), set(unexpected)
        self.missing = [key for key in self.missing if key not in gone]
        self.unexpected = [key for key in self.unexpected if key not in more]


def causes(error: LoadError, text: Text) -> Iterator[Hit]:
    """One hit for each cause, the one that explains most of the error first."""
    rest = _Rest(list(error.missing), list(error.unexpected), list(error.mismatched), error)
    weight = Weight.OUTCOME if error.warning else Weight.CAUSE
    words = line_of(error, text) if error.warning else words_of(error)
    found = list(_causes(rest, error))
    also = {rule.code: rule.also for rule in all_rules()}
    for cause in found:
        ways = _ways(cause, found, error)
        yield Hit(cause.code, words, cause.meaning, ways, error.offset, also.get(cause.code, ()), weight)


def _ways(cause: Cause, all_causes: list[Cause], error: LoadError) -> tuple[Way, ...]:
    """What to do: the cause's own way where it is the only one, else one command for all of them, where there is one.

    The error is the target where it is a whole one; a warning, or a list that is cut short, tells too little of it.
    """
    target = "--error TEXT" if error.complete and not error.warning else "--model MODULE:CLASS"
    repairs = {each.repair for each in all_causes}
    if cause.ways and (len(all_causes) == 1 or Repair.NONE in repairs or Repair.BY_HAND in repairs):
        return tuple([replace(way, command=way.command.replace("TARGET", target)) for way in cause.ways])
    if Repair.BY_HAND in repairs or Repair.NONE in repairs:
        return (Way("see what is wrong", f"ckptdoctor check FILE {target}"),)
    unsafe = " --unsafe-fixes" * (Repair.LOSS in repairs)
    return (Way("repair it", f"ckptdoctor fix FILE --auto {target}{unsafe}"),)


def _causes(rest: _Rest, error: LoadError) -> Iterator[Cause]:
    finders: tuple[Callable[[_Rest], Iterator[Cause]], ...] = (
        *(_optimizer, _nested_parts, _nested, _adapter_only, _wrapped_file, _wrapped_model, _flat, _averaged),
        *(_forms, _cut, _prefix, *_of_signs(both=True), _names, _running_stats),
        *_of_signs(both=False),
        _tied,
    )
    for find in finders:
        yield from find(rest)
    yield from shapes.causes(rest.mismatched)
    if rest.missing:
        filled = ": the loader gives them random values, which is right only for layers yet to be trained"
        none = "; no command makes up weights: they have to come from another file, or from training"
        meaning = (
            f"the checkpoint lacks {_some_keys(rest.missing)} that the model expects{filled if error.warning else none}"
        )
        yield Cause("R001", meaning, Repair.NONE)
    if rest.unexpected and error.first_only and rest.unexpected[0].startswith("module."):
        meaning = (
            f"the checkpoint has {rest.unexpected[0]}, which the model does not know. torch before 0.4 names the first"
            " such key only: either all begin with “module.”, for the file was saved inside DataParallel, or the model"
            " is inside it, too, and has other names"
        )
        yield Cause("R002", meaning, Repair.NONE, (Way("see which", "ckptdoctor check FILE --model MODULE:CLASS"),))
    elif rest.unexpected:
        alone = not error.missing and not error.mismatched
        none = "" if alone else "; no command knows which of the model's they would be"
        meaning = f"the checkpoint has {_some_keys(rest.unexpected)} that the model does not know{none}"
        yield Cause("R002", meaning, Repair.LOSS if alone and error.unexpected else Repair.NONE, _leave_out(alone))


def _leave_out(alone: bool) -> tuple[Way, ...]:
    """Where nothing is missing, what is left over can go; else it may be what is missing, under another name."""
    see = Way("see what is wrong", "ckptdoctor check FILE TARGET")
    drop = Way("if the model needs none of it, leave it out", "ckptdoctor fix FILE --auto TARGET --unsafe-fixes")
    return (see, drop) if alone else (see,)


def _some_keys(keys: list[str]) -> str:
    """How many keys, and the first of them."""
    return f"{plural(len(keys), 'key')} ({and_so_on(keys, _SHOWN)})"


def _optimizer(rest: _Rest) -> Iterator[Cause]:
    if {"state", "param_groups"} <= set(rest.unexpected):
        rest.without(rest.missing, ("state", "param_groups"))
        meaning = (
            "the file holds the state of an optimizer, not the weights of a model, and no command makes weights of it:"
            " load the file of the model that was saved with it"
        )
        yield Cause("W303", meaning, Repair.NONE, (CHECK,))


def _nested_parts(rest: _Rest) -> Iterator[Cause]:
    """Each part of the model has a state dict of its own in the file."""
    top = {key for key in rest.unexpected if "." not in key}
    parts = {key.partition(".")[0] for key in rest.missing if "." in key} & top
    covered = [key for key in rest.missing if key.partition(".")[0] in parts]
    if not parts or 2 * len(covered) < len(rest.missing) or len(covered) < len(parts):
        return
    rest.without(covered, parts | (top & _BESIDE))
    names = and_so_on(sorted(parts), _SHOWN)
    meaning = (
        f"the file holds one state dict for each part of the model ({names}), and"
        " load_state_dict wants one for all of it"
    )
    chosen = "".join(f'"{part}", ' for part in sorted(parts))
    inner = f'{{f"{{part}}.{{key}}": value for part in ({chosen}) for key, value in weights[part].items()}}'
    flat = f"model.load_state_dict({inner})"
    yield Cause("W304", meaning, Repair.BY_HAND, (Way("load it with", flat),))


def _nested(rest: _Rest) -> Iterator[Cause]:
    """The training checkpoint was given to load_state_dict whole."""
    top = {key for key in rest.unexpected if "." not in key}
    container = next((name for name in _CONTAINERS if name in top), None)
    named = container is not None and container.endswith("state_dict")
    if container is None or not (rest.missing or top & _BESIDE or named):
        return
    rest.without(rest.missing, top)
    meaning = f"the file is a training checkpoint; the weights are one level down, in “{container}”"
    take = f"ckptdoctor fix FILE --root {container} --auto TARGET"
    yield Cause(
        "W301",
        meaning,
        Repair.BY_HAND,
        (Way("load it with", f'model.load_state_dict(weights["{container}"])'), Way("or take them out", take)),
    )


def _adapter_only(rest: _Rest) -> Iterator[Cause]:
    """The file is an adapter, and the target a model."""
    adapter = [key for key in rest.unexpected if ".lora_" in key or ".hada_" in key or ".lokr_" in key]
    if not adapter or len(adapter) < len(rest.unexpected) or any("lora_" in key for key in rest.missing):
        return
    rest.without(rest.missing, adapter)
    meaning = (
        "the file holds an adapter (LoRA), which adds to the weights of a model and is not one; no command makes a"
        " model of it alone"
    )
    load = "peft.PeftModel.from_pretrained(model, FOLDER)  # the folder with the adapter and its adapter_config.json"
    yield Cause("L906", meaning, Repair.NONE, (Way("load it onto the base model", load),))


def _wrapped_file(rest: _Rest) -> Iterator[Cause]:
    """Wrappers of training have left tokens in the file's keys."""
    known = set(rest.missing)
    for token, (code, wrapper) in _TOKENS.items():
        found = [key for key in rest.unexpected if token in key.split(".")]
        if found and not any(token in key.split(".") for key in rest.missing):
            sure = {bare(key) for key in found} <= known or not known
            rest.without({bare(key) for key in found} & known, found)
            meaning = f"the file was saved from a model inside {wrapper}, which put “{token}.” into its keys"
            yield Cause(code, meaning, Repair.SAFE if sure else Repair.NONE, (_STRIP,))
            return
    found = [key for key in rest.unexpected if key.startswith("module.")]
    if not found or 2 * len(found) < len(rest.unexpected):
        return
    if any(key.startswith("module.") for key in rest.missing) or not _bare_model(rest):
        return
    names = {bare(key) for key in found}
    averaged = "n_averaged" in rest.unexpected
    if known and not names & known and not averaged:
        return  # another name under module., not this model behind a wrapper
    rest.without(names, found)
    if averaged:
        rest.without((), ("n_averaged",))
        meaning = "the file was saved from an averaged model (AveragedModel), with its counter and its prefix"
        ways = (Way("repair it", "ckptdoctor fix FILE"),)
        yield Cause("N411", meaning, Repair.SAFE, ways)
        return
    meaning = (
        "the file was saved from a model inside DataParallel or DistributedDataParallel: its keys begin with “module.”"
    )
    yield Cause("N401", meaning, Repair.SAFE, (_STRIP,))


def _bare_model(rest: _Rest) -> bool:
    """Whether the model is not wrapped itself: a bare one would miss its keys, and the whole text would say so."""
    error = rest.error
    if error.model_class.rpartition(".")[2] in _WRAPPED_CLASSES:
        return False
    return bool(error.missing) or not (error.complete or error.first_only)


def _wrapped_model(rest: _Rest) -> Iterator[Cause]:
    known = set(rest.unexpected)
    for token, wrapper in (("module", "DataParallel or DistributedDataParallel"), ("_orig_mod", "torch.compile")):
        found = [key for key in rest.missing if key.startswith(f"{token}.")]
        names = {bare(key) for key in found}
        if found and (names & known or not known) and 2 * len(found) >= len(rest.missing):
            rest.without(found, names | _counters(known, names))
            yield Cause(
                "N402",
                f"the model is inside {wrapper}, the file was saved from the bare model",
                Repair.SAFE,
                (
                    Way("load it into the bare model", f"model.{token}.load_state_dict(weights)"),
                    Way("or repair the file", "ckptdoctor fix FILE --auto TARGET"),
                ),
            )
            return


def _counters(unexpected: Iterable[str], explained: Iterable[str]) -> set[str]:
    """Counters of norm layers beside statistics: of a file without versions torch does not call them missing."""
    stats = {key.rpartition(".")[0] for key in explained if key.endswith("running_mean")}
    return {key for key in unexpected if key.endswith(COUNTER) and key.rpartition(".")[0] in stats}


def _flat(rest: _Rest) -> Iterator[Cause]:
    found = [key for key in rest.unexpected if key.split(".")[-1].startswith(("_flat_param", "flat_param_"))]
    if found:
        rest.without(rest.missing, found)
        meaning = (
            "the file holds FSDP's flat parameters, each rank its own part; names and shapes cannot be told from them,"
            " and no command makes whole weights of this file alone"
        )
        save = Way("save again with", "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)")
        yield Cause("N406", meaning, Repair.NONE, (save,))


def _averaged(rest: _Rest) -> Iterator[Cause]:
    if "n_averaged" in rest.unexpected:
        rest.without((), ("n_averaged",))
        meaning = "the file was saved from an averaged model (AveragedModel), with its counter"
        yield Cause("N411", meaning, Repair.SAFE, (Way("repair it", "ckptdoctor fix FILE"),))


def _forms(rest: _Rest) -> Iterator[Cause]:
    """Weights that one side keeps in parts."""
    for change in list(changes(rest.missing, rest.unexpected)):
        rest.without(change.keys.missing, change.keys.unexpected)
        yield of_change(change)


def _cut(rest: _Rest) -> Iterator[Cause]:
    yield from _named(rest, cut_pairs(rest.missing, rest.unexpected) if rest.unexpected else None)


def _names(rest: _Rest) -> Iterator[Cause]:
    for pairs in list(name_pairs(rest.missing, rest.unexpected)):
        yield from _named(rest, pairs)


def _named(rest: _Rest, pairs: Pairs | None) -> Iterator[Cause]:
    if pairs is not None:
        rest.without(pairs.missing, pairs.unexpected)
        yield of_pairs(pairs)


def _prefix(rest: _Rest) -> Iterator[Cause]:
    """One prefix too many, or too few."""
    for longer, shorter, option in (
        (rest.unexpected, rest.missing, "--strip-prefix"),
        (rest.missing, rest.unexpected, "--add-prefix"),
    ):
        prefix = _best_prefix(longer, set(shorter))
        if prefix is None:
            continue
        strips = option == "--strip-prefix"
        moved = [key for key in longer if key.startswith(prefix)]
        names = {*moved, *[key[len(prefix) :] for key in moved]}
        names |= _counters(rest.unexpected, names)
        known = set(shorter)
        rest.without(names, names)
        side = "the file's keys begin" if strips else "the model's keys begin, and the file's do not,"
        code, holder = "N409", "the same network, held by an attribute of another (a LightningModule, a wrapper)"
        if strips and prefix.split(".")[-2] in _AVERAGES:
            code, holder = "N411", "averaged weights (EMA), saved under the name of the average"
        elif any(".lora_" in key for key in moved):
            code, holder = "L902", "the adapter's keys begin at another level than the model that takes them"
        fits = all(key[len(prefix) :] in known for key in moved if not key.endswith(COUNTER))
        way = Way("repair it", f"ckptdoctor fix FILE {option} {quote(prefix)}")
        whole = Way("repair it", "ckptdoctor fix FILE --auto TARGET")
        alone = fits and not rest.missing and not rest.unexpected
        meaning = f"{side} with “{prefix}”: {holder}"
        yield Cause(code, meaning, Repair.SAFE, (way,) if alone or rest.error.warning else (whole,))
        return


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


def _of_signs(both: bool) -> Iterator[Callable[[_Rest], Iterator[Cause]]]:
    """Keys by which rules are known, and which do not need to be paired; ``both``: of which each side has its own."""
    signs = [(rule.code, sign) for rule in all_rules() for sign in rule.signs if sign.both is both]
    for code, sign in sorted(signs, key=lambda each: each[1].general):
        yield partial(_of_sign, code, sign)


def _of_sign(code: str, sign: Sign, rest: _Rest) -> Iterator[Cause]:
    missing, unexpected = sign.among_missing(rest.missing), sign.among_unexpected(rest.unexpected)
    if sign.enough(missing, unexpected):
        rest.without(missing, unexpected)
        filled = missing and sign.without
        ways = (Way("load it with", _NOT_STRICT),) if filled else sign.ways
        yield Cause(code, sign.meaning, Repair.BY_HAND if filled else sign.repair, ways)


def _tied(rest: _Rest) -> Iterator[Cause]:
    """Of two names of one tensor the file has one: nothing else is missing."""
    if rest.unexpected or not rest.missing or rest.error.unexpected:
        return
    if all(key.endswith(_EMBEDDINGS) for key in rest.missing):
        (embedding, *_) = rest.missing
        rest.without(rest.missing)
        meaning = (
            "the file lacks the input embeddings, most likely because they are tied to lm_head and only that name was"
            " saved: the loader may fill them with random values without a word"
        )
        add = f'model.load_state_dict({{**weights, {embedding!r}: weights["lm_head.weight"]}})'
        yield Cause("A702", meaning, Repair.BY_HAND, (Way("if the two are tied, load it with", add),))
    elif all(key.endswith(_HEADS) for key in rest.missing) and not rest.error.warning:
        rest.without(rest.missing)
        meaning = (
            "the file lacks the head of the language model: either it is tied to the input embeddings and was saved"
            " under their name only, or the file is of the bare model, and the head has yet to be trained"
        )
        load = "model.load_state_dict(weights, strict=False)  # fills a tied head, and leaves any other untrained"
        yield Cause("R005", meaning, Repair.BY_HAND, (Way("if the two are tied, load it with", load),))


def _running_stats(rest: _Rest) -> Iterator[Cause]:
    """Statistics of norm layers that keep none: torch refuses those of InstanceNorm by name, others as unexpected."""
    modules = {key.rpartition(".")[0] for key in rest.error.running_stats}
    known = {key.rpartition(".")[0] for key in rest.missing}
    unexpected = set(rest.unexpected)
    for key in rest.unexpected:
        module, _, leaf = key.rpartition(".")
        if leaf == "running_mean" and f"{module}.running_var".lstrip(".") in unexpected and module not in known:
            modules.add(module)
    beside = {key.rpartition(".")[0] for key in rest.unexpected if not key.endswith(_STATISTICS)}
    modules -= beside  # a whole layer that the model has not
    found = [key for key in rest.unexpected if key.endswith(_STATISTICS) and key.rpartition(".")[0] in modules]
    if not found:
        return
    rest.without((), found)
    meaning = (
        f"the file holds running statistics of norm layers that keep none in the model ({_some_keys(found)}): before"
        " torch 0.4 InstanceNorm saved them without using them; since then only layers made with"
        " track_running_stats=True do"
    )
    drop = "ckptdoctor fix FILE --auto TARGET --unsafe-fixes"
    ways = (Way("leave them out", drop), Way("or build the layers with", "track_running_stats=True"))
    yield Cause("N418", meaning, Repair.LOSS, ways)


_NOT_STRICT = "model.load_state_dict(weights, strict=False)  # and look at what it returns"
_STATISTICS = ("running_mean", "running_var", COUNTER)
