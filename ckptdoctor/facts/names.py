"""Reads keys as ``.``-separated tokens: which wrappers put which tokens there, and which names are left without them.

It also has the words by which a kind of key is known at first sight: of adapters, quantised layers, observers, and of
output layers that are the input embedding.

Nothing here replaces substrings: ``mlp_module.layer0`` holds no token ``module``. The last token of a key is the name
of the tensor itself and never counts as a wrapper's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tensor import same_checksums
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

# what peft saves an adapter as (peft.utils.WEIGHTS_NAME, SAFETENSORS_WEIGHTS_NAME)
ADAPTER_FILES = frozenset({"adapter_model.safetensors", "adapter_model.bin"})
# and its config (peft.utils.CONFIG_NAME)
ADAPTER_CONFIG = "adapter_config.json"
# one of these stands in every parameter of peft's tuners: as few as will do, because every file is searched for them
ADAPTERS = (
    *("lora_", "hada_", "lokr_", "vera_", "oft_", "hira_", "road_", "adamss_", "deft_", "frod_lambda", "lily_"),
    *("poly_router", "supertuning_", "ia3_l", "ln_tuning_layers", "c3a_kernel", "fourierft_spectrum", "miss_block"),
    *("hra_u", "shira_weight", "beft_bias", "waveft_spectrum", "trainable_tokens_delta"),
)
# one of these stands in the keys of each scheme of quantising (``facts.quantization``)
QUANTIZED = (
    "_scale_inv",
    "_scale",
    "SCB",
    "qweight",
    "scale_weight",
    "weight_packed",
    "__nf4",
    "__fp4",
    "_blocks",
    "W_q",
)
# and one of these in every key of an observer (``facts.quantization``)
OBSERVERS = ("activation_post_process", "fake_quant", "_observer_", "observer_enabled")
# bytes of torch.get_rng_state(), of a CUDA generator's state, of one before torch 1.11, and of an MPS generator's
RNG_STATE_LENGTHS = frozenset({5056, 16, 816, 44})
# what torch.nn calls the parameters and buffers that nearly every model has
_LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_TELLING = 3  # letters from which an end of such a name is no name of its own


def ends_of_names(keys: Collection[str]) -> list[str]:
    """Return keys that begin with a dot, or are the end of a common name, cut in the middle of a word."""
    return [key for key in keys if key in _ENDS or key[:1] == "."]


_ENDS = frozenset(
    leaf[start:]
    for leaf in _LEAVES
    for start in range(1, len(leaf) - _TELLING + 1)
    if leaf[start] != "_" and leaf[start - 1] != "_"
)


# DataParallel and DistributedDataParallel, and AveragedModel, hold the model in this attribute
MODULE = "module"
# torch._dynamo.eval_frame.OptimizedModule
COMPILE = frozenset({"_orig_mod"})
# torch.distributed.fsdp._common_utils.FSDP_WRAPPED_MODULE; fairscale's name for the same thing
FSDP = frozenset({"_fsdp_wrapped_module", "_fpw_module"})
# torch.distributed.algorithms._checkpoint.checkpoint_wrapper
ACTIVATION_CHECKPOINT = frozenset({"_checkpoint_wrapped_module"})
# tokens that only wrappers of torch itself use: no model has attributes of these names
WRAPPERS = COMPILE | FSDP | ACTIVATION_CHECKPOINT
# opacus.GradSampleModule; lightning.fabric.wrappers._FabricModule: both hold the module in an attribute of this name
SURE_WRAPPERS = frozenset({"_module", "_forward_module"})
_PREFIX = f"{MODULE}."
_MORE = (_PREFIX, "_")  # what a further wrapper's token begins with
# names that torch and fairscale give to the parameters of a wrapped module, made one flat tensor
_FLAT = regex(r"(^|\.)_?flat_param(_\d+)?$")
# torch.optim.swa_utils.AveragedModel counts its updates in this buffer
N_AVERAGED = "n_averaged"

# the buffers that thop.profile registers on modules
COUNTERS = ("total_ops", "total_params")

Words = tuple[str, ...] | frozenset[str]
_WORDS = 500  # tuples of them whose forms are kept: rules ask for some dozens
_REMEMBERED = 8  # state dicts whose keys are kept: about as many as one checkpoint has
_AT_ONCE = 10_000  # keys that are joined: other threads wait while a longer text is gone through
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
# by identity: hashing a state dict of 50,000 tensors would cost more than the rules do
_keys: dict[int, tuple[StateDict, tuple[str, ...], str]] = {}


def keys_of(state_dict: StateDict) -> tuple[str, ...]:
    """Return the tensor keys of a state dict in file order, put together once."""
    return _remembered(state_dict)[1]


def mentions(state_dict: StateDict, words: Words) -> bool:
    """Return whether one of the words is anywhere in the keys.

    It is a quick check before keys are taken apart one by one.
    """
    _, keys, text = _remembered(state_dict)
    if not any(map(text.__contains__, _forms_of(words))):
        return False
    for word in words:
        form = without_digits(word)
        # a form that has no digits is in the form of a key exactly where it is in the key
        if form in text and ("0" not in form or any(word in key for key in keys)):
            return True
    return False


@lru_cache(_WORDS)
def _forms_of(words: Words) -> tuple[str, ...]:
    return tuple(map(without_digits, words))


def without_digits(text: str) -> str:
    """Return the text with 0 for every digit: bytes are translated in a fraction of the time."""
    return str(text.encode("utf-8", "surrogatepass").translate(_DIGITS), "utf-8", "surrogatepass")


def forms(keys: Sequence[str]) -> Iterator[str]:
    """Yield each of the keys with 0 for every digit: the many layers of a model have keys of few forms."""
    for first in range(0, len(keys), _AT_ONCE):
        some = keys[first : first + _AT_ONCE]
        found = without_digits("\n".join(some)).split("\n")
        yield from found if len(found) == len(some) else map(without_digits, some)


def _remembered(state_dict: StateDict) -> tuple[StateDict, tuple[str, ...], str]:
    known = _keys.get(id(state_dict))
    if known is None or known[0] is not state_dict:
        while len(_keys) >= _REMEMBERED:
            # another thread may have been quicker
            _keys.pop(next(iter(_keys)), None)
        keys = state_dict.keys
        known = _keys[id(state_dict)] = (state_dict, keys, "\n".join(set(forms(keys))))
    return known


def leading(key: str) -> list[str]:
    """Return the wrapper tokens that a key begins with: ``module`` and those of ``WRAPPERS``, never the last token."""
    tokens = key.split(".")[:-1]
    for index, token in enumerate(tokens):
        if token != MODULE and token not in WRAPPERS:
            return tokens[:index]
    return tokens


def without_module(key: str) -> str:
    """Return the key without the ``module`` tokens among its leading wrapper tokens; the others stay."""
    if key.startswith(_PREFIX) and not key.startswith(_MORE, len(_PREFIX)):  # nearly all: one wrapper, and no more
        return key[len(_PREFIX) :]
    if MODULE not in key:
        return key
    run = leading(key)
    if MODULE not in run:
        return key
    return ".".join([*(token for token in run if token != MODULE), *key.split(".")[len(run) :]])


def without_tokens(key: str, tokens: frozenset[str]) -> str:
    """Return the key without these tokens, wherever they are before the last one."""
    for token in tokens:
        if token in key:
            break
    else:  # most keys: no need to take them apart
        return key
    *path, leaf = key.split(".")
    return ".".join([*(part for part in path if part not in tokens), leaf])


def bare(key: str) -> str:
    """Return the key as the model inside all wrappers of torch calls it."""
    inner = without_module(key)
    underscored = "._" in inner or inner.startswith("_")  # as every token of a wrapper is
    return without_tokens(inner, WRAPPERS) if underscored else inner


def module_led(keys: Iterable[str]) -> list[str]:
    """Return the keys that begin with ``module.``, whatever other wrapper tokens precede it."""
    return [key for key in keys if key.startswith(_PREFIX) or (MODULE in key and MODULE in leading(key))]


def holding(state_dict: StateDict, tokens: frozenset[str]) -> list[str]:
    """Return the keys that hold one of these tokens before the last one."""
    if not mentions(state_dict, tokens):
        return []
    return [key for key in keys_of(state_dict) if without_tokens(key, tokens) != key]


def average_counter(state_dict: StateDict) -> Tensor | None:
    """Return the update counter of an ``AveragedModel``, where the state dict is one's.

    Everything else is in ``module.``.
    """
    counter = None
    if not mentions(state_dict, (N_AVERAGED,)):
        return None
    for tensor in state_dict.tensors:
        if tensor.key.endswith(N_AVERAGED) and bare(tensor.key) == N_AVERAGED:
            counter = tensor
            break
    if counter is None or counter.dtype.name != "int64" or counter.numel != 1:
        return None
    depth = leading(counter.key).count(MODULE)  # DataParallel around the AveragedModel
    rest = [key for key in keys_of(state_dict) if key != counter.key]
    return counter if rest and all(leading(key).count(MODULE) > depth for key in rest) else None


def present(keys: Iterable[str], tokens: frozenset[str]) -> list[str]:
    """Return those of the tokens that some key holds before its last one, in alphabetical order."""
    return sorted(token for token in tokens if any(token in key and token in key.split(".")[:-1] for key in keys))


def is_counter(key: str) -> bool:
    """Return whether the last token is exactly one of the names that ``thop.profile`` gives to its buffers."""
    return key.rpartition(".")[2] in COUNTERS


def flat_parameter(keys: Iterable[str]) -> str | None:
    """Return a key that holds many parameters of an FSDP module in one flat tensor, if there is one."""
    return next((key for key in keys if "flat_param" in key and _FLAT.search(key)), None)


@noun
class Renaming:
    """New names for some keys of a state dict. ``collision``: two old names that would get the same new one."""

    pairs: tuple[tuple[str, str], ...]
    collision: tuple[str, str, str] | None = None  # old name, the other old name, the name both would have


def renaming(keys: Iterable[str], change: Callable[[str], str], others: Iterable[str] = ()) -> Renaming:
    """Return what ``change`` makes of the keys, checked to be one-to-one over them and ``others``, which stay."""
    olds, staying = list(keys), list(others)
    news = [*map(change, olds), *staying]
    olds += staying
    pairs = tuple([(old, new) for old, new in zip(olds, news, strict=True) if new != old])
    return Renaming(pairs, None if len(set(news)) == len(news) else _collision(olds, news))


def _collision(olds: Sequence[str], news: Sequence[str]) -> tuple[str, str, str] | None:
    """Return the first two that would get one name."""
    owners: dict[str, str] = {}
    for old, new in zip(olds, news, strict=True):
        rival = owners.setdefault(new, old)
        if rival is not old:
            return rival, old, new
    return None


# ---- tensors that models are known to share: output layers that are the input embedding
#
# Sources: the names that transformers gives them; ``safetensors.torch.save_model``, which keeps one of two names and
# notes the other in the file's metadata.

EMBEDDING = regex(r"(?:^|\.)(?:embed_tokens|word_embeddings|tok_embeddings|wte|shared|embed_in)\.weight$")
HEAD = regex(r"(?:^|\.)(?:lm_head|embed_out)\.weight$")
_HEADS = ("lm_head.weight", "embed_out.weight")
_LOOKED_AT = 4  # heads of one model


@noun
class TiedPair:
    """Head and embedding, each with bytes of its own. ``same``: whether their checksums agree (None: unknown).

    ``target`` is what people call the target that has the two as one tensor, whatever they are; "" for any other pair.
    """

    head: Tensor
    embedding: Tensor
    same: bool | None
    target: str = ""


@cached_by_identity
def tied_pairs(checkpoint: Checkpoint) -> tuple[TiedPair, ...]:
    """Return heads next to the only embedding of their shape that do not share its memory."""
    return tuple(_tied_pairs(checkpoint))


def _tied_pairs(checkpoint: Checkpoint) -> Iterator[TiedPair]:
    for state_dict in weights_of_models(checkpoint):
        found = heads(state_dict)
        tables = [each for each in state_dict.tensors if found and EMBEDDING.search(each.key)]
        for head in found:
            alike = [each for each in tables if each.shape == head.shape and each.dtype == head.dtype]
            if len(alike) == 1 and head.storage is not None and head.storage is not alike[0].storage:
                yield TiedPair(head, alike[0], same_checksums(head, alike[0]))


def weights_of_models(checkpoint: Checkpoint) -> Iterator[StateDict]:
    """Return the weights that may have a head."""
    return (each for each in checkpoint.state_dicts if each.role in (Role.MODEL, Role.EMA))


def heads(state_dict: StateDict) -> list[Tensor]:
    """Return the output layers of language models, as large as a vocabulary asks for."""
    found = (each for each in state_dict.tensors if each.key.endswith(_HEADS) and HEAD.search(each.key))
    return list(islice(filter(_is_table, found), _LOOKED_AT))


def _is_table(tensor: Tensor) -> bool:
    """Return whether it is as large as a vocabulary asks for: more rows than columns."""
    return len(tensor.shape) == 2 and tensor.dtype.kind == "float" and tensor.shape[0] > tensor.shape[1] > 1
