"""Works out how strongly an adapter acts on each module: ``lora_alpha`` over the rank, by its config or a person.

Source: peft 0.21, ``tuners/lora/model.py`` (``_create_and_replace``), ``tuners/lora/layer.py`` (``update_layer``),
``tuners/lora/config.py`` and ``utils/other.py`` (``get_pattern_key``). Patterns in a config are regular expressions of
whoever wrote it: none is run, only plain names are matched, and what is not a plain name is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite, sqrt

from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import field, noun

LORA, IA3 = "LORA", "IA3"

# what a config may say without another sum coming of it; of each other field only what stands for "not used"
_HARMLESS = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "revision", "peft_type", "task_type", "inference_mode"),
        *("peft_version", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out"),
        *("use_rslora", "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern"),
        *("alpha_pattern", "megatron_core", "qalora_group_size", "runtime_config", "ephemeral_gpu_offload"),
        *("modules_to_save", "bias", "lora_bias", "feedforward_modules", "init_ia3_weights", "eva_config"),
        *("loftq_config", "corda_config", "lora_ga_config"),
    }
)
# the ways to begin that leave the base as it is (``LoraLayer.reset_lora_parameters``): others change it, and what was
# trained is relative to the changed one
_BEGINNINGS = (True, False, "gaussian", "eva", None)
_PLAIN = re.compile(r"\^?(?:[\w\-]|\.|\\\.)+\$?")
_DEPTH = 32  # tokens of a name that are looked at


@noun
class Strength:
    """What is known of an adapter besides its tensors. ``source`` says where it is, ``base`` what it is for.

    ``rank`` None: nobody says it, and the tensors show it. ``turned``: weights are kept transposed (fan_in_fan_out).
    """

    source: str
    method: str = LORA
    alpha: float | None = None
    rank: int | None = None
    ranks: Mapping[str, object] = field(default_factory=dict)
    alphas: Mapping[str, object] = field(default_factory=dict)
    by_root: bool = False
    turned: bool = False
    base: str = ""
    inputs: tuple[str, ...] | None = None  # IA3's feedforward_modules, whose inputs are scaled; None: nobody says

    def scale(self, module: str, rank: int) -> float:
        """Return what the product of the factors of a module is multiplied by. Raises RefusedError for another rank."""
        wanted = _of(module, self.ranks, self.rank, self.source)
        if wanted is not None and wanted != rank:
            raise RefusedError(
                f"The factors of {module} have the rank {rank}, and {self.source} gives it {wanted}: it "
                "describes another adapter, or rank_pattern is missing. Correct it, or specify the numerator "
                "yourself: add ,alpha=N."
            )
        alpha = _of(module, self.alphas, self.alpha, self.source)
        if type(alpha) not in (int, float) or not isfinite(float(alpha)):  # type: ignore[arg-type]  # a number
            raise RefusedError(f"{self.source} does not give {module} a numeric lora_alpha.")
        return float(alpha) / (sqrt(rank) if self.by_root else rank)  # type: ignore[arg-type]  # a number


def strength_of(fields: Mapping[str, object], source: str) -> Strength:
    """Return what an ``adapter_config.json`` with these fields says. Raises RefusedError unless it is a plain sum."""
    method = fields.get("peft_type")
    if method not in (LORA, IA3):
        raise RefusedError(f"{source} describes a {method!r} adapter: ckptdoctor merges only LoRA and IA3.")
    _require_plain(fields, source)
    rank, base = fields.get("r"), fields.get("base_model_name_or_path")
    alpha, patterns = fields.get("lora_alpha"), [fields.get(name) or {} for name in ("rank_pattern", "alpha_pattern")]
    if method == LORA and (type(rank) is not int or type(alpha) not in (int, float)):
        raise RefusedError(f"{source} does not give r and lora_alpha. Specify the numerator yourself: add ,alpha=N.")
    if not all(isinstance(each, dict) for each in patterns):
        raise RefusedError(f"{source} has a rank_pattern or alpha_pattern that is not a table.")
    return Strength(
        source=source,
        method=str(method),
        alpha=None if method == IA3 else float(alpha),  # type: ignore[arg-type]  # a number
        rank=rank if type(rank) is int else None,
        ranks=patterns[0],  # type: ignore[arg-type]  # a dict
        alphas=patterns[1],  # type: ignore[arg-type]  # a dict
        by_root=fields.get("use_rslora") is True,
        turned=fields.get("fan_in_fan_out") is True,
        base=base if isinstance(base, str) else "",
        inputs=_names(fields.get("feedforward_modules")),
    )


def _names(said: object) -> tuple[str, ...] | None:
    """Return names of modules, which peft compares with the ends of names; a string is a regular expression."""
    plain = isinstance(said, list) and all(isinstance(each, str) for each in said)
    return tuple(said) if plain and isinstance(said, list) else None


def _require_plain(fields: Mapping[str, object], source: str) -> None:
    for name, value in fields.items():
        used = value not in (None, False, "", 0) and value != [] and value != {}
        if used and name not in _HARMLESS:
            what = "DoRA" if name == "use_dora" else name
            raise RefusedError(
                f"{source} has {name}: {what} is not a plain sum, so ckptdoctor does not merge it. {_PEFT}"
            )
    beginning = fields.get("init_lora_weights", True)
    if not any(beginning is each or (isinstance(each, str) and beginning == each) for each in _BEGINNINGS):
        raise RefusedError(
            f"{source} has init_lora_weights: {beginning!r}, which changes the base before training: these "
            f"factors are not for the published base. {_PEFT}"
        )


_PEFT = "Merge it with peft: PeftModel.from_pretrained, and merge_and_unload() on the result."


def _of(module: str, patterns: Mapping[str, object], usual: object, source: str) -> object:
    """Return ``get_pattern_key``: what the first pattern says that is the module's name, or its last tokens."""
    for pattern, value in patterns.items():
        if not isinstance(pattern, str) or not _PLAIN.fullmatch(pattern):
            raise RefusedError(
                f"{source} has the pattern {pattern!r}, a regular expression, which is not run: list the "
                "modules by name, or merge with peft."
            )
        name = pattern.removesuffix("$").replace("\\.", ".")
        if module == name.removeprefix("^") or (not name.startswith("^") and name in _endings(module)):
            return value
    return usual


def _endings(module: str) -> Iterator[str]:
    """Return the name of a module, and what is left of it without its first tokens."""
    tokens = module.split(".")[-_DEPTH:]
    return (".".join(tokens[index:]) for index in range(len(tokens)))
