"""The examples of rules share shards with their index, and files of one tensor that wraps others."""

from __future__ import annotations

from ckptdoctor.rules.examples import T

ONE: dict[str, object] = {"a.weight": T((2, 2)), "a.bias": T((2,))}
TWO: dict[str, object] = {"b.weight": T((2, 2)), "b.bias": T((2,))}
INDEX = "model.safetensors.index.json"


def shard(number: int, of: int = 2) -> str:
    """Return the name of one of so many shards."""
    return f"model-{number:05}-of-{of:05}.safetensors"


def index_file(total: int = 48, of: int = 2, **files: str) -> dict[str, object]:
    """Return an index: what is in ONE in the first shard, what is in TWO in the second, except as ``files`` says."""
    table = dict.fromkeys(ONE, shard(1, of)) | dict.fromkeys(TWO, shard(2, of))
    table |= {key.replace("_", "."): file for key, file in files.items()}
    return {"metadata": {"total_size": total}, "weight_map": table}


def wrapped_tensor(module: str, name: str, local: int | None = None, whole: int = 4) -> bytes:
    """Return a state dict with a tensor of ``whole`` elements of a class.

    ``local`` are those of the tensor in it (None: none).

    Only what is read of it is there: nothing loads it.
    """
    state = b"}" if local is None else b"}X\x0d\x00\x00\x00_local_tensor" + _plain(local) + b"s"
    made = (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n"
        + f"c{module}\n{name}\n(c{module}\n{name}\nctorch\nfloat32\n".encode()
        + _sizes(whole)
        + b"K\x01\x85K\x00ctorch.serialization\n_get_layout\nX\x0d\x00\x00\x00torch.strided\x85R"
        + b"ctorch\ndevice\nX\x03\x00\x00\x00cpu\x85R\x89t"
        + state
        + b"tR"
    )
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}X\x01\x00\x00\x00w" + made + b"s.")
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", bytes(4 * (local or 0)))
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


def _sizes(size: int) -> bytes:
    return b"ctorch\nSize\nK" + bytes([size]) + b"\x85\x85R"


def _plain(size: int) -> bytes:
    """Return a tensor of float32 whose storage is called 0."""
    count = b"K" + bytes([size])
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + count + b"tQ"
    grads = b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + count + b"\x85K\x01\x85" + grads + b"tR"
