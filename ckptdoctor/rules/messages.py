"""Programs print messages when a rule's problem keeps a checkpoint from loading, and each rule names its own.

``explain`` looks for them in texts. ``MESSAGES`` in the module of a rule holds them; what follows the classes here is
shared by several rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from ckptdoctor.noun import noun


class Weight(IntEnum):
    """How much a message tells of the cause; the lower, the more."""

    CAUSE = 0
    """It names the cause."""

    OUTCOME = 1
    """It reports the result of another failure, or only warns; alone it is explained all the same."""

    ECHO = 2
    """It says so little that next to any other message it is not mentioned."""


@noun
class Way:
    """One thing to do: a label ("load it with") and code or a command. FILE stands for the file's name."""

    label: str
    command: str


@noun
class Message:
    """A message: the words that it always has, and a pattern for those that follow at once.

    Blanks in ``says`` and ``then`` stand for nothing: they are compared with text that has none. ``says`` are other
    wordings of one message. ``meaning`` and ``ways`` may name the groups of ``then`` in braces. ``near`` are words of
    which one has to be close by, always; ``among``: wherever there is a traceback to look in. ``also`` are other
    rules that the same words may mean. Of several messages at one place the least ``general`` is meant.
    ``code`` is that of the rule whose module names the message, "" where no rule is about it.
    """

    says: tuple[str, ...]
    meaning: str
    ways: tuple[Way, ...] = ()
    then: str = ""
    also: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    weight: Weight = Weight.CAUSE
    holds: Callable[[dict[str, str]], bool] | None = None  # what the groups of ``then`` have to be, beyond the pattern
    general: int = 0
    code: str = ""


CHECK = Way("see what is wrong", "ckptdoctor check FILE")
DEEP = Way("see what is damaged", "ckptdoctor check FILE --deep")
SAFE = Way("repair it", "ckptdoctor fix FILE")
SHOW = Way("see what it holds", "ckptdoctor show FILE")
STRIP = Way("repair it", "ckptdoctor fix FILE --strip-module")
# where keys or shapes do not fit, only the target tells which repair is meant; TARGET stands for the way to name it
SEE = Way("see what is wrong", "ckptdoctor check FILE TARGET")
COMPARE = Way("see what is wrong", "ckptdoctor check FILE --model MODULE:CLASS")
AUTO = Way("or repair it for your model", "ckptdoctor fix FILE --auto --model MODULE:CLASS")

AGAIN = Way("then", "copy or download it again, and compare its size with the source's")
BASE_MODEL = Way("see which base model and which layers the adapter is for", "ckptdoctor check FILE")
CONFIG_BESIDE = Way("compare it with the configuration next to it", "ckptdoctor check FILE")
START_OVER = Way("or start again", "load only the model's weights, and start with a new optimizer")
ON_CPU = Way("load it with", 'torch.load(path, map_location="cpu")')
TO_CPU = Way("or repair it", "ckptdoctor fix FILE --to-cpu")

# torch/_weights_only_unpickler.py
NOT_ALLOWED = r"(?P<global>[\w.<>]{1,300}?)wasnotanallowedglobal"

# parameters whose shapes agree and which torch could not copy: torch.nn.modules.module.Module._load_from_state_dict
# says why behind "an exception" (torch 1.12 to 2.13; before it named the dimensions only)
COPYING = ("While copying the parameter named", "While swapping the parameter named")
COPIED = r"[\"']?(?P<key>[^\"']{1,1000}?)[\"']?,whosedimensionsinthemodelare.{1,400}?anexceptionoccurred:"

# shapes that do not match, in a text that is cut off before it tells them: the key alone says what they are of
# (the same function, torch 0.4 to 2.13)
MISMATCH = ("size mismatch for",)
CUT = (
    r":copyingaparam(?!withshapetorch\.Size\(\[[\d,]{0,200}\]\)fromcheckpoint,"
    r"theshapeincurrentmodelistorch\.Size\(\[[\d,]{0,200}\]\))"
)
CUT_OFF = "the text is cut off before the shapes"
SEE_SHAPES = (Way("see the shapes", "ckptdoctor check FILE --model MODULE:CLASS"),)


def first_byte(byte: int, meaning: str, ways: tuple[Way, ...]) -> Iterator[Message]:
    """Yield how torch names the first byte of a file that is not a pickle: as a character, or as a number."""
    quoted = chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"  # as the pickle module shows it
    yield Message((f"invalid load key, '{quoted}'",), meaning, ways)
    yield Message((f"Unsupported operand {byte}",), meaning, ways, then=r"(?!\d)")


# programs that run models, and name the first key that they do not know: vLLM 0.4 to 0.11 models/*.py and SGLang 0.4
# srt/models/*.py (params_dict[name])
KEY_ERROR = "KeyError: '"
# vllm/model_executor/models/utils.py AutoWeightsLoader since 0.6.4
NO_MODULE = "There is no module or parameter named '"
# llama.cpp convert_hf_to_gguf.py (convert-hf-to-gguf.py before June 2024), Model.map_tensor_name
NOT_MAPPED = "Can not map tensor '"
NO_PLACE = "the model that the program built has no place for it"
NOT_QUANTISED = (
    "the program does not know that the checkpoint is quantised, or quantised in this way "
    "(quantization_config in config.json)"
)


def unknown_key(
    key: str,
    meaning: str,
    ways: tuple[Way, ...] = (CHECK,),
    also: tuple[str, ...] = (),
    general: int = 0,
    says: tuple[str, ...] = (KEY_ERROR, NO_MODULE, NOT_MAPPED),
) -> Iterator[Message]:
    """Yield what programs that run models say of a key that they do not know; ``key`` is a pattern of all of it."""
    for words in says:
        yield Message((words,), meaning, ways, rf"(?P<key>{key})'", also, general=general)
