"""MNIST from its four idx files, and the paper's step imbalance on it."""

from __future__ import annotations

import gzip
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ecrt.data.imbalance import step_imbalance
from ecrt.errors import InputError
from paper.data.cifar import ImageSplit
from paper.data.loaders import data_folder

__all__ = ["load_mnist", "read_idx"]

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
