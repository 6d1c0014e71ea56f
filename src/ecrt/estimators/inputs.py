"""From what users pass (arrays, data frames, torch Datasets) to what the stages take."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from datetime import date, timedelta
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_unsigned_integer_dtype
from scipy import sparse
from sklearn import get_config
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ecrt.arrays import Array
from ecrt.data import Images, streams
from ecrt.data.streams import ArrayRows, ItemRows, RowStream
from ecrt.data.tables import LARGEST, Hashes, mixed, row_hashes
from ecrt.distributed import own_device
from ecrt.errors import InputError, warn_user
from ecrt.randomness import seeded
from ecrt.stages import Labelled
from ecrt.stages.encoding import RESIDENT_BYTES

MOST_COPIES = 100_000
"""Rows that whole weights may make of fewer."""

FEW_COPIES = 0.05
"""So many copies, as a share of the rows, are learned from like other rows."""

FEW_DIFFERENT = 20
"""Fewer different rows than this are taken for a table of counts."""

LARGEST_TOTAL = 1e15
"""Beyond, one more row would no longer count."""


def array_items(X: NDArray[Any], labels: NDArray[np.int64] | None = None) -> Dataset[tuple[Tensor, int]]:
    """Rows of an array as a Dataset of (x, label)."""
    y = np.zeros(len(X), dtype=np.int64) if labels is None else labels
    # torch cannot mark memory as read-only and warns about it; nothing here writes to X.
    rows = torch.from_numpy(X if X.flags.writeable else X.copy())
    return cast("Dataset[tuple[Tensor, int]]", TensorDataset(rows, torch.from_numpy(y)))


class _Pairs(Dataset[tuple[Tensor, int]]):
    """Items of a Dataset of x, or of (x, y), each with another label."""

    def __init__(self, dataset: Dataset[Any], labels: NDArray[np.int64]) -> None:
        self.dataset, self.labels = dataset, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        item = self.dataset[index]
        x = item[0] if isinstance(item, (tuple, list)) else item
        return _as_tensor(x, index), int(self.labels[index])


def labelled_items(dataset: Dataset[Any], labels: NDArray[np.int64] | None = None) -> Dataset[tuple[Tensor, int]]:
    """Items of a Dataset of (x, y) with y replaced by a class index; without labels, of x or (x, y), by 0."""
    if labels is None:
        return _Pairs(dataset, np.zeros(_length(dataset), dtype=np.int64))
    return _in_memory(dataset, labels) or _Pairs(dataset, labels)


def _in_memory(dataset: Dataset[Any], y: NDArray[np.int64]) -> Dataset[tuple[Tensor, int]] | None:
    """Items that lie in memory as one array, which can be taken a batch at a time; nothing for others."""
    if type(dataset) is TensorDataset:  # a subclass may give out something else than its rows
        x = dataset.tensors[0]
    elif isinstance(dataset, Images) and 4 * dataset.values.size <= RESIDENT_BYTES:
        x = torch.from_numpy(dataset.values).float() / 127.5 - 1
    else:
        return None
    rows = TensorDataset(x if x.is_floating_point() else x.float(), torch.from_numpy(y))
    return cast("Dataset[tuple[Tensor, int]]", rows)


def _as_tensor(x: Any, index: int) -> Tensor:
    try:
        tensor = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Item {index} of the dataset: x is {type(x).__name__}, not a tensor or an array.") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"Item {index} of the dataset: x has dtype {tensor.dtype}, real numbers are needed.")
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    if not (tensor.abs() <= LARGEST).all():
        raise InputError(f"Item {index} of the dataset: x holds NaN, infinity or a value beyond {LARGEST:g}.")
    return tensor


def item_of(dataset: Dataset[Any], index: int) -> Any:
    """An item of the user's, looked at before training begins; what it draws is not drawn from the caller's numbers."""
    with seeded(0):
        return dataset[index]


def _length(dataset: Dataset[Any]) -> int:
    """Items of a dataset, at least one."""
    try:
        n = len(cast(Sized, dataset))
    except TypeError as error:
        raise InputError("The dataset has no length: an iterable-only Dataset cannot be split and shuffled.") from error
    if n == 0:
        raise InputError("The dataset is empty.")
    return n


def _checked_targets(dataset: Dataset[Any]) -> Iterator[Any]:
    """Each item's y, once its x has been checked."""
    shape = None
    for index in range(_length(dataset)):
        item = item_of(dataset, index)
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise InputError(f"Item {index} of the dataset is {type(item).__name__}, a pair (x, y) is needed.")
        x = _as_tensor(item[0], index)
        shape = x.shape if shape is None else shape
        if x.shape != shape:
            raise InputError(f"Item {index} of the dataset has shape {tuple(x.shape)}, item 0 has {tuple(shape)}.")
        yield item[1]


def read_target_arrays(dataset: Dataset[Any]) -> NDArray[np.float64]:
    """Check every item once, and give the numbers of each: (n,) or (n, k)."""
    found: list[NDArray[np.float64]] = []
    for index, target in enumerate(_checked_targets(dataset)):
        try:
            numbers = np.asarray(target, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"Item {index} of the dataset: y is {target!r}, numbers are needed.") from error
        refuse_dates(target, f"y of item {index} of the dataset")
        if found and numbers.shape != found[0].shape:
            raise InputError(f"Item {index} of the dataset: y has shape {numbers.shape}, item 0 has {found[0].shape}.")
        if numbers.ndim > 1 or not (np.abs(numbers) <= LARGEST).all():
            raise InputError(
                f"Item {index} of the dataset: y is {target!r}, finite numbers in a row, up to {LARGEST:g}, are needed."
            )
        found.append(numbers)
    return np.stack(found)


def read_dataset(dataset: Dataset[Any]) -> tuple[Dataset[tuple[Tensor, int]], NDArray[Any], NDArray[np.int64]]:
    """Check every item once, and give relabelled items, the classes, and each item's class index."""
    labels = []
    for index, label in enumerate(_checked_targets(dataset)):
        if isinstance(label, (Tensor, np.ndarray)):
            if label.size != 1 if isinstance(label, np.ndarray) else label.numel() != 1:
                raise InputError(f"Item {index} of the dataset: y has shape {tuple(label.shape)}, one label is needed.")
            label = label.item()
        if not isinstance(label, (int, str, np.integer)) or isinstance(label, bool):
            raise InputError(f"Item {index} of the dataset: y is {label!r}, a whole number or a string is needed.")
        labels.append(label)
    if len({type(label) is str for label in labels}) > 1:
        raise InputError("The dataset mixes labels that are strings with labels that are numbers.")
    classes, y = np.unique(np.asarray(labels), return_inverse=True)
    y = y.astype(np.int64)
    return labelled_items(dataset, y), classes, y


def stream_of(X: Any = None, y: Any = None) -> RowStream | None:
    """Rows that are read block by block: of a Dataset without a length, or a memory-mapped array that is large."""
    if isinstance(X, RowStream | IterableDataset):
        if y is not None:
            raise InputError("These rows come with their labels: do not pass y as well.")
        return X if isinstance(X, RowStream) else ItemRows(X)
    large = isinstance(X, np.memmap) and X.ndim == 2 and X.size > streams.STREAMED_CELLS
    return ArrayRows(X, y) if large else None


def rows_to_score(X: Any, y: Any, *, one_label: bool) -> tuple[Any, Any]:
    """Rows to predict, and targets to compare with: y as given, or that of the items of a Dataset.

    ``one_label`` : whether an item of a Dataset has one label, a number or a string; otherwise its y are numbers.
    """
    if isinstance(X, RowStream | IterableDataset):
        rows = cast(RowStream, stream_of(X, y)).labelled_only()
        known = [block.y for block in rows.blocks()] if rows.labelled else []
        if not known:
            raise InputError("score compares predictions with labels, and these rows have none.")
        return rows, np.concatenate(known)
    if not isinstance(X, Dataset):
        if y is None:
            raise InputError("score compares predictions with y: pass it, or a Dataset of (x, y).")
        return X, y
    if y is not None:
        raise InputError("A Dataset yields (x, y): do not pass y as well.")
    if not one_label:
        return X, read_target_arrays(X)
    _, classes, labels = read_dataset(X)
    return X, classes[labels]


def in_numpy(values: Any) -> Any:
    """A tensor, on any device, as an array; anything else as it is."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def like_input(found: Any, given: Any) -> Any:
    """An array of numbers as a tensor where one was given, if scikit-learn's array-API dispatch is on."""
    if not isinstance(given, Tensor) or not get_config()["array_api_dispatch"]:
        return found
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub":
        return found
    tensor = torch.from_numpy(found)
    return (tensor.float() if given.device.type == "mps" and tensor.is_floating_point() else tensor).to(given.device)


def in_pandas(table: Any) -> Any:
    """A data frame of another library, such as polars, as one of pandas, a tensor as an array; others as they are."""
    table = in_numpy(table)
    if isinstance(table, RowStream | IterableDataset):
        raise InputError("Rows in memory are needed, not some that are read block by block: take a sample of them.")
    if hasattr(table, "collect"):
        raise InputError("A lazy frame holds no rows yet: call its collect() first.")
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def plain_labels(y: Any) -> Any:
    """The labels, each of which must be there and of one kind; those of pandas' own types as what they stand for."""
    if isinstance(y, pd.Series) and isinstance(y.dtype, pd.api.extensions.ExtensionDtype) and not y.isna().any():
        if is_bool_dtype(y.dtype) and not isinstance(y.dtype, pd.CategoricalDtype):
            y = y.to_numpy(dtype=bool)
        elif is_integer_dtype(y.dtype):  # scikit-learn would make them floats
            y = y.to_numpy(dtype=np.uint64 if is_unsigned_integer_dtype(y.dtype) else np.int64)
    values = np.asarray(y)
    if values.dtype == object and values.ndim == 1:
        missing = pd.isna(values)
        if missing.any():
            raise InputError(
                f"Input y contains NaN or None: row {missing.argmax()} has no label. Leave such rows out, or, if that "
                "is a class, give it a name."
            )
        texts = sum(isinstance(label, str) for label in values)
        if 0 < texts < len(values):
            types = sorted({type(label).__name__ for label in values})
            raise InputError(f"y mixes labels of types {types}: make them all text, for example.")
    return y


def refuse_dates(values: Any, name: str, advice: str = "numbers are needed.") -> None:
    """Refuse dates and durations, which NumPy would take for counts of some unit, such as microseconds."""
    found = np.asarray(values)
    if found.dtype.kind in "mM" or (
        found.dtype == object and any(isinstance(one, (date, timedelta)) for one in found.flat)
    ):
        raise InputError(f"{name} holds dates or times: {advice}")


def class_indices(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in order, and the class index of each row."""
    refuse_dates(y, "y", "if they are class labels, make them text.")
    try:
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return classes, labels.astype(np.int64)


def check_class_counts(classes: NDArray[Any], labels: NDArray[np.int64]) -> None:
    """Two classes at least, and one of them with two samples, are needed to learn anything."""
    if len(classes) < 2:
        raise InputError(f"y holds one class only ({classes.tolist()}); at least 2 classes are needed.")
    if np.bincount(labels).max() < 2:
        raise InputError(f"Each of the {len(classes)} classes has a single sample; at least one needs two.")


def resolve_device(device: str) -> torch.device:
    """``"auto"`` is a GPU when there is one; a device that is not there is refused before anything is trained."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = own_device(torch.device(device))
        if wanted.type == "meta":
            raise NotImplementedError("it holds no numbers")
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        others = "'auto', 'cpu' or 'cuda'" if torch.cuda.is_available() else "'auto' or 'cpu', since torch finds no GPU"
        raise InputError(f"device={device!r} cannot be used here. Use {others}.") from error
    return wanted


def has_several_labels(X: Any, y: Any) -> bool:
    """Whether y is an indicator of labels: two columns or more of zeros and ones, dense or sparse.

    Of a Dataset, whether the first item's y is a row of them.
    """
    if isinstance(X, Dataset):
        first = item_of(X, 0) if y is None and hasattr(X, "__len__") and len(cast(Sized, X)) else None
        return isinstance(first, (tuple, list)) and len(first) == 2 and np.asarray(first[1]).size > 1
    if y is None:
        return False
    if sparse.issparse(y):
        return True
    try:
        return bool(type_of_target(y) == "multilabel-indicator")
    except (TypeError, ValueError):  # what it is wrong with is said where y is checked
        return False


def read_labels(y: Any) -> tuple[Labelled, NDArray[Any]]:
    """The indicator and the names of its columns: those of a data frame, or else numbers from 0."""
    names: NDArray[Any] | None = None
    y = in_pandas(y)
    if isinstance(y, pd.DataFrame):
        names = y.columns.to_numpy()
        if len(set(names.tolist())) < len(names):
            raise InputError(f"Columns of y must have different names, not {names.tolist()}.")
        names = names.astype(str) if names.dtype == object else names
    plain: Any = y if sparse.issparse(y) else np.asarray(y)
    matrix = sparse.csr_array(plain)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    if matrix.nnz and not (matrix.data == 1).all():
        raise InputError("y has several columns, so it must be an indicator of labels: zeros and ones alone.")
    if matrix.shape[1] < 2:
        raise InputError("A sparse y is an indicator of labels and needs two columns or more.")
    return Labelled(matrix.astype(np.int8)), np.arange(matrix.shape[1]) if names is None else names


# --- weights of rows --------------------------------------------------------------------------------------------------
#
# A row of weight two counts as one that occurs twice. A fit splits rows, folds them and draws from them, so what it
# finds depends on the order of rows and on how copies are written. Where rows weigh or occur more than once, they are
# therefore brought into a form that depends on neither: in an order of their contents, each once with its weight, so
# that no copy judges what was learned from another. Equal rows of a table of counts are no copies: they were seen.


class WeightedRows(NamedTuple):
    """Rows to learn from.

    ``weight`` is what each counts for, ``None`` where all count for one; ``most``: rows that it may make of them.
    """

    X: Any
    y: Any
    weight: Array | None = None
    most: float = np.inf


def weighted_rows(X: Any, y: Any, sample_weight: ArrayLike | None = None) -> WeightedRows:
    """Rows in an order that depends on what they hold alone, and what each counts for.

    Rows that are all different and weigh 1 stay as they are. The weights of equal rows are added up first; rows of
    weight 0 are left out. Rows of which hardly any is a copy, and those of a table of counts, are repeated instead, or
    stay as they are where weights are no whole numbers.
    """
    if isinstance(X, Dataset):
        if sample_weight is not None:
            raise InputError("sample_weight needs rows, not a Dataset: repeat its items instead.")
        return WeightedRows(X, y)
    X = in_pandas(X)
    try:
        hashes = None if y is None else _hashes_of(X, y)
    except (TypeError, ValueError) as error:
        if sample_weight is not None:
            raise InputError(f"sample_weight: rows cannot be compared with each other. {error}") from error
        hashes = None
    if hashes is None or (sample_weight is None and len(np.unique(hashes)) == len(hashes)):
        return WeightedRows(X, y)  # what is wrong with them, if anything is, will be said where they are read
    weight = np.ones(len(hashes)) if sample_weight is None else checked_weights(sample_weight, len(hashes))
    order = np.lexsort((weight, hashes))
    order = order[weight[order] > 0]
    first = np.unique(hashes[order], return_index=True)[1]
    total, rows = np.add.reduceat(weight[order], first), order[first]
    copies = _as_copies(total)
    if copies is not None and (copies == 1).all():
        return WeightedRows(*_taken(np.sort(rows), X, y))
    # A table of counts has a line for each class beside the same values.
    same_values = len(rows) - len(np.unique(row_hashes(_as_rows(X))[rows]))
    counted = len(rows) < FEW_DIFFERENT or same_values > FEW_COPIES * len(rows)
    most = np.inf if sample_weight is None else max(MOST_COPIES, 2 * len(rows))
    n_rows, total = (len(order), total) if copies is None else (copies.sum(), copies.astype(np.float64))
    if n_rows > (most if counted else (1 + FEW_COPIES) * len(rows)):
        return WeightedRows(*_taken(rows, X, y), total, most)
    if copies is None:
        rows = np.flatnonzero(weight)
        return WeightedRows(*_taken(rows, X, y), weight[rows])
    return WeightedRows(*_taken(np.repeat(rows, copies), X, y))


def _as_copies(weight: Array) -> NDArray[np.int64] | None:
    """Weights as whole numbers, ``None`` if they are none."""
    copies = np.rint(weight).astype(np.int64)
    return copies if np.allclose(weight, copies, rtol=1e-9, atol=0) else None


def checked_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    """Weights of so many rows: finite, none below zero, not all zero."""
    refuse_dates(sample_weight, "sample_weight")
    try:
        weight = check_array(sample_weight, dtype=np.float64, ensure_2d=False, ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight: {error}") from error
    if weight.shape != (n_rows,):
        told = f"sample_weight has the shape {weight.shape}; a number for each of the {n_rows} rows is needed."
        if weight.ndim == 1:
            told += (
                " If a sampler of a pipeline has made these rows: only ECRTSampler can take the weights, in place of "
                "this step. Use its set_fit_resample_request(sample_weight=True), and "
                "set_fit_request(sample_weight=False) here."
            )
        raise InputError(told)
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        raise InputError(
            f"sample_weight: row {wrong.argmax()} has the weight {weight[wrong.argmax()]:g}; weights are finite "
            "numbers from 0 on."
        )
    if not weight.any():
        raise InputError("Every sample weight is zero: there is no row to learn from.")
    if np.minimum(weight, 2 * LARGEST_TOTAL).sum() > LARGEST_TOTAL:
        raise InputError(
            f"The sample weights add up to more than {LARGEST_TOTAL:g}. A weight says how often a row occurs: if "
            "yours say only how rows compare with each other, divide them by their mean."
        )
    if weight.sum() < 0.1 * np.count_nonzero(weight):
        warn_user(
            f"The sample weights of {np.count_nonzero(weight):,} rows add up to {weight.sum():.3g}. A weight says how "
            "often a row occurs, so a fit will take this for very few rows. If your weights say only how rows compare "
            "with each other, divide them by their mean."
        )
    return weight


def whole_weights(weight: Array, most: float, who: str) -> NDArray[np.int64]:
    """Weights as whole numbers, which make so many rows at most; others are refused."""
    copies = _as_copies(weight)
    if copies is None:
        part = weight[np.abs(weight - np.rint(weight)).argmax()]
        raise InputError(
            f"{who} takes whole numbers as sample_weight, since rows are repeated, and one of them is {part:.10g}. "
            "Round them, or leave sample_weight out."
        )
    if copies.sum() > most:
        raise InputError(
            f"{who} repeats rows as sample_weight says: {len(weight):,} rows would become {copies.sum():,}, more than "
            f"the {int(most):,} that are allowed. Use smaller whole numbers, or leave sample_weight out."
        )
    return copies


def repeated_rows(rows: WeightedRows, who: str) -> WeightedRows:
    """Rows that count for one each, repeated as whole weights say; other weights are refused, and so are too many."""
    if rows.weight is None:
        return rows
    copies = whole_weights(rows.weight, rows.most, who)
    warn_user(
        f"{who} repeats rows by their weights: {copies.sum():,} rows are made of {len(copies):,}. Copies of a row may "
        "be both learned from and held out: held-out figures are then too good, and models that memorise rows are "
        "preferred."
    )
    return WeightedRows(*_taken(np.repeat(np.arange(len(copies)), copies), rows.X, rows.y))


def places_as_often(sample_weight: ArrayLike, n_rows: int, who: str) -> NDArray[np.int64]:
    """The place of each of so many rows, as often as its weight says."""
    copies = whole_weights(checked_weights(sample_weight, n_rows), max(MOST_COPIES, 2 * n_rows), who)
    return np.repeat(np.arange(n_rows), copies)


def _taken(rows: NDArray[np.int64], X: Any, y: Any) -> tuple[Any, Any]:
    return _safe_indexing(_as_rows(X), rows), _safe_indexing(_as_rows(y), rows)


def _as_rows(values: Any) -> Any:
    """What rows can be taken from."""
    values = in_pandas(values)
    if hasattr(values, "tocsr"):
        return values.tocsr()
    return values if isinstance(values, pd.DataFrame | pd.Series) else np.asarray(values)


def _hashes_of(X: Any, y: Any) -> Hashes | None:
    """A number for each row that depends on what it holds, and its y; ``None`` for what are no rows."""
    if np.ma.is_masked(X) or np.ma.is_masked(y):
        return None
    X, y = _as_rows(X), _as_rows(y)
    if X.ndim < 2 or y.ndim == 0 or X.shape[0] != y.shape[0] or X.shape[0] == 0:
        return None
    return mixed(row_hashes(X)) * np.uint64(3) + mixed(row_hashes(y))
