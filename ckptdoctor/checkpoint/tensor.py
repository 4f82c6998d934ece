"""Defines tensors as the checkpoint describes them, without their values, and the storages that they view."""

from __future__ import annotations

from math import prod

from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.noun import field, noun


@noun
class Extent:
    """``length`` bytes at ``offset`` of the file ``file``."""

    file: str
    offset: int
    length: int


@noun
class Storage:
    """A run of bytes that one or more tensors view.

    ``nbytes`` is the length that the checkpoint declares; ``extent`` says where the bytes really are
    (None: they are not in the file; ``extent.length != nbytes``: the record has another length).
    ``crc32`` is the stored checksum, None where the container has none or did not compute it.
    ``compressed`` is true for a deflated zip record: the extent then covers the compressed bytes.
    """

    key: str
    nbytes: int
    dtype: DType | None
    device: str
    extent: Extent | None
    crc32: int | None = None
    compressed: bool = False


# the key of a storage, and the form in which it is seen
ViewId = tuple[str, int, tuple[int, ...], tuple[int, ...], str]


@noun
class Tensor:
    """One tensor: a view (``shape``, ``stride``, ``offset`` in elements) of a storage.

    ``rebuild`` names what makes it when loaded (``torch._utils._rebuild_tensor_v2``, ``safetensors``).
    ``layout`` is "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged" or "mkldnn";
    other layouts, quantized tensors and tensor subclasses hold their inner tensors in ``parts``.
    ``details`` are the plain facts next to the view: ``scheme`` ("per_tensor_affine", …), ``scale``, ``zero_point``
    and ``axis`` of a quantized tensor, ``coalesced`` of a sparse one, ``conj`` and ``neg`` bits.
    ``storage`` is None where there are no bytes of its own: meta tensors, and tensors made of ``parts``.
    ``values`` are the elements, laid out as ``stride`` says, where they are in the pickle instead of in a storage;
    tensors that share them hold one and the same object.
    ``chunks`` are the pieces of a tensor that was saved in several: where each begins in the whole (an index for each
    dimension), and the tensor that holds its elements. Together they cover the whole, or a note says that they do not.
    ``origin`` is the tensor of the file that edits made this one of: see ``checkpoint.changed_trees.derived``.
    """

    path: KeyPath
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage: Storage | None
    offset: int = 0
    device: str = "cpu"
    requires_grad: bool = False
    is_parameter: bool = False
    rebuild: str = "safetensors"
    layout: str = "strided"
    subclass: str | None = None
    parts: tuple[Tensor, ...] = ()
    details: tuple[tuple[str, bool | int | float | str], ...] = ()
    values: memoryview | None = field(default=None, repr=False)
    chunks: tuple[tuple[tuple[int, ...], Tensor], ...] = ()
    origin: Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take when stored without gaps, those of the parts included."""
        own = (prod(self.shape) * self.dtype.bits + 7) // 8
        if not self.parts:
            return own
        inner = sum(part.nbytes for part in self.parts)
        return inner if self.storage is None else inner + own

    @property
    def form(self) -> tuple[int, tuple[int, ...], tuple[int, ...], str]:
        """How it shows its storage: the same for two that see two equal storages alike."""
        return self.offset, self.shape, self.stride, self.dtype.name

    @property
    def view_id(self) -> ViewId | None:
        """The same for tensors that are one memory and see it alike, and for no others; None without a storage."""
        if self.storage is None:
            return None
        return self.storage.key, self.offset, self.shape, self.stride, self.dtype.name

    @property
    def place_id(self) -> tuple[str, int, tuple[int, ...], tuple[int, ...]] | None:
        """The same for tensors that see the same elements of one storage, whatever type they take them for."""
        if self.storage is None:
            return None
        return self.storage.key, self.offset, self.shape, self.stride

    @property
    def moved(self) -> bool:
        """Whether loading makes it on another device than the one its values are stored for: XLA has no storages."""
        if self.storage is not None:
            return self.device != self.storage.device
        if self.values is not None:
            return self.device != "cpu"
        if self.subclass is not None or self.device == "meta":  # what a wrapper of tensors says of itself moves nothing
            return False
        if self.chunks:  # saved from wherever each piece was, and assembled on the CPU
            return False
        return self.device != self.parts[0].device if self.parts else True

    @property
    def key(self) -> str:
        """The last step of the path as text: the key in its state dict."""
        return str(self.path[-1]) if self.path else ""


def same_facts(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same except for their paths, storages, parts, chunks and origins.

    Spelt out field by field, for this is asked of every tensor of a file: fetching them by their names takes four times
    as long.
    """
    return (
        (one.dtype is other.dtype or one.dtype == other.dtype)  # as a rule there is one object for all
        and one.shape == other.shape
        and one.stride == other.stride
        and one.offset == other.offset
        and one.device == other.device
        and one.requires_grad == other.requires_grad
        and one.is_parameter == other.is_parameter
        and one.rebuild == other.rebuild
        and one.layout == other.layout
        and one.subclass == other.subclass
        and one.details == other.details
        and (one.values is other.values or one.values == other.values)
    )


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous tensor of this shape (as ``torch.empty(shape).stride()``)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(tensor: Tensor) -> bool:
    """Return whether the elements are in C order without gaps; dimensions of size 1 and empty tensors do not matter."""
    if tensor.layout != "strided" or 0 in tensor.shape:
        return True
    wanted = contiguous_stride(tensor.shape)
    return all(size == 1 or have == want for size, have, want in zip(tensor.shape, tensor.stride, wanted, strict=True))


def storage_span(tensor: Tensor) -> tuple[int, int]:
    """Return the first element and one past the last element of its storage that the view touches.

    It is (offset, offset) when the view is empty.
    """
    if 0 in tensor.shape:
        return tensor.offset, tensor.offset
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.offset, last + 1


def byte_span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte and one past the last byte of its storage that the view touches."""
    bits = tensor.dtype.bits
    last = tensor.offset
    for size, step in zip(tensor.shape, tensor.stride, strict=True):  # storage_span, for tens of thousands of tensors
        if not size:
            last = tensor.offset - 1
            break
        last += (size - 1) * step
    return tensor.offset * bits // 8, ((last + 1) * bits + 7) // 8


def shared_view(tensor: Tensor) -> ViewId | None:
    """Return ``view_id``.

    It is None where there are no elements that two could share, or where they are those of parts.
    """
    return None if not tensor.numel or tensor.parts else tensor.view_id


def same_checksums(one: Tensor, other: Tensor) -> bool | None:
    """Return whether two tensors that fill storages of their own have the same bytes, by length and stored checksum."""
    first, second = one.storage, other.storage
    if first is None or second is None or first.crc32 is None or second.crc32 is None:
        return None
    if one.stride != other.stride or not (_fills(one) and _fills(other)):
        return None
    return first.nbytes == second.nbytes and first.crc32 == second.crc32


def _fills(tensor: Tensor) -> bool:
    return tensor.storage is not None and tensor.offset == 0 and tensor.nbytes == tensor.storage.nbytes
