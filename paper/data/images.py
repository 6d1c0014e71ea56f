"""CIFAR-100, from its binary files or from a sheet of images for each class and split, and MNIST, from its idx files.

Both with the imbalance protocols of the experiments.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ecrt.data import step_imbalance, thin_out
from ecrt.errors import InputError
from paper.data.loaders import data_folder

__all__ = [
    "CIFAR_PROTOCOLS",
    "N_CLASSES",
    "CifarProtocol",
    "ImageSplit",
    "load_cifar100",
    "load_mnist",
    "read_binary",
    "read_idx",
    "read_sheet",
]


@dataclass(frozen=True)
class ImageSplit:
    """A training and a test set of images (n, channels, height, width), a byte for each value."""

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]


# --- CIFAR-100 ----------------------------------------------------------------------------------------------------

SIDE = 32
N_CLASSES = 100
FIRST_MINORITY_CLASS = 50
BINARY = "cifar-100-binary"
"""Folder that the published archive unpacks to."""

CifarProtocol = Literal["500/50", "500/5", "exponential-100"]
CIFAR_PROTOCOLS: tuple[str, ...] = get_args(CifarProtocol)


def read_sheet(file: Path, side: int = SIDE) -> NDArray[np.uint8]:
    """The tiles of a sheet, row by row, as (n, 3, side, side)."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as sheet:
            pixels = np.asarray(sheet.convert("RGB"))
    except FileNotFoundError as error:
        raise InputError(f"{file} does not exist: one sheet is needed for every class, train_00 and so on.") from error
    except UnidentifiedImageError as error:
        raise InputError(f"{file} cannot be read as an image; Pillow needs WebP support for these sheets.") from error
    height, width = pixels.shape[:2]
    if height % side or width % side:
        raise InputError(f"{file} is {width} x {height} pixels, not a sheet of {side} x {side} tiles.")
    tiles = pixels.reshape(height // side, side, width // side, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, 3, side, side))


def read_binary(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and fine labels of train.bin or test.bin: a record is coarse label, fine label, and the bytes of an image.

    The binary form, since the one for Python is a pickle, which runs what it holds.
    """
    content = np.fromfile(file, dtype=np.uint8)
    length = 2 + 3 * SIDE**2
    if len(content) == 0 or len(content) % length:
        raise InputError(f"{file} has {len(content)} bytes, which is no whole number of records of {length} bytes.")
    records = content.reshape(-1, length)
    labels = records[:, 1].astype(np.int64)
    if labels.max() >= N_CLASSES:
        row = int(labels.argmax())
        raise InputError(f"{file}, record {row}: the label {labels[row]} is none of the {N_CLASSES} classes.")
    return records[:, 2:].reshape(-1, 3, SIDE, SIDE).copy(), labels


def load_cifar100(
    protocol: CifarProtocol = "500/50", *, seed: int = 0, path: str | Path | None = None, n_classes: int = N_CLASSES
) -> ImageSplit:
    """CIFAR-100 with an imbalanced training set and the official test set.

    Parameters
    ----------
    protocol : ``"500/50"`` and ``"500/5"`` keep all images of the first half of the classes and 50 or 5 of each of
        the others; ``"exponential-100"`` keeps 500 * 100^(-k / 99) of class k.
    seed : which images are kept; it is part of the protocol, and no other seed need change with it.
    path : folder that holds ``cifar100/``, with the published binary files or with sheets; by default the one named by
        ``ECRT_DATA``.
    n_classes : 100, or fewer for a trial run: so many of the majority and of the minority, half each.
    """
    if protocol not in CIFAR_PROTOCOLS:
        raise InputError(f"protocol={protocol!r}: choose one of {list(CIFAR_PROTOCOLS)}.")
    folder = data_folder(path) / "cifar100"
    chosen = [*range(n_classes // 2), *range(FIRST_MINORITY_CLASS, FIRST_MINORITY_CLASS + n_classes - n_classes // 2)]
    X_train, y_train = _read_classes(folder, "train", chosen)
    X_test, y_test = _read_classes(folder, "test", chosen)
    rows = _imbalanced_rows(y_train, protocol, np.random.default_rng(seed))
    return ImageSplit(X_train[rows], y_train[rows], X_test, y_test)


def _read_classes(folder: Path, split: str, chosen: list[int]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All images of a split, the classes one after another, with labels from 0 on."""
    binary = folder / BINARY / f"{split}.bin"
    if binary.is_file():
        images, labels = read_binary(binary)
        rows = [np.flatnonzero(labels == label) for label in chosen]
        return images[np.concatenate(rows)], np.repeat(np.arange(len(chosen)), [len(mine) for mine in rows])
    sheets = [read_sheet(folder / f"{split}_{label:02d}.webp") for label in chosen]
    return np.concatenate(sheets), np.repeat(np.arange(len(chosen)), [len(sheet) for sheet in sheets])


def _imbalanced_rows(y: NDArray[np.int64], protocol: CifarProtocol, rng: np.random.Generator) -> NDArray[np.int64]:
    counts = np.bincount(y)
    minority = range(len(counts) // 2, len(counts))
    if protocol != "exponential-100":
        return step_imbalance(y, minority, int(protocol.split("/")[1]), rng)
    shares = 100.0 ** (-np.arange(len(counts)) / (len(counts) - 1))
    # Not exponential_imbalance: it takes shares of what each class has, and sheets of the later classes hold less.
    sizes = np.maximum(1, np.floor(counts.max() * shares + 1e-9)).astype(int)
    short = np.flatnonzero(counts < sizes)
    if len(short):
        raise InputError(
            f"exponential-100 needs {sizes[short[0]]} images of class {short[0]}, but its sheet holds only "
            f"{counts[short[0]]}."
        )
    return thin_out(y, dict(enumerate(sizes.tolist())), rng)


# --- MNIST --------------------------------------------------------------------------------------------------------

MINORITY_SIZE = 1200
"""Images of a minority digit; the supplement's table of data sets says so."""

BYTES = 0x08
"""The type code of unsigned bytes, the only one these files have."""


def read_idx(file: Path) -> NDArray[np.uint8]:
    """An array from an idx file, gzipped or not: two zero bytes, a type, the number of axes, their sizes, the values.

    Sizes are big-endian.
    """
    if not file.is_file():
        raise InputError(f"{file} does not exist: MNIST is four files, such as train-images-idx3-ubyte.gz.")
    content = file.read_bytes()
    content = gzip.decompress(content) if file.suffix == ".gz" else content
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != BYTES:
        raise InputError(f"{file} is no idx file of bytes.")
    n_axes = content[3]
    start = 4 + 4 * n_axes
    shape = tuple(np.frombuffer(content, ">u4", n_axes, offset=4).tolist())
    if len(content) - start != int(np.prod(shape)):
        raise InputError(f"{file} should hold {' x '.join(map(str, shape))} values, but has {len(content) - start}.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()  # torch wants to own its memory


def load_mnist(
    minority: Collection[int] = (5, 6, 7, 8, 9),
    *,
    n_minority: int = MINORITY_SIZE,
    n_majority: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
) -> ImageSplit:
    """MNIST with few training images of some digits, and the official test images.

    Parameters
    ----------
    minority : digits cut to ``n_minority`` images each; none leaves the training set whole.
    n_majority : images of every other digit; ``None`` for all.
    seed : which images are kept; it is part of the protocol, and no other seed need change with it.
    path : folder that holds ``mnist/``; by default the one named by ``ECRT_DATA``.
    """
    unknown = sorted(set(minority) - set(range(10)))
    if unknown:
        raise InputError(f"minority names {unknown[0]!r}, which is no digit from 0 to 9.")
    folder = data_folder(path) / "mnist"
    arrays = [
        read_idx(folder / f"{part}-{kind}-ubyte.gz")
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    x_train, y_train, x_test, y_test = arrays[0], arrays[1].astype(np.int64), arrays[2], arrays[3].astype(np.int64)
    rng = np.random.default_rng(seed)
    rows = step_imbalance(y_train, minority, n_minority, rng)
    if n_majority is not None:
        rows = rows[step_imbalance(y_train[rows], sorted(set(range(10)) - set(minority)), n_majority, rng)]
    return ImageSplit(x_train[rows][:, None], y_train[rows], x_test[:, None], y_test)
