"""Looks up storages as persistent ids name them: in the container, once each, and compares the ids with each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, Union

from ckptdoctor.checkpoint import DType, Note, NoteKind, Storage
from ckptdoctor.checkpoint.dtypes import BY_STORAGE_CLASS
from ckptdoctor.formats.torch.read.values import bare, full_name, integer, items, text
from ckptdoctor.noun import noun, replace
from ckptdoctor.pickles.graph import FoldedTensor, Form, Global, PersistentId, String, Tuple, Value
from ckptdoctor.wording import plural

# torch counts bytes of storages and offsets of tensors in 64-bit signed integers
MAX_COUNT = (1 << 63) - 1

# fewer elements than this have fewer bytes than 64 bits count, whatever their dtype
_USUAL_COUNT = 1 << 58

_UNTYPED = "UntypedStorage"

ZIP_ID = 5  # ('storage', class, key, location, numel)
LEGACY_ID = 6  # and (key, offset, size) of a view, or None


class StorageTable(Protocol):
    """The storages of one container.

    ``id_parts`` is how many parts torch takes a persistent id in it apart into: see ``ZIP_ID`` and ``LEGACY_ID``.
    """

    id_parts: int

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """Return the storage that the pickle names ``key``; asked once for each.

        ``nbytes`` is what the pickle declares.
        """


@noun(frozen=False)
class Claim:
    """What one persistent id says of a storage. ``dtype`` is None for untyped ones, whose ``numel`` counts bytes.

    ``view`` is (key, offset, size) of a legacy view of the storage, in elements.
    """

    key: str
    class_name: str
    dtype: DType | None
    device: str
    numel: int
    view: tuple[str, int, int] | None = None

    @property
    def itemsize(self) -> int:
        """Bytes that one element takes in the storage; torch counts packed quantized dtypes by byte."""
        return 1 if self.dtype is None else max(1, self.dtype.bits // 8)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole storage."""
        return self.numel * self.itemsize


class Known(NamedTuple):
    """A storage that was looked up, and the first claim about it.

    Of a legacy view, ``shift`` is the element that it begins at, and ``length`` how many it has.
    """

    storage: Storage
    claim: Claim
    shift: int = 0
    length: int | None = None


def claim_of(reference: Union[PersistentId, FoldedTensor]) -> Claim | None:
    """Return the storage that ``('storage', class, key, location, numel[, view])`` names.

    It is None when it names none.
    """
    if isinstance(reference, FoldedTensor):
        return _claim_in(reference)
    parts = items(reference.id)
    if parts is None or len(parts) not in (5, 6) or text(parts[0]) != "storage":
        return None
    class_name, key, device, numel = full_name(parts[1]), storage_key(parts[2]), text(parts[3]), integer(parts[4])
    if class_name is None or key is None or device is None or numel is None:
        return None
    kind = class_name.rpartition(".")[2]
    dtype = BY_STORAGE_CLASS.get(kind)
    if dtype is None and kind != _UNTYPED:
        return None
    view = _view(parts[5]) if len(parts) == 6 else None
    claim = Claim(key, class_name, dtype, device, numel, view)
    return claim if numel >= 0 and claim.nbytes <= MAX_COUNT else None


def _claim_in(folded: FoldedTensor) -> Claim | None:
    """Return the same of a folded tensor, which is opened only if it is unusual."""
    form = folded.form
    kind, tag, device = form.kind, form.tag, form.location
    if type(kind) is Global and type(tag) is String and tag.value == "storage" and device is not None:
        class_name = kind.full
        dtype = BY_STORAGE_CLASS.get(class_name.rpartition(".")[2])
        if dtype is not None and 0 <= form.numel < _USUAL_COUNT:
            return Claim(folded.key, class_name, dtype, device, form.numel)
    return claim_of(reference_in(folded))


def reference_in(folded: FoldedTensor) -> PersistentId:
    """Return the reference to its storage that a folded tensor holds; it is opened."""
    arguments = folded.open()[1]
    assert isinstance(arguments, Tuple)
    reference = arguments.items[0]
    assert isinstance(reference, PersistentId)
    return reference


def storage_key(value: Value) -> str | None:
    """Return the key of a storage as text.

    It is None for anything that is not a key, such as a bytes object of Python 3.
    """
    key = bare(value)
    if isinstance(key, String) and isinstance(key.value, bytes):
        return None
    number = integer(value)  # files of torch before 0.4 number their storages with integers
    return text(value) if number is None else hex(number)[2:] if number.bit_length() > 64 else str(number)


def _view(value: Value) -> tuple[str, int, int] | None:
    parts = items(value)
    if parts is None or len(parts) != 3:
        return None
    key, offset, size = storage_key(parts[0]), integer(parts[1]), integer(parts[2])
    if key is None or offset is None or size is None or not 0 <= offset <= MAX_COUNT or not 0 <= size <= MAX_COUNT:
        return None
    return key, offset, size


class Registry:
    """Every storage that was met so far, in order; ``notes`` tells of claims that contradict each other."""

    def __init__(self, table: StorageTable, member: str) -> None:
        self._table = table
        self._member = member
        self._storages: dict[str, Storage] = {}
        # the first claim about each; of folded tensors that which all of their form make, which has no key
        self._claims: dict[str, Claim] = {}
        self._classes: dict[int, tuple[str, DType]] = {}  # by id of the Global node
        # what tensors of a form claim of their storages, but for the key, and its bytes; forms are one by identity
        self._forms: dict[Form, tuple[Claim, int] | tuple[()]] = {}
        self._views: dict[str, tuple[str, int, int]] = {}  # of legacy files: key → storage, offset, size
        self._contradicted: set[str] = set()
        self.notes: list[Note] = []

    @property
    def names_modules(self) -> bool:
        """Whether persistent ids may name classes of modules with their source: only torch's first format has those."""
        return self._table.id_parts == LEGACY_ID

    @property
    def storages(self) -> tuple[Storage, ...]:
        """All storages, in the order in which they were met."""
        return tuple(self._storages.values())

    def complete(self, references: Iterable[Union[PersistentId, FoldedTensor]]) -> None:
        """Look up what was passed over, and put all storages into the order of ``references``, that of the stream."""
        order: dict[str, int] = {}
        for reference in references:
            if isinstance(reference, FoldedTensor):
                if self.folded(reference) is not None:
                    order.setdefault(reference.key, len(order))
                    continue
                reference = reference_in(reference)
            known = self.get(reference)
            if known is not None:
                order.setdefault(known.claim.key, len(order))
        if list(order) != list(self._storages):
            self._storages = dict(sorted(self._storages.items(), key=lambda item: order.get(item[0], len(order))))

    def get(self, reference: Value, dtype: DType | None = None) -> Known | None:
        """Return the storage that a persistent id names, as torch takes it: by the first claim about its key.

        ``dtype`` is that of the tensor for which an untyped storage is wanted. None: it names no storage.
        """
        known = self._usual(reference)
        if known is not None:
            return known
        reference = bare(reference)
        if type(reference) is not PersistentId:
            return None
        claim = claim_of(reference)
        if claim is None or not self._is_whole(reference, claim):
            return None
        storage = self._storages.get(claim.key)
        if storage is not None:
            known = Known(storage, replace(self._claims[claim.key], key=claim.key))
            if known.claim != claim and _disagree(known.claim, claim):
                self._contradict(known.claim, claim)
        else:
            known = self._looked_up(claim, dtype)
        return known if claim.view is None else self._viewed(known, claim.view)

    def _is_whole(self, reference: PersistentId, claim: Claim) -> bool:
        """Return whether torch can take the persistent id apart: it wants as many parts as its format has."""
        parts = items(reference.id) or []
        if len(parts) != self._table.id_parts:
            return False
        return len(parts) == ZIP_ID or claim.view is not None or bare(parts[5]) is None

    def _viewed(self, known: Known, view: tuple[str, int, int]) -> Known:
        """Return a view of a storage.

        torch keeps views and storages in one table, and goes by the first of each key.
        """
        key, offset, size = view
        mine = known.claim.key, offset, size
        if self._views.setdefault(key, mine) != mine or key in self._storages:
            self._note_once(key, f"the view {key} of a storage is described twice in different ways")
        return Known(known.storage, known.claim, offset, max(0, min(size, known.claim.numel - offset)))

    def _looked_up(self, claim: Claim, dtype: DType | None) -> Known:
        declared = claim.dtype if claim.dtype is not None else dtype
        nbytes = claim.numel * (1 if claim.dtype is None else claim.dtype.bits >> 3 or 1)
        storage = self._storages[claim.key] = self._table.find(claim.key, declared, claim.device, nbytes)
        self._claims[claim.key] = claim
        if claim.key in self._views:
            self._note_once(claim.key, f"storage {claim.key} and a view of another one have the same key")
        return Known(storage, claim)

    def _usual(self, reference: Value) -> Known | None:
        """Return the same for a typed storage that no view shares with another: nearly every one. None: look closer."""
        if type(reference) is not PersistentId or type(reference.id) is not Tuple:
            return None
        parts = reference.id.items
        if len(parts) != self._table.id_parts or (len(parts) == LEGACY_ID and parts[5] is not None):
            return None
        tag, kind, key, location, numel = parts[:5]
        known_class = self._classes.get(id(kind)) if type(kind) is Global else None
        if known_class is None:
            known_class = self._class(kind)
        if (
            known_class is None
            or type(tag) is not String
            or tag.value != "storage"
            or type(key) is not String
            or type(location) is not String
            or type(numel) is not int
            or not 0 <= numel < _USUAL_COUNT
            or key.value in self._storages
            or type(key.value) is not str
            or type(location.value) is not str
        ):
            return None
        return self._looked_up(Claim(key.value, known_class[0], known_class[1], location.value, numel), None)

    def folded(self, call: FoldedTensor) -> tuple[Storage, Claim] | None:
        """Return the storage of a folded tensor, and what is claimed of it except for the key. None: look closer."""
        form = call.form
        usual = self._forms.get(form)
        if usual is None:
            usual = self._forms[form] = self._usual_form(form)
        if not usual:
            return None
        like, nbytes = usual
        storage = self.claimed(call.key, like, nbytes)
        return None if storage is None else (storage, like)

    def claimed(self, key: str, like: Claim, nbytes: int) -> Storage | None:
        """Return the storage of a folded tensor, which claims what ``like`` does, ``nbytes``. None: look closer."""
        storage = self._storages.get(key)
        if storage is None:
            storage = self._storages[key] = self._table.find(key, like.dtype, like.device, nbytes)
            self._claims[key] = like
            return storage
        claim = self._claims[key]
        return storage if claim is like or replace(claim, key="") == replace(like, key="") else None

    def _usual_form(self, form: Form) -> tuple[Claim, int] | tuple[()]:
        """Return what ``_forms`` has of tensors of this form; nothing where it takes a closer look."""
        if self._table.id_parts != ZIP_ID:
            return ()
        kind, tag = form.kind, form.tag
        known_class = self._classes.get(id(kind)) or self._class(kind)
        if (
            known_class is None
            or type(tag) is not String
            or tag.value != "storage"
            or form.location is None
            or not 0 <= form.numel < _USUAL_COUNT
        ):
            return ()
        class_name, dtype = known_class
        like = Claim("", class_name, dtype, form.location, form.numel)
        return like, like.nbytes

    def _class(self, kind: Value) -> tuple[str, DType] | None:
        """Name and dtype of a typed storage class, remembered by its node."""
        name = full_name(kind)
        dtype = BY_STORAGE_CLASS.get(name.rpartition(".")[2]) if name is not None else None
        if name is None or dtype is None or type(kind) is not Global:
            return None
        self._classes[id(kind)] = name, dtype
        return name, dtype

    def _contradict(self, first: Claim, other: Claim) -> None:
        told = f"{_shown(first)}, and {_shown(other)}"
        self._note_once(first.key, f"storage {first.key} is described twice in different ways: {told}")

    def _note_once(self, key: str, message: str) -> None:
        if key not in self._contradicted:
            self._contradicted.add(key)
            self.notes.append(Note(NoteKind.TENSOR_ODD, f"{message}; torch uses the first", self._member))


def _disagree(first: Claim, other: Claim) -> bool:
    return (first.dtype, first.device, first.numel) != (other.dtype, other.device, other.numel)


def _shown(claim: Claim) -> str:
    return f"{plural(claim.numel, 'element')} of {claim.class_name} on {claim.device}"
