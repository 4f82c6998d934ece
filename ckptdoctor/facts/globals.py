"""Classifies what pickles name, classes and functions, by these names alone: none of them is resolved.

It also finds the names that ``torch.load(weights_only=True)`` refuses: why they are there, and where.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Union

from ckptdoctor.checkpoint import (
    Checkpoint,
    GlobalName,
    KeyPath,
    LookUp,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Sequence,
    Tensor,
)
from ckptdoctor.checkpoint import children as children_of
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.devices import names_of_arrays
from ckptdoctor.facts.whole_modules import is_module
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex


def _words(text: str) -> list[str]:
    return text.split()


_TYPED = _words("BFloat16 Bool Byte Char Double Float Half Int Long Short")
_SPARSE = [name for name in _TYPED if name != "Bool"]
_COMPLEX = ["ComplexDouble", "ComplexFloat"]
_QUANTIZED = _words("QInt32 QInt8 QUInt2x4 QUInt4x2 QUInt8")
_DTYPES = _words(
    "bfloat16 bits16 bits1x8 bits2x4 bits4x2 bits8 bool complex128 complex32 complex64 float16 float32 "
    "float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "qint32 qint8 quint2x4 quint4x2 quint8 int1 int2 int3 int4 int5 int6 int7 int8 int16 int32 int64 "
    "uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 uint16 uint32 uint64"
)
_SCHEMES = _words(
    "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric"
)
REBUILDERS = _words(
    "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy _rebuild_meta_tensor_no_storage "
    "_rebuild_nested_tensor _rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor "
    "_rebuild_sparse_tensor _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_wrapper_subclass"
)

_ALLOWED: dict[str, Iterable[str]] = {
    "_codecs": ["encode"],
    "builtins": ["bytearray", "complex", "set"],
    "collections": ["Counter", "OrderedDict"],
    "torch": [
        *("Size", "Tensor", "device", *_DTYPES, *_SCHEMES),
        *(f"{name}Storage" for name in [*_TYPED, *_COMPLEX, *_QUANTIZED]),
        *(f"{name}Tensor" for name in _TYPED),
    ],
    "torch.cuda": [*(f"{name}Storage" for name in [*_TYPED, *_COMPLEX]), *(f"{name}Tensor" for name in _TYPED)],
    "torch.cuda.sparse": [f"{name}Tensor" for name in _SPARSE],
    "torch.sparse": [f"{name}Tensor" for name in _SPARSE],
    "torch.storage": ["TypedStorage", "UntypedStorage"],
    "torch.nn.parameter": ["Parameter"],
    "torch.serialization": ["_get_layout"],
    "torch._tensor": ["_rebuild_from_type_v2"],
    "torch._utils": REBUILDERS,
}

# exactly what torch.load(weights_only=True) accepts without being told anything
WEIGHTS_ONLY: frozenset[tuple[str, str]] = frozenset(
    (module, name) for module, names in _ALLOWED.items() for name in names
)
_WEIGHTS_ONLY_PATHS = frozenset(f"{module}.{name}" for module, name in WEIGHTS_ONLY)

# these give back what they are given: C++ writes with them the types of lists and dicts
TYPE_TAGS = frozenset(
    f"torch.jit._pickle.{name}"
    for name in ("restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")
)

# torch names these itself when it refuses them: importing the module on the right makes them loadable
NEEDS_IMPORT: dict[str, str] = {
    "torch.nested._internal.nested_tensor.NestedTensor": "torch.nested",
    "torch.nested._internal.nested_tensor._rebuild_njt": "torch.nested",
    "torch._dynamo.decorators._DimRange": "torch._dynamo",
    "torch.distributed._mesh_layout._FlatLayout": "torch.distributed.tensor",
    "torch.distributed._mesh_layout._MeshLayout": "torch.distributed.tensor",
    "torch.distributed.device_mesh.DeviceMesh": "torch.distributed.tensor",
    "torch.distributed.tensor._dtensor_spec.DTensorSpec": "torch.distributed.tensor",
    "torch.distributed.tensor._dtensor_spec.ShardOrderEntry": "torch.distributed.tensor",
    "torch.distributed.tensor._dtensor_spec.TensorMeta": "torch.distributed.tensor",
    "torch.distributed.tensor.DTensor": "torch.distributed.tensor",
    "torch.distributed.tensor.placement_types.Partial": "torch.distributed.tensor",
    "torch.distributed.tensor.placement_types.Replicate": "torch.distributed.tensor",
    "torch.distributed.tensor.placement_types.Shard": "torch.distributed.tensor",
    "torch.distributed.tensor.placement_types._StridedShard": "torch.distributed.tensor",
}


# modules of which any name can start programs, run code, load other pickles, touch files or talk to the network
_DANGEROUS_MODULES = frozenset(
    _words(
        "os posix nt sys subprocess _posixsubprocess pty popen2 commands shutil socket _socket runpy imp _imp pkgutil "
        "_xxsubinterpreters _interpreters pydoc "  # the first two are one: Python 3.13 gave it another name
        "webbrowser code codeop pdb bdb cProfile profile timeit trace pickle _pickle cPickle marshal shelve dill "
        "httplib urllib2 ftplib smtplib poplib imaplib telnetlib socketserver doctest fileinput zipimport"
    )
)
# the same, and everything below them
_DANGEROUS_PACKAGES = tuple(
    _words(
        "importlib ctypes _ctypes cffi pip ensurepip venv setuptools distutils asyncio multiprocessing idlelib lib2to3 "
        "xmlrpc http.client http.server urllib.request requests paramiko cloudpickle os.path "
        "concurrent.interpreters _pyrepl "  # what pydoc starts its pagers with, since Python 3.13
        "torch.hub torch.utils.cpp_extension torch.utils.collect_env torch.utils.bottleneck torch.utils.hipify "
        "torch.utils._config_module torch._inductor torch.distributed.run torch.distributed.launch "
        "torch.distributed.elastic torch.distributed.rpc torch.multiprocessing.spawn torch.package "
        "numpy.f2py numpy.distutils numpy.testing numpy.ctypeslib"
    )
)
_DANGEROUS_BUILTINS = _words(
    "eval exec compile execfile open file input raw_input __import__ __build_class__ getattr setattr delattr "
    "globals locals vars breakpoint help apply reload exit quit"
)
_DANGEROUS_NAMES = frozenset(
    _words(
        "io.open io.open_code io.FileIO _io.open _io.open_code _io.FileIO "
        "operator.attrgetter operator.methodcaller _operator.attrgetter _operator.methodcaller "
        "types.CodeType types.FunctionType types.MethodType joblib.load "
        "torch.load torch.save torch.compile torch.jit.load torch.jit._serialization.load torch.serialization.load "
        "torch.serialization.save torch.storage._load_from_bytes torch.ops.load_library torch._ops.load_library "
        "torch.fx.graph_module.reduce_graph_module torch.fx.graph_module.reduce_package_graph_module "
        "numpy.load numpy.fromfile numpy.loadtxt numpy.genfromtxt numpy.save numpy.savetxt "
        "numpy.memmap numpy.DataSource"
    )
    + [f"builtins.{name}" for name in _DANGEROUS_BUILTINS]
)
# what a dotted name of STACK_GLOBAL passes through on its way out of a harmless module (torch.serialization, os.system)
_WALKED = frozenset(_words("os posix nt sys subprocess builtins importlib ctypes shutil socket pickle runpy"))


# what NumPy writes of arrays, and Python of plain values: making one of them does nothing else
_OF_NUMPY = _words(
    "ndarray dtype _core.multiarray._reconstruct core.multiarray._reconstruct _core.multiarray.scalar "
    "core.multiarray.scalar _core.numeric._frombuffer core.numeric._frombuffer matrix ma.core._mareconstruct "
    "ma.core.MaskedArray"
)
_OF_PYTHON = _words(
    "builtins.object builtins.list builtins.tuple builtins.dict builtins.frozenset builtins.int builtins.float "
    "builtins.bool builtins.str builtins.bytes builtins.slice builtins.range collections.defaultdict "
    "collections.deque datetime.date datetime.time datetime.datetime datetime.timedelta datetime.timezone "
    "decimal.Decimal fractions.Fraction uuid.UUID argparse.Namespace types.SimpleNamespace copyreg._reconstructor "
    "pathlib.Path pathlib.PurePath pathlib.PosixPath pathlib.WindowsPath pathlib.PurePosixPath "
    "pathlib.PureWindowsPath pathlib._local.Path pathlib._local.PosixPath pathlib._local.WindowsPath "
    "pathlib._local.PurePosixPath pathlib._local.PureWindowsPath random.Random zoneinfo.ZoneInfo._unpickle"
)
_HARMLESS = frozenset([*[f"numpy.{name}" for name in _OF_NUMPY], *_OF_PYTHON])
# the records of torch.distributed.checkpoint and of what it was before
_RECORDS = regex(
    r"torch\.distributed\.(?:checkpoint|_shard(?:\.\w+)*)\.metadata\.\w+"
    r"|torch\.distributed\.checkpoint\.(?:\w+\.)?_\w*StorageInfo"
    r"|torch\.distributed\.(?:remote_device\._remote_device|_shard\.sharding_spec\.\w+\.\w+)"
)


def modern(module: str, name: str) -> tuple[str, str]:
    """Return the name in Python 3 of a name that may be Python 2's: pickle protocols below 3 write the old ones.

    ``__builtin__``, ``set`` becomes ``builtins``, ``set``, as ``torch.load`` and ``pickle`` read it.
    """
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

    return NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))


def is_allowed(module: str, name: str) -> bool:
    """Return whether ``torch.load(weights_only=True)`` of torch 2.13 accepts this name (as ``modern`` gives it).

    torch compares the two joined by a dot, so that ("torch", "storage.UntypedStorage") passes as well.
    """
    return f"{module}.{name}" in _WEIGHTS_ONLY_PATHS


def is_dangerous(module: str, name: str) -> bool:
    """Return whether this name (as ``modern`` gives it), or what it leads to, can run code or touch files.

    False proves nothing: a class of any other package can do harm as well.
    """
    path = f"{module}.{name}"
    if module in _DANGEROUS_MODULES or path in _DANGEROUS_NAMES:
        return True
    if any(path == each or path.startswith(f"{each}.") for each in _DANGEROUS_PACKAGES):
        return True
    # names with dots walk from attribute to attribute: numpy, __builtins__.eval
    walked = name.split(".")
    if len(walked) > 1 and _is_method(module, name):
        return True
    return any(part in _WALKED or _is_dunder(part) for part in walked[:-1]) or _is_dunder(walked[-1])


def is_harmless(module: str, name: str) -> bool:
    """Return whether making what this name (as ``modern`` gives it) stands for is known to do nothing else."""
    path = f"{module}.{name}"
    return is_allowed(module, name) or path in _HARMLESS or path in TYPE_TAGS or _RECORDS.fullmatch(path) is not None


def _is_method(module: str, name: str) -> bool:
    """Return whether this name with dots may be a method of what Python or NumPy brings: ``pathlib.Path.unlink``."""
    brought = is_standard(module) or package(module) == "numpy"
    return brought and name.rpartition(".")[2].lstrip("_")[:1].islower() and not is_harmless(module, name)


def _is_dunder(part: str) -> bool:
    return part.startswith("__") and part.endswith("__")


def package(path: str) -> str:
    """Return the top-level package of a full name."""
    return path.partition(".")[0]


# what came with one Python since 3.10 and not with another: a file is told the same by every one of them
_OF_SOME_PYTHONS = frozenset(
    _words(
        "aifc asynchat asyncore audioop binhex cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis "
        "nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib annotationlib compression tomllib"
    )
)


def is_standard(path: str) -> bool:
    """Return whether the name comes with Python itself (``__main__``, the user's script, does not)."""
    top = package(path)
    return top in sys.stdlib_module_names or top in _OF_SOME_PYTHONS


# classes of pathlib
_POSIX_PATHS = frozenset({"PosixPath", "PurePosixPath"})
WINDOWS_PATHS = frozenset({"WindowsPath", "PureWindowsPath"})
_PATHS = _POSIX_PATHS | WINDOWS_PATHS | {"Path", "PurePath"}


def is_path(module: str, name: str) -> bool:
    """Return whether this is a class of pathlib, which was a package of its own (``pathlib._local``) in Python 3.13."""
    return module in ("pathlib", "pathlib._local") and name in _PATHS


# ---- parts of classes that pickles look up by getattr, as ``pickles.lookups`` has them


# records of torch.distributed, whose parts are made like them (``torch.distributed._shard.sharded_tensor``)
_OF_RECORDS = regex(
    r"torch\.distributed\._shard\.sharded_tensor\.api\.ShardedTensor\.ProcessGroupState"
    r"|torch\.distributed\._shard\.sharded_tensor\.metadata\.MEM_FORMAT_ENCODING\.[A-Z][A-Z_]*"
    r"|torch\.distributed\.checkpoint\.metadata\._MEM_FORMAT_ENCODING\.[A-Z][A-Z_]*"
)


def only_looks_up(name: GlobalName) -> bool:
    """Return whether it is ``getattr``, for nothing but members of enums and classes within classes.

    Looking these up does nothing else. They are told from functions and modules by their names: every step begins with
    a capital letter, and of what Python, NumPy and torch bring only constants in capitals count, which nobody calls.
    """
    return bool(name.looks_up) and all(map(_is_harmless_part, name.looks_up))


def _is_harmless_part(part: LookUp) -> bool:
    module, _ = modern(part.module, "")
    if _is_of_records(part):
        return True
    steps = part.name.split(".")
    if is_dangerous(module, part.name) or not all(step.lstrip("_")[:1].isupper() for step in steps):
        return False
    known_everywhere = is_standard(module) or package(module) in ("numpy", "torch")
    return not known_everywhere or (steps[-1].isupper() and not part.used)


def _is_of_records(part: LookUp) -> bool:
    return _OF_RECORDS.fullmatch(f"{part.module}.{part.name}") is not None


# ---- names in pickles that are not, or not as a whole, what the contents were read from


def dangerous(names: Iterable[GlobalName]) -> list[str]:
    """Return those that can run code, as Python 3 calls them, each once."""
    found = [modern(each.module, each.name) for each in names if not only_looks_up(each)]
    return list(dict.fromkeys([f"{module}.{name}" for module, name in found if is_dangerous(module, name)]))


# ---- the names that are refused


class BlockedCause(Enum):
    """Why a refused name is in the file. Each name has one cause, the first that fits."""

    DANGEROUS = "dangerous"  # it can run code
    PART = "part"  # getattr that looks up parts of classes and nothing else, and these classes
    MODULE = "module"  # it belongs to an nn.Module that was saved whole
    DEVICE = "device"  # it makes an array that stands for a tensor of a device without storages
    NUMPY = "numpy"
    PATH = "path"  # a class of pathlib
    FOREIGN = "foreign"  # a class of the user's script or of a package that is neither Python's nor torch's
    OTHER = "other"


@noun
class BlockedPlace:
    """An object, and where it is in the tree."""

    path: KeyPath
    node: Node


@noun
class Blocked:
    """A refused name: as Python 3 calls it, as the file names it first, why it is there, and where it is used.

    ``refers`` says that it is a value wherever the file has it, and that nothing is called by it.
    """

    path: str
    first: GlobalName
    cause: BlockedCause
    places: tuple[BlockedPlace, ...]
    refers: bool = False


@cached_by_identity
def blocked_globals(checkpoint: Checkpoint) -> tuple[Blocked, ...]:
    """Return every name that is refused, in file order.

    Of NumPy's own files, which torch never reads, only dangerous names count.
    """
    firsts: dict[str, GlobalName] = {}
    aliases: dict[str, str] = {}
    used: set[str] = set()
    for each in checkpoint.globals:
        module, name = modern(each.module, each.name)
        if bool(dangerous([each])) if of_numpy(checkpoint) else not is_allowed(module, name):
            if each.looks_up and all(map(_is_of_records, each.looks_up)):  # what has these parts is refused itself
                continue
            path = f"{module}.{name}"
            if path not in firsts or (only_looks_up(firsts[path]) and not only_looks_up(each)):
                firsts[path] = each
            aliases[path] = aliases[each.full] = path
            if not each.refers:
                used.add(path)
            if path == "builtins.frozenset":  # the one such class that the tree shows as a plain container
                aliases["frozenset"] = path
    if not firsts:
        return ()
    places: dict[str, list[BlockedPlace]] = {path: [] for path in firsts}
    in_modules: dict[str, bool] = dict.fromkeys(firsts, True)
    for full, place, in_module in _uses(checkpoint.tree, aliases):
        places[full].append(place)
        in_modules[full] &= in_module
    for_devices = names_of_arrays(checkpoint)
    parts = {place.path for path, first in firsts.items() if only_looks_up(first) for place in places[path]}
    found = []
    for path, first in firsts.items():
        shown = bool(places[path])
        in_module = shown and in_modules[path]
        if only_looks_up(first) or (shown and all(place.path[:-1] in parts for place in places[path])):
            cause = BlockedCause.MODULE if in_module else BlockedCause.PART
        else:
            cause = _cause(first, in_module, not shown and path in for_devices)
        found.append(Blocked(path, first, cause, tuple(places[path]), path not in used))
    return tuple(found)


def of_numpy(checkpoint: Checkpoint) -> bool:
    """Return whether the file is NumPy's own: ``numpy.load(allow_pickle=True)`` is what unpickles it."""
    return checkpoint.format in ("NumPy array", "NumPy archive")


def blocked_by(checkpoint: Checkpoint, cause: BlockedCause) -> tuple[Blocked, ...]:
    """Return the refused names that are there for this cause."""
    return tuple([each for each in blocked_globals(checkpoint) if each.cause is cause])


def _cause(first: GlobalName, in_modules: bool, for_device: bool) -> BlockedCause:
    module, name = modern(first.module, first.name)
    if is_dangerous(module, name):
        return BlockedCause.DANGEROUS
    if in_modules:
        return BlockedCause.MODULE
    if for_device:
        return BlockedCause.DEVICE
    if is_path(module, name):
        return BlockedCause.PATH
    top = package(module)
    if top == "numpy":
        return BlockedCause.NUMPY
    if top == "torch" or is_standard(module):
        return BlockedCause.OTHER
    return BlockedCause.FOREIGN


# the way from the root to a node as nested pairs (way to its parent, last step); a key path only where one is wanted
_Trail = Union[tuple[Any, Part], None]


def _uses(tree: Node, aliases: dict[str, str]) -> Iterator[tuple[str, BlockedPlace, bool]]:
    """Yield (name, place, inside an nn.Module) for every node that names one of ``aliases``, in file order."""
    stack: list[tuple[Node, _Trail, bool]] = [(tree, None, False)]
    while stack:
        node, trail, in_module = stack.pop()
        if isinstance(node, Opaque):
            in_module = in_module or is_module(node)
        full = aliases.get(_name(node))
        if full is not None:
            yield full, BlockedPlace(_path(trail), node), in_module
        if not isinstance(node, Tensor):
            below = [(child, (trail, part), in_module) for part, child in children_of(node) if _speaks(child, aliases)]
            stack.extend(reversed(below))


def _speaks(node: Node, aliases: dict[str, str]) -> bool:
    """Return whether a node may name something or hold one that does.

    State dicts, and most else in a checkpoint, do not.
    """
    if isinstance(node, Mapping):
        return node.kind in aliases or node.attributes is not None or any(_is_named(each) for _, each in node.entries)
    return _is_named(node)


def _is_named(node: Node) -> bool:
    if isinstance(node, Tensor):
        return node.subclass is not None
    return isinstance(node, (Mapping, Sequence, Opaque, Named))


def _name(node: Node) -> str:
    if isinstance(node, Opaque):
        return node.class_name
    if isinstance(node, (Mapping, Sequence)):
        return node.kind
    if isinstance(node, Named):
        return node.name
    return node.subclass or "" if isinstance(node, Tensor) else ""


def _path(trail: _Trail) -> KeyPath:
    parts: list[Part] = []
    while trail is not None:
        trail, part = trail
        parts.append(part)
    return tuple(reversed(parts))


def outermost(blocked: Iterable[Blocked]) -> list[BlockedPlace]:
    """Return the places of these names that are not inside another of their places, each once."""
    places = {place.path: place for each in blocked for place in each.places}
    return [place for path, place in places.items() if not _within(path, places)]


def _within(path: KeyPath, places: dict[KeyPath, BlockedPlace]) -> bool:
    return any(path[:end] in places for end in range(len(path)))
