"""Programs write LoRA and its kin down in layouts of their own, which keys alone tell apart.

Sources: kohya-ss/sd-scripts ``networks/lora.py``, KohakuBlueleaf/LyCORIS, peft, and diffusers
``loaders/lora_conversion_utils.py`` and ``utils/state_dict_utils.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.noun import noun


@noun
class LoraLayout:
    """One way to write adapters down: what it is called, what its keys look like, who reads it, what converts it."""

    name: str
    pattern: re.Pattern[str]
    readers: str
    converter: str


_KOHYA = r"(?:lora|lycoris)_[a-z0-9]+_[^.]+\."
_LYCORIS = r"(?:hada_(?:w[12]_[ab]|t[12])|lokr_(?:w[12](?:_[ab])?|t2)|oft_blocks|oft_diag|on_input|diff(?:_b)?|w_norm)"

PEFT = "peft"
_LONGEST = 1024  # characters of a key that is looked at: real ones have some 150
LAYOUTS = (
    LoraLayout(
        "kohya's sd-scripts",
        re.compile(_KOHYA + r"(?:lora_(?:down|up|mid)\.weight|alpha|dora_scale)"),
        "ComfyUI, the web UIs and diffusers' load_lora_weights()",
        "kohya's networks/convert_*.py, or diffusers: load_lora_weights(FILE), then save_lora_weights()",
    ),
    LoraLayout(
        "LyCORIS",
        re.compile(_KOHYA + _LYCORIS),
        "ComfyUI and the web UIs",
        "LyCORIS' tools (LoHa and LoKr are not LoRA: a program that cannot read them needs them merged into the model)",
    ),
    LoraLayout(
        "diffusers' attention processors",
        re.compile(r".+\.processor\.to_(?:q|k|v|out)_lora\.(?:down|up)\.weight"),
        "diffusers' load_lora_weights() and load_attn_procs()",
        "diffusers: load_lora_weights() of its folder, then save_lora_weights() of a new one",
    ),
    LoraLayout(
        "diffusers before peft",
        re.compile(r".+\.(?:lora|lora_linear_layer)\.(?:down|up)\.weight"),
        "diffusers' load_lora_weights()",
        "diffusers: load_lora_weights() of its folder, then save_lora_weights() of a new one",
    ),
    LoraLayout(
        "down and up under the names of the modules",
        re.compile(r".+\.lora_(?:down|up)\.weight"),
        "ComfyUI",
        "diffusers: load_lora_weights(FILE), then save_lora_weights() of a new folder",
    ),
    LoraLayout(
        PEFT,
        re.compile(r".+\.lora_(?:embedding_)?[AB](?:\.[^.]+)?(?:\.weight)?"),
        "peft, and libraries that use it",
        "diffusers: load_lora_weights() of its folder, then save_lora_weights() of a new one",
    ),
)


def lora_layout(keys: Iterable[str]) -> LoraLayout | None:
    """Return the layout that most of the keys are written in, where it is more than half of them."""
    counts: Counter[str] = Counter()
    total = 0
    for key in keys:
        total += 1
        if len(key) <= _LONGEST and ("lora" in key or "lycoris" in key):
            found = next((each for each in LAYOUTS if each.pattern.fullmatch(key)), None)
            if found is not None:
                counts[found.name] += 1
    if not counts:
        return None
    name, number = counts.most_common(1)[0]
    kohya = sum([counts[each.name] for each in LAYOUTS[:2]])  # LyCORIS writes its alphas as kohya does
    if 2 * max(number, kohya if name != PEFT else 0) <= total:
        return None
    name = LAYOUTS[1].name if counts[LAYOUTS[1].name] else name
    return next(each for each in LAYOUTS if each.name == name)


_MATRIX = re.compile(r"(?:.*\.)?lora_(?:A|B|embedding_A|embedding_B|down|up)(?:\..*)?")
_DOWN = ("lora_A", "lora_down", "lora_embedding_A")


def is_of_adapter(key: str) -> bool:
    """Return whether a key is that of a matrix of LoRA."""
    return _MATRIX.fullmatch(key) is not None


def only_rank_differs(pair: Pair) -> bool:
    """Return whether a matrix of LoRA differs in its rank alone: A (down) has it as rows, B (up) as columns."""
    here, there = pair.here, pair.there
    rank, rest = (0, 1) if any(name in pair.key for name in _DOWN) else (1, 0)
    both = len(here) > 1 and len(there) > 1
    return both and here[rank] != there[rank] and here[rest] == there[rest]
