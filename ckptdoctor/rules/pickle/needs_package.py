"""Objects of a training framework or another known package are in the file: loading needs that package.

Meaning
    A configuration (OmegaConf, mmengine), a callback (Lightning), a dataset or a distribution was saved in the same
    dict as the state dict. Its class belongs to a package that can be installed.

Why it matters
    torch has rejected the whole file since 2.6. With ``weights_only=False`` it loads only where the package is
    installed, often in about the same version, although the weights themselves are plain tensors.

Symptoms
    Unsupported global: GLOBAL omegaconf.dictconfig.DictConfig was not an allowed global by default.
    No module named 'omegaconf'

Detection
    Names in the pickle that belong to packages known to leave such objects. P205 reports classes of the user's own
    code.

Repair
    ``ckptdoctor fix FILE --weights-only-safe`` converts configurations of OmegaConf, EasyDict, addict and munch to
    plain dicts and lists. Safe: no value changes; interpolations stay text, and types and flags are dropped with the
    class. ``--select P210 --unsafe-fixes`` drops other objects that hold no tensors and have a key of their own.
    Unsafe: their contents are lost in the new file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Fix
from ckptdoctor.facts.globals import BlockedCause, blocked_by
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.blocked import Objects, convertible
from ckptdoctor.rules.kit.refusals import not_importable
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.pickle.packages import to_install
from ckptdoctor.rules.when import unusual_names

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
MESSAGES = (
    Message(
        ("No module named '", "No module named "),
        "the file holds objects of {module}, which is not installed here: the file holds more than the "
        "weights, an object of the program that trained them",
        (Way("extract the weights", "ckptdoctor fix FILE"), Way("or install it", "pip install {module}")),
        then=r"(?P<module>pytorch_lightning|lightning|omegaconf|mmengine|mmcv|fairseq|hydra|easydict|yacs|sklearn|pandas"
        r"|apex|detectron2|timm|dill|ruamel)(?![\w])",
        also=("P201", "P204", "P205"),
        among=("torch.load", "serialization", "pickle"),
    ),
)
SICK = (
    Example(
        "a configuration of OmegaConf",
        {"model": _WEIGHTS, "cfg": Obj("omegaconf.dictconfig.DictConfig", {"_content": {"lr": 0.1}})},
    ),
    Example(
        "two packages",
        {
            "model": _WEIGHTS,
            "log": Obj("mmengine.logging.HistoryBuffer", {"n": 3}),
            "acc": [Obj("fairseq.meters.AverageMeter")],
        },
    ),
)
HEALTHY = (
    Example("the configuration as a dict", {"model": _WEIGHTS, "cfg": {"lr": 0.1}}),
    Example("a class of the training script", {"model": _WEIGHTS, "log": Obj("__main__.Log", {"step": 3})}),
)


@rule("P210", "needs-package", Severity.ERROR, when=unusual_names)
def needs_package(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report classes of known packages."""
    found = tuple([each for each in blocked_by(checkpoint, BlockedCause.FOREIGN) if to_install(each.path)])
    plain, values, rest = convertible(found)
    if plain.places:
        title = f"convert {wording.plural(len(plain.places), 'object')} to plain data"
        yield _problem(plain, refused.plain_fix(checkpoint, plain, values, title, "P210"))
    if rest.blocked:
        yield _problem(rest, refused.drop_objects_fix(checkpoint, rest.places, "P210"))


def _problem(objects: Objects, fix: Fix | None) -> Problem:
    places, found = objects.places, objects.blocked
    packages = list(dict.fromkeys([name for each in found if (name := to_install(each.path))]))
    stand = f" ({refused.listed_places(places)})" if places else ""
    return Problem(
        message=f"the file holds {refused.classes(found)}{stand}, and needs {wording.listed(packages)} to load",
        cause="The weights themselves do not need it, but torch loads all of the file or nothing.",
        torch_says=(*refused.refusal_lines(found[:1]), not_importable(found[0].path)),
        advice=refused.trusting(
            found, f"If you trust it: pip install {' '.join(packages)}, and {{}} before torch.load."
        ),
        keys=tuple([place.path for place in places]),
        location=refused.first_use(found),
        fix=fix,
    )
