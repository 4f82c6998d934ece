"""Files as they are published, made by hand: IDX, CIFAR-10 records, and archives of them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile

import torch

CIFAR_FILES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def idx(tensor, magic=None):
    """A tensor of bytes in the IDX format."""
    start = bytes([0, 0, 8, tensor.dim()]) if magic is None else magic
    return start + struct.pack(f">{tensor.dim()}I", *tensor.shape) + bytes(tensor.flatten().tolist())


def digits(count, seed=0):
    """Images (count, 28, 28) and labels of ten classes, both bytes."""
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 28, 28), generator=random, dtype=torch.uint8)
    return images, torch.randint(0, 10, (count,), generator=random, dtype=torch.uint8)


def write_idx_set(folder, train=12, test=5, *, suffix="", pack=bytes, old=False):
    """The four files of MNIST, in one of their spellings; gives back what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, count, seed in (("train", train, 1), ("t10k", test, 2)):
        images, labels = digits(count, seed)
        for kind, tensor in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            spelling = f"{name}-{kind}".replace("-idx", ".idx") if old else f"{name}-{kind}"
            (folder / (spelling + suffix)).write_bytes(pack(idx(tensor)))
        made.append((images, labels))
    return made


def photographs(count, seed=0):
    """Images (count, 3, 32, 32) and labels of ten classes, both bytes."""
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 32, 32), generator=random, dtype=torch.uint8)
    return images, torch.randint(0, 10, (count,), generator=random, dtype=torch.uint8)


def cifar(images, labels):
    """Records of CIFAR-10: a label, then red, green and blue."""
    pairs = zip(images, labels, strict=True)
    return b"".join(bytes([int(label)]) + bytes(image.flatten().tolist()) for image, label in pairs)


def cifar_set(each=3):
    """The contents of every file of the binary version, by name, and what they hold."""
    made = {name: photographs(each, seed) for seed, name in enumerate(CIFAR_FILES)}
    contents = {name: cifar(*pair) for name, pair in made.items()}
    contents["batches.meta.txt"] = ("\n".join(CIFAR_NAMES) + "\n\n").encode()
    return contents, made


def archive(contents, pack=lambda tar: gzip.compress(tar, mtime=0), root="cifar-10-batches-bin"):
    """A tar archive of files, gzip unless told otherwise, with a folder and a read-me as in the real one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo(root)
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in {"readme.html": b"<html>", **contents}.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return pack(buffer.getvalue())
