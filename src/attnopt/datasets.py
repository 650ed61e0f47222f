"""Load Fashion-MNIST from a folder, the user's cache, Debian's package, or the dataset's own servers, and verify it.

Every file is checked against a pinned SHA-256 hash whenever it is read, wherever it comes from. Downloads go into the
user's cache, or into the folder named by the environment variable ``ATTNOPT_DATA``.
"""

import gzip
import hashlib
import math
import os
import zlib
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pooch
import torch
from filelock import FileLock
from torch import Tensor

Split = Literal["train", "test"]

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class Published(NamedTuple):
    """Shape and hashes of one of the dataset's files.

    Debian ships the publisher's compressed streams with other gzip headers (no name, another time), so the archives
    differ, but their contents do not. The contents' hash is checked on every load, the archive's hash on a download.
    """

    shape: tuple[int, ...]
    contents: str  # SHA-256 of the decompressed bytes
    archive: str  # SHA-256 of the .gz file as published


FILES = {
    "train-images-idx3-ubyte.gz": Published(
        (60000, 28, 28),
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    "train-labels-idx1-ubyte.gz": Published(
        (60000,),
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    "t10k-images-idx3-ubyte.gz": Published(
        (10000, 28, 28),
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    "t10k-labels-idx1-ubyte.gz": Published(
        (10000,),
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
PREFIX = {"train": "train", "test": "t10k"}
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
MIRRORS = (
    "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
SAMPLE = Path(__file__).with_name("data") / "fashion_mnist_sample.npz"


def fashion_mnist(split: Split, folder: str | os.PathLike[str] | None = None) -> tuple[Tensor, Tensor]:
    """Images and labels of Fashion-MNIST, in the published order.

    Looks in the user's cache, then in the folder of Debian's package ``dataset-fashion-mnist``; files that are in neither
    are downloaded into the cache.

    Args:
        split: "train" (60,000 images, 6,000 per class) or "test" (10,000 images, 1,000 per class).
        folder: the only folder to search instead; it must hold the two files of the split, under their published names.

    Returns:
        Gray levels from 0 to 255, torch.uint8 of shape (n, 28, 28); labels, torch.int64 of shape (n,), that index
        `CLASSES`.

    Raises:
        ValueError: if a file differs from the published one; such a file is not used.
        FileNotFoundError: if ``folder`` is given and lacks a file.
        RuntimeError: if a file is not found on this machine and cannot be downloaded.

    Source: Xiao, Rasul, Vollgraf (2017).
    """
    if split not in get_args(Split):
        raise ValueError(f'split must be "train" or "test", got {split!r}')
    images, labels = (
        parse_idx(_contents(_locate(name, folder) or _download(name)), FILES[name].shape)
        for name in (f"{PREFIX[split]}-images-idx3-ubyte.gz", f"{PREFIX[split]}-labels-idx1-ubyte.gz")
    )
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def fashion_mnist_sample() -> tuple[Tensor, Tensor]:
    """The first 40 images of each class of Fashion-MNIST's test file, in the file's order; they come with the package.

    Returns:
        Gray levels, torch.uint8 of shape (400, 28, 28); labels, torch.int64 of shape (400,), that index `CLASSES`.

    Source: Xiao, Rasul, Vollgraf (2017).
    """
    with np.load(SAMPLE, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"].astype(np.int64))


def missing() -> list[str]:
    """Names of the dataset's files that `fashion_mnist` would have to download."""
    return [name for name in FILES if _locate(name) is None]


def parse_idx(contents: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """The array of unsigned bytes in a file of the IDX format.

    Args:
        contents: the whole file, decompressed: a magic number, the dimensions, the bytes in C order.
        shape: the dimensions that the file must have.

    Returns:
        A new array, uint8, of that shape.

    Source: the header of MNIST's files, LeCun, Cortes, Burges (1998).
    """
    start = 4 * (1 + len(shape))
    magic, *dimensions = (int.from_bytes(contents[at : at + 4], "big") for at in range(0, start, 4))
    if magic != 0x0800 + len(shape):  # 8: unsigned bytes
        raise ValueError(f"an IDX file of shape {shape} has the magic number {0x0800 + len(shape):#06x}, got {magic:#06x}")
    if tuple(dimensions) != shape:
        raise ValueError(f"the IDX file must have shape {shape}, got {tuple(dimensions)}")
    if len(contents) != start + math.prod(shape):
        raise ValueError(f"an IDX file of shape {shape} has {start + math.prod(shape)} bytes, got {len(contents)}")
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape).copy()


def _cache() -> Path:
    """The folder for downloads."""
    return Path(os.environ.get("ATTNOPT_DATA") or pooch.os_cache("attnopt")).expanduser() / "fashion-mnist"


def _locate(name: str, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The path of a file: in ``folder``, if given, or else in the cache or Debian's folder (None if in neither)."""
    if folder is None:
        return next((place / name for place in (_cache(), DEBIAN) if (place / name).is_file()), None)
    if not (Path(folder) / name).is_file():
        raise FileNotFoundError(f"the folder {str(folder)!r} has no file {name}, which Fashion-MNIST needs")
    return Path(folder) / name


def _contents(path: Path) -> bytes:
    """The decompressed bytes of one of the dataset's files, if they are the published ones."""
    archive, contents, expected = path.read_bytes(), b"", FILES[path.name].contents
    try:
        contents = gzip.decompress(archive)
        found = hashlib.sha256(contents).hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        found = f"none that can be read ({error}; the file itself has {hashlib.sha256(archive).hexdigest()})"
    if found != expected:
        raise ValueError(
            f"{path} is damaged or not Fashion-MNIST's, and was not used: its decompressed bytes must have the SHA-256 "
            f"{expected}, found {found}. Delete the file and call again; if it is Debian's, reinstall the package "
            "dataset-fashion-mnist."
        )
    return contents


def _download(name: str) -> Path:
    """Fetch a file into the cache; pooch keeps it only if it is complete and its hash is right."""
    folder, fetch = _cache(), pooch.HTTPDownloader(progressbar=True, timeout=30)
    reason: Exception | None = None
    for mirror in MIRRORS:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "download.lock"):  # a second caller waits, and then finds the file
                # pyrefly: ignore[bad-argument-type]  # pooch's own class takes keywords that its protocol does not name
                return Path(pooch.retrieve(mirror + name, FILES[name].archive, name, folder, downloader=fetch))
        except (OSError, ValueError) as error:  # network or disk errors, or a wrong hash
            reason = error
    raise RuntimeError(
        f"Fashion-MNIST's {name} is not on this machine and could not be downloaded to {folder} ({reason}). Install "
        f"Debian's package dataset-fashion-mnist, or name a folder that holds {', '.join(FILES)}, or go online and call "
        "again."
    ) from reason


if __name__ == "__main__":
    try:
        for part in get_args(Split):
            fashion_mnist(part)
    except (ValueError, RuntimeError) as fault:
        raise SystemExit(str(fault)) from None
