"""Makes tensors of torch: what ``torch.load`` would give, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.tensors import TensorMaker, damaged, judged
from ckptdoctor.wording import count

if TYPE_CHECKING:
    import torch

    from ckptdoctor.loading.storages import StorageReader


class TorchTensors(TensorMaker):
    """``framework="pt"``. Tensors that share memory share a storage, and are saved as such again."""

    def __init__(self, storages: StorageReader) -> None:
        super().__init__(storages)
        self._made: dict[int, tuple[memoryview, torch.UntypedStorage]] = {}  # kept with their bytes, so ids are theirs

    def _dressed(self, tensor: Tensor, made: torch.Tensor) -> torch.Tensor:
        import torch

        details = dict(tensor.details)
        if details.get("conj"):
            made = made.conj()
        if details.get("neg"):
            made = torch._neg_view(made)
        if tensor.is_parameter:
            return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        if tensor.requires_grad:
            made.requires_grad_(True)
        return made

    def _strided(self, tensor: Tensor) -> torch.Tensor:
        import torch

        return self._view(tensor, torch.empty(0, dtype=_dtype(tensor)))

    def _view(self, tensor: Tensor, made: torch.Tensor) -> torch.Tensor:
        """Return ``made``, which has no elements yet, as the view of its storage."""
        storage = self._storage(self._bytes(tensor))
        with judged(tensor):
            return made.set_(storage, tensor.offset, tensor.shape, tensor.stride)

    def _storage(self, data: memoryview) -> torch.UntypedStorage:
        import torch

        if id(data) not in self._made:
            made = torch.frombuffer(data, dtype=torch.uint8).untyped_storage() if data else torch.UntypedStorage(0)
            self._made[id(data)] = data, made
        return self._made[id(data)][1]

    def _empty(self, tensor: Tensor) -> torch.Tensor:
        import torch

        dtype = _dtype(tensor)
        with judged(tensor):
            return torch.empty(tensor.shape, dtype=dtype)

    def _copy(self, place: torch.Tensor, piece: torch.Tensor) -> None:
        place.copy_(piece.detach())

    def _meta(self, tensor: Tensor) -> torch.Tensor:
        """Leave a tensor that was saved without values as it is."""
        import torch

        dtype = _dtype(tensor)
        with judged(tensor):
            return torch.empty_strided(tensor.shape, tensor.stride, dtype=dtype, device="meta")

    def _sparse(self, tensor: Tensor) -> torch.Tensor | Inert:
        import torch

        parts: list[Any] = [self.make(part) for part in tensor.parts]
        is_coo = tensor.layout == "sparse_coo"
        if len(parts) != (2 if is_coo else 3) or any(isinstance(part, Inert) for part in parts):
            return self._inert(tensor)
        coalesced = dict(tensor.details).get("coalesced")
        known = None if coalesced is None else bool(coalesced)
        with judged(tensor):
            if is_coo:
                indices, values = parts
                return torch.sparse_coo_tensor(indices, values, tensor.shape, is_coalesced=known, check_invariants=True)
            outer, inner, values = parts
            layout = getattr(torch, tensor.layout)
            return torch.sparse_compressed_tensor(
                outer, inner, values, tensor.shape, layout=layout, check_invariants=True
            )

    def _quantized(self, tensor: Tensor) -> torch.Tensor | Inert:
        import torch

        details: dict[str, Any] = dict(tensor.details)
        if tensor.storage is None or "scheme" not in details:
            return self._inert(tensor)
        dtype = _dtype(tensor)
        parts: list[Any] = [self.make(part) for part in tensor.parts]
        with judged(tensor):
            # without elements, so that no memory is taken for a shape before the storage is known to have it
            if details["scheme"] == "per_tensor_affine":
                scale, zero_point = details["scale"], details["zero_point"]
                made = torch._empty_affine_quantized((0,), scale=scale, zero_point=zero_point, dtype=dtype)
            elif len(parts) == 2 and not any(isinstance(part, Inert) for part in parts):
                axis = details["axis"]
                if not 0 <= axis < len(tensor.shape) or {part.numel() for part in parts} != {tensor.shape[axis]}:
                    # torch makes such a tensor, and reads beside its scales
                    raise damaged(tensor, f"cannot be a tensor: its scales do not fit axis {count(axis)} of its shape")
                empty = [size if index == axis else 0 for index, size in enumerate(tensor.shape)]
                made = torch._empty_per_channel_affine_quantized(
                    empty, scales=parts[0], zero_points=parts[1], axis=axis, dtype=dtype
                )
            else:
                return self._inert(tensor)
        return self._view(tensor, made)

    def size(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Return a torch.Size."""
        import torch

        return torch.Size(sizes)

    def dtype(self, name: str) -> Any:
        """Return the dtype itself, where this torch has it."""
        import torch

        return getattr(torch, name, None) or Inert(f"torch.{name}")

    def device(self, name: str) -> Any:
        """Return the device itself."""
        import torch

        return torch.device(name)


def _dtype(tensor: Tensor) -> torch.dtype:
    """Return torch's dtype of this name. Raises DamagedError where this torch has none."""
    import torch

    made = getattr(torch, tensor.dtype.name, None)
    if not isinstance(made, torch.dtype):
        raise damaged(
            tensor,
            f"has the dtype {tensor.dtype.name}, which torch {torch.__version__} lacks; a newer torch may load it.",
        )
    return made
