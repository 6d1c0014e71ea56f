"""Data from files: CSV, Parquet, JSON lines, NPZ, and folders of images named by class."""

from __future__ import annotations

import csv
import difflib
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ecrt.data.layouts import PICTURES, pictures_below, split_folders
from ecrt.errors import InputError

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["LABEL_SEPARATOR", "DataFile", "Images", "open_image", "read_data"]

Labels = NDArray[Any]

ABSENT = ["?", "<null>"]
"""Signs for a missing value, beside those that pandas knows."""

LABEL_SEPARATOR = ";"
"""Between the labels of a row, where they are one text."""

KINDS = "CSV or TSV (.csv, .tsv, .txt), Parquet (.parquet), JSON lines (.jsonl), NumPy (.npz) and folders of images"


class Images(Dataset[Any]):
    """Images in memory, a byte for each value, given out as numbers from -1 to 1.

    Parameters
    ----------
    values : of shape (n, 3, size, size).
    labels : class names; without them items are images alone.
    """

    def __init__(self, values: NDArray[np.uint8], labels: Labels | None = None) -> None:
        self.values, self.labels = values, labels

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Tensor | tuple[Tensor, str]:
        image = torch.from_numpy(self.values[index]).float() / 127.5 - 1
        return image if self.labels is None else (image, str(self.labels[index]))


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """What a file holds.

    Attributes
    ----------
    X : a table, an array (of embeddings or images), or images of a folder.
    y : the target, if it was asked for.
    ids : what names each row in the output: the columns asked for, else the row number, or the path of an image.
    """

    X: pd.DataFrame | NDArray[Any] | Images
    y: Labels | None
    ids: pd.DataFrame

    def take(self, rows: NDArray[np.int64]) -> DataFile:
        """Some of the rows."""
        X: Any = self.X
        if isinstance(X, Images):
            X = Images(X.values[rows], None if X.labels is None else X.labels[rows])
        else:
            X = X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
        return DataFile(X=X, y=None if self.y is None else self.y[rows], ids=self.ids.iloc[rows])


def read_data(
    path: Path, *, target: Sequence[str] = (), ids: Sequence[str] = (), drop: Sequence[str] = (), image_size: int = 32
) -> DataFile:
    """Read a file or a folder.

    Parameters
    ----------
    target : column with the target, or several; of an NPZ, the array; none where there is none to read. A folder of
        images has the names of its subfolders as labels, if any target is asked for.
    ids, drop : columns to keep aside for the output, and to leave out.
    image_size : images are cut to a square and resized to this many pixels a side.
    """
    if not path.exists():
        raise InputError(f"There is no file or folder {path}.")
    if path.is_dir():
        return _read_images(path, labelled=bool(target), size=image_size)
    if path.suffix == ".npz":
        return _read_npz(path, target)
    table = _read_table(path, target)
    repeated = table.columns[table.columns.duplicated()].unique().tolist()
    if repeated:
        raise InputError(f"{path.name}: columns {repeated} occur more than once.")
    for name in [*target, *ids, *drop]:
        if name not in table.columns:
            raise InputError(f"{path.name} has no column {name!r}{_suggestion(name, list(table.columns))}")
    y = _labels(table[list(target)]) if target else None
    named = table[list(ids)] if ids else pd.DataFrame({"row": np.arange(len(table))})
    left = table.drop(columns=list({*target, *ids, *drop}))
    return DataFile(X=left, y=y, ids=named)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {known[:20]}{' and more' if len(known) > 20 else ''}."


def _labels(columns: pd.DataFrame) -> Labels:
    """Targets as text, whole numbers or numbers; missing ones stay missing, for the caller to decide."""
    if columns.shape[1] > 1:
        return columns.to_numpy()
    column = columns.iloc[:, 0]
    if column.dtype.kind in "iubf":
        return column.to_numpy()
    return column.map(lambda value: value.strip() if isinstance(value, str) else value).to_numpy(dtype=object)


def _read_table(path: Path, target: Sequence[str]) -> pd.DataFrame:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    try:
        if suffix in (".csv", ".tsv", ".txt"):
            table = pd.read_csv(path, sep=_separator(path), na_values=ABSENT, skipinitialspace=True)
        elif suffix in (".jsonl", ".ndjson"):
            table = pd.read_json(path, lines=True)
        elif suffix in (".parquet", ".pq"):
            table = pd.read_parquet(path)
        else:
            raise InputError(f"{path.name}: cannot tell what kind of file it is. Known are {KINDS}.")
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'ecrt[parquet]'.") from error
    except (OSError, EOFError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path.name} cannot be read: {error}") from error
    table.columns = table.columns.map(str)
    if table.empty:
        raise InputError(f"{path.name} has no rows.")
    features = table.drop(columns=[name for name in target if name in table])
    nested = [name for name in features if table[name].map(lambda value: isinstance(value, (dict, list))).any()]
    if nested:
        raise InputError(f"{path.name}: columns {nested} hold lists or objects. Give each value a column of its own.")
    return table


def _separator(path: Path) -> str:
    """Comma, semicolon, tab or bar, whichever the first lines are written with."""
    with gzip.open(path, "rt", errors="replace") if path.suffix == ".gz" else path.open(errors="replace") as file:
        start = file.readline() + file.readline()
    try:
        return csv.Sniffer().sniff(start, delimiters=",;\t|").delimiter
    except csv.Error:
        return ","


def _read_npz(path: Path, target: Sequence[str]) -> DataFile:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
    if "X" not in found:
        raise InputError(f"{path.name} has no array 'X'; it holds {sorted(found)}.")
    for name in target:
        if name not in found:
            raise InputError(f"{path.name} has no array {name!r}{_suggestion(name, sorted(found))}")
    rows = {len(found[name]) for name in {"X", *target, "ids"} & set(found)}
    if len(rows) > 1:
        raise InputError(f"{path.name}: 'X', {list(target)} and 'ids' differ in length.")
    ids = pd.DataFrame({"id": found["ids"]} if "ids" in found else {"row": np.arange(len(found["X"]))})
    y = found[target[0]] if len(target) == 1 else np.column_stack([found[name] for name in target]) if target else None
    return DataFile(X=found["X"], y=y, ids=ids)


def open_image(file: Path) -> PIL.Image.Image:
    """An image with three channels, read to its end."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"The image {file} cannot be read: {error}") from error


def _read_images(folder: Path, *, labelled: bool, size: int) -> DataFile:
    from PIL import ImageOps

    files = pictures_below(folder)
    if not files:
        raise InputError(f"The folder {folder} holds no images ({', '.join(sorted(PICTURES))}).")
    split = split_folders(folder)
    if labelled and split:
        raise InputError(
            f"{folder} is split into {sorted(split)}: name one of these folders, such as {split['train']}."
        )
    loose = [file.name for file in files if file.parent == folder]
    if labelled and loose:
        raise InputError(f"{folder}: the image {loose[0]} is in no subfolder, so its class has no name.")
    values = np.empty((len(files), 3, size, size), dtype=np.uint8)
    for place, file in enumerate(files):
        values[place] = np.asarray(ImageOps.fit(open_image(file), (size, size))).transpose(2, 0, 1)
    y = np.array([file.relative_to(folder).parts[0] for file in files]) if labelled else None
    ids = pd.DataFrame({"file": [str(file.relative_to(folder)) for file in files]})
    return DataFile(X=Images(values, y), y=y, ids=ids)
