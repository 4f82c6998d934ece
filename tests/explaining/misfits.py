"""Models, and weights that torch refuses to load into them: what happens to checkpoints, made with torch itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm


@dataclass(frozen=True)
class Misfit:
    """A model and weights that do not fit it. ``early`` is the model before it got what the weights lack."""

    code: str
    model: Callable[[], nn.Module]
    weights: Callable[[], dict]
    early: Callable[[], nn.Module] | None = None
    beside: dict[str, str] = field(default_factory=dict)  # files by name that were saved with them


class Net(nn.Module):
    """Convolutions with a norm, and a head."""

    def __init__(self, classes=2):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 3))
        self.head = nn.ModuleDict({"fc": nn.Linear(5, classes)})


class Language(nn.Module):
    """An embedding, a layer, and a head that may be the embedding again."""

    def __init__(self, tied=True):
        super().__init__()
        self.embed_tokens = nn.Embedding(7, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.lm_head = nn.Linear(4, 7, bias=False)
        if tied:
            self.lm_head.weight = self.embed_tokens.weight


class Styled(nn.Module):
    """A convolution with a norm that keeps no statistics, and one that does."""

    def __init__(self, tracking=False):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.InstanceNorm2d(4, track_running_stats=tracking)
        self.bn = nn.BatchNorm2d(4)


class Positions(nn.Module):
    """Buffers that can be computed, saved or not."""

    def __init__(self, saved):
        super().__init__()
        self.embeddings = nn.Embedding(5, 2)
        self.register_buffer("position_ids", torch.arange(5)[None], persistent=saved)


class Extra(nn.Module):
    """A layer with something of its own beside its weights, or without."""

    def __init__(self, extra):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        if extra:
            self.attention = _Stateful()


class _Stateful(nn.Module):
    def get_extra_state(self):
        return torch.ones(3)

    def set_extra_state(self, state):
        """Takes anything."""


def two(change=None):
    """Two layers, of which the first is changed."""
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 3)})
    if change is not None:
        change(model["a"])
    return model


def norms(name="LayerNorm"):
    return nn.ModuleDict({name: nn.LayerNorm(3), "fc": nn.Linear(3, 3)})


def wrapped(part):
    model = Net()
    setattr(model, part, nn.DataParallel(getattr(model, part)))
    return model


def grouped():
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4))


def mlp():
    return nn.ModuleDict({"mlp_module": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), "head": nn.Linear(2, 2)})


def named():
    return nn.ModuleDict({"conv1": nn.Conv2d(3, 4, 1), "layers": nn.Linear(4, 5), "classifier": nn.Linear(5, 2)})


def weights(model, rename=lambda key: key, keep=lambda key: True):
    """A plain dict of the weights, as a loop over them makes it: without the versions of modules."""
    return {rename(key): value for key, value in model.state_dict().items() if keep(key)}


def versioned(model, keep):
    """A state dict with the versions of its modules, less some keys."""
    state = model.state_dict()
    for key in [key for key in state if not keep(key)]:
        del state[key]
    return state


def counted(prefix):
    """Weights with a counter that the layer does not keep."""
    return {**weights(grouped(), lambda key: prefix + key), f"{prefix}1.num_batches_tracked": torch.tensor(3)}


def adapted():
    return {
        **weights(Language(), lambda key: key.replace("layers.0.", "layers.0.base_layer.")),
        "layers.0.lora_A.default.weight": torch.ones(2, 4),
        "layers.0.lora_B.default.weight": torch.zeros(4, 2),
    }


_SETTINGS = '{"peft_type": "LORA", "r": 2, "lora_alpha": 4}'  # as peft saves them beside an adapter


def _tensorflow(key):
    """The names of norms in TensorFlow."""
    return {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}.get(key, key)


def _norm(part):
    return lambda: two(part)


def _weights_of(make, **options):
    return lambda: weights(make(), **options)


_OLD, _NEW = _norm(weight_norm), _norm(parametrizations.weight_norm)
_OLD_S, _NEW_S = _norm(spectral_norm), _norm(parametrizations.spectral_norm)
_PRUNED = _norm(lambda layer: prune.l1_unstructured(layer, "weight", 0.5))
_ORTHOGONAL = _norm(parametrizations.orthogonal)
_WRAPPED = lambda make: lambda: nn.DataParallel(make())  # noqa: E731


def _averaged_by_a_hook():
    """What mmcv's EMAHook leaves: each tensor again, with underscores for dots."""
    raw = weights(Net())
    return {**raw, **{f"ema_{key.replace('.', '_')}": value for key, value in raw.items()}}


def _holding(*names):
    layer = nn.Module()
    for name in names:
        layer.register_buffer(name, torch.zeros(2))
    return nn.ModuleDict({"proj": layer})


def _wide(width):
    return nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width), nn.Linear(width, width))


def _mlp(width):
    return nn.ModuleDict({"mlp": nn.ModuleDict({"dense_h_to_4h": nn.Linear(4, width)})})


def _adapter(rank, size):
    return nn.ModuleDict(
        {"q": nn.ModuleDict({"lora_A": nn.ModuleDict({"default": nn.Linear(size, rank, bias=False)})})}
    )


MISFITS = {
    "in DataParallel": Misfit("N401", Net, _weights_of(_WRAPPED(Net))),
    "a part in DataParallel": Misfit("N401", Net, lambda: wrapped("body").state_dict()),
    "a counter too many in DataParallel": Misfit("N417", _WRAPPED(grouped), lambda: counted("module.")),
    "a counter too many": Misfit("N417", grouped, lambda: counted("")),
    "into DataParallel": Misfit("N402", _WRAPPED(Net), Net().state_dict),
    "into a part in DataParallel": Misfit("N402", lambda: wrapped("body"), Net().state_dict),
    "replaced": Misfit("N403", mlp, _weights_of(mlp, rename=lambda key: key.replace("module.", ""))),
    "cut": Misfit("N403", named, _weights_of(named, rename=lambda key: key[7:])),
    "cut, and fallen together": Misfit("N403", Net, _weights_of(Net, rename=lambda key: key[7:])),
    "compiled": Misfit("N404", Net, _weights_of(Net, rename=lambda key: f"_orig_mod.{key}")),
    "a part compiled": Misfit(
        "N404", Net, _weights_of(Net, rename=lambda key: key.replace("body.", "body._orig_mod."))
    ),
    "in Lightning": Misfit("N409", Net, _weights_of(Net, rename=lambda key: f"model.{key}")),
    "held by another": Misfit("N409", lambda: nn.ModuleDict({"net": Net()}), Net().state_dict),
    "averaged": Misfit("N411", Net, lambda: torch.optim.swa_utils.AveragedModel(Net()).state_dict()),
    "averaged without dots": Misfit(
        "N428", Net, _weights_of(Net, rename=lambda key: f"model_ema.{key.replace('.', '')}")
    ),
    "new weight norm into old": Misfit("N412", _OLD, _weights_of(_NEW)),
    "old weight norm into plain": Misfit("N412", two, _weights_of(_OLD)),
    "new weight norm into plain": Misfit("N412", two, _weights_of(_NEW)),
    "plain into old weight norm": Misfit("N412", _OLD, _weights_of(two), two),
    "plain into new weight norm": Misfit("N412", _NEW, _weights_of(two), two),
    "old spectral norm into new": Misfit("N413", _NEW_S, _weights_of(_OLD_S)),
    "new spectral norm into old": Misfit("N413", _OLD_S, _weights_of(_NEW_S)),
    "old spectral norm into plain": Misfit("N413", two, _weights_of(_OLD_S)),
    "new spectral norm into plain": Misfit("N413", two, _weights_of(_NEW_S)),
    "plain into new spectral norm": Misfit("N413", _NEW_S, _weights_of(two), two),
    "plain into old spectral norm": Misfit("N413", _OLD_S, _weights_of(two), two),
    "orthogonal into plain": Misfit("N430", two, _weights_of(_ORTHOGONAL)),
    "plain into orthogonal": Misfit("", _ORTHOGONAL, _weights_of(two), two),
    "pruned into plain": Misfit("N429", two, _weights_of(_PRUNED)),
    "plain into pruned": Misfit("", _PRUNED, _weights_of(two), two),
    "gamma and beta": Misfit("N414", norms, _weights_of(norms, rename=_tensorflow)),
    "no counters": Misfit("N416", Net, lambda: versioned(Net(), lambda key: "num_batches" not in key)),
    "statistics": Misfit("N418", Styled, lambda: weights(Styled(True))),
    "statistics with versions": Misfit("N418", Styled, lambda: Styled(True).state_dict()),
    "positions too many": Misfit("N419", lambda: Positions(False), lambda: Positions(True).state_dict()),
    "positions too few": Misfit("N419", lambda: Positions(True), lambda: Positions(False).state_dict()),
    "profiled": Misfit("N420", Net, lambda: {**weights(Net()), "total_ops": torch.zeros(1)}),
    "extra state too much": Misfit("N421", lambda: Extra(False), lambda: Extra(True).state_dict()),
    "extra state too little": Misfit("N421", lambda: Extra(True), lambda: Extra(False).state_dict()),
    "a loss beside": Misfit("N422", Net, lambda: {**weights(Net()), "criterion.weight": torch.ones(3)}),
    "renamed": Misfit("N423", Net, _weights_of(Net, rename=lambda key: key.replace("body.", "trunk."))),
    "counted from ten": Misfit("N424", Net, _weights_of(Net, rename=lambda key: key.replace("body.", "body.1"))),
    "spelt otherwise": Misfit("N427", norms, _weights_of(lambda: norms("layer_norm"))),
    "nested": Misfit("W301", Net, lambda: {"epoch": 3, "state_dict": Net().state_dict()}),
    "nested beside an average": Misfit("W301", Net, lambda: {"model": Net().state_dict(), "ema": Net().state_dict()}),
    "a dict for each part": Misfit(
        "W312", Net, lambda: {"body": Net().body.state_dict(), "head": Net().head.state_dict()}
    ),
    "an optimizer": Misfit("W303", Net, lambda: torch.optim.SGD(Net().parameters(), 0.1).state_dict()),
    "no head": Misfit("R005", Language, _weights_of(Language, keep=lambda key: key != "lm_head.weight")),
    "no embedding": Misfit("A702", Language, _weights_of(Language, keep=lambda key: key != "embed_tokens.weight")),
    "another model": Misfit("R001", Language, Net().state_dict),
    "an adapter inside": Misfit("L906", Language, adapted, beside={"adapter_config.json": _SETTINGS}),
    "an adapter alone": Misfit("L906", Language, lambda: {"base_model.model.layers.0.lora_A.weight": torch.ones(2, 4)}),
    "a hook's averages": Misfit("N411", Net, _averaged_by_a_hook),
    "a base without its adapter": Misfit(
        "L906", lambda: nn.ModuleDict({"q": nn.ModuleDict({"base_layer": nn.Linear(2, 2)})}), dict
    ),
    "not packed": Misfit("Q953", lambda: _holding("qweight", "qzeros", "scales"), dict),
    "not of eight bits": Misfit("Q956", lambda: _holding("int8_weight", "scale"), dict),
    "a larger model": Misfit("S510", lambda: _wide(8), _wide(4).state_dict),
    "one rank of four": Misfit("S512", lambda: _mlp(16), _mlp(4).state_dict),
    "a flat parameter": Misfit("N406", lambda: nn.Linear(8, 8, bias=False), lambda: {"weight": torch.ones(32)}),
    "a placeholder": Misfit("S511", lambda: nn.Linear(8, 8, bias=False), lambda: {"weight": torch.ones(0)}),
    "an empty model": Misfit("", lambda: nn.Linear(0, 8, bias=False), lambda: {"weight": torch.ones(8, 8)}),
    "a smaller rank": Misfit("L908", lambda: _adapter(8, 6), lambda: _adapter(4, 6).state_dict()),
    "another base": Misfit("L909", lambda: _adapter(4, 6), lambda: _adapter(4, 5).state_dict()),
    "another head": Misfit("S501", lambda: Net(7), Net().state_dict),
    "transposed": Misfit("S505", lambda: nn.Linear(3, 5), lambda: {"weight": torch.ones(3, 5), "bias": torch.ones(5)}),
    "a size of one": Misfit("S506", lambda: nn.Conv2d(3, 5, 1), lambda: nn.Linear(3, 5).state_dict()),
    "fused": Misfit(
        "S507",
        lambda: nn.ModuleDict({"q_proj": nn.Linear(4, 4), "k_proj": nn.Linear(4, 4), "v_proj": nn.Linear(4, 4)}),
        lambda: nn.ModuleDict({"qkv": nn.Linear(4, 12)}).state_dict(),
    ),
    "a key too many": Misfit("R002", Net, lambda: {**weights(Net()), "aux.weight": torch.ones(3)}),
    "a layer too few": Misfit("R001", Net, _weights_of(Net, keep=lambda key: not key.startswith("head"))),
}
