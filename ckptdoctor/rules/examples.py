"""Rules carry examples: small checkpoints described as data, which the tests turn into real files with torch.

Nothing here needs torch: ``T`` stands for a tensor, ``Obj`` for an object of some class, ``Odict`` for a state dict
as ``Module.state_dict()`` returns it.
"""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.noun import field, noun


@noun
class T:
    """A tensor. Tensors with the same ``storage`` name share one storage of ``storage_size`` elements.

    ``saved_as`` a "copy" (a CPU tensor) or an "array" is how devices without storages save theirs.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    device: str = "cpu"
    stride: tuple[int, ...] | None = None
    offset: int = 0
    storage: str | None = None
    storage_size: int | None = None
    parameter: bool = False
    requires_grad: bool = False
    value: float | None = None
    saved_as: str = "storage"


@noun
class Obj:
    """An instance of ``class_name`` ("argparse.Namespace") with attributes, or a call of it with ``arguments``."""

    class_name: str
    state: dict[str, object] = field(default_factory=dict)
    arguments: tuple[object, ...] = ()


@noun
class Odict:
    """An OrderedDict with a ``_metadata`` attribute: module prefix → version."""

    entries: dict[str, object]
    metadata: dict[str, dict[str, int]] | None = None


@noun
class Example:
    """One example file.

    ``contents`` is saved as ``container`` ("torch zip", "torch legacy", "safetensors"), then ``damage`` changes its
    bytes; or ``raw`` is the whole file, or what makes it. ``like`` is the contents of the reference file, for rules
    that compare. ``deep`` examples are checked with ``--deep``. ``name`` is the file's own name where it matters
    ("1/model.pt"), and ``beside`` are files around it, by their paths from the folder that the example is made in. With
    ``files`` it is a folder: its files by their paths, as bytes or as contents that are saved as their suffix says.
    """

    title: str
    contents: object = None
    container: str = "torch zip"
    suffix: str = ".pt"
    metadata: dict[str, str] | None = None
    raw: bytes | Callable[[], bytes] | None = None
    damage: Callable[[bytes], bytes] | None = None
    like: object = None
    deep: bool = False
    name: str = ""
    beside: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes | dict[str, object]] = field(default_factory=dict)


def repacked(ending: str = "", contents: bytes = b"") -> Callable[[bytes], bytes]:
    """Return the damage of an archive that Python's zipfile packs again.

    The record whose name ends in ``ending`` gets these contents, which may have another length.
    """

    def damage(data: bytes) -> bytes:
        import io
        import zipfile

        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
            for entry in old.infolist():
                replaced = ending and entry.filename.endswith(ending)
                new.writestr(entry.filename, contents if replaced else old.read(entry))
        return made.getvalue()

    return damage
