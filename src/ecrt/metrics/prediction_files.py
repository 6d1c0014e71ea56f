"""Predictions on disk: arrays in one file, or a table with a probability for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ecrt.data import ColumnReading, read_data
from ecrt.disk import read_arrays, write_arrays
from ecrt.errors import InputError
from ecrt.metrics.priors import PRIORS, PriorName

__all__ = ["Predictions", "read_prediction_table", "read_predictions"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_BYTES = 16 * 2**30
PROBABILITY = "p_"
"""How the names of probability columns begin in tables that ``ecrt predict`` writes; the label follows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What a model said of test rows, and all that is needed to measure it.

    Attributes
    ----------
    log_proba : log-probabilities of rows by classes.
    y : index of the true class of each row, -1 for a label that was not in training.
    counts : training samples of each class.
    prior : that the probabilities assume: "balanced", "training", or one number for each class.
    validation : log-probabilities and class indices of rows to fit a temperature on, if there are any.
    """

    log_proba: Array
    y: Labels
    counts: Labels
    prior: PriorName | Array
    validation: tuple[Array, Labels] | None = None

    def write(self, path: str | Path) -> None:
        """Write an ``.npz`` file without pickles that ``read_predictions`` reads."""
        arrays: dict[str, Any] = {
            "log_proba": self.log_proba, "y": self.y, "counts": self.counts, "prior": np.asarray(self.prior),
        }  # fmt: skip
        if self.validation is not None:
            arrays["validation_log_proba"], arrays["validation_y"] = self.validation
        write_arrays(path, arrays)


def read_predictions(path: str | Path) -> Predictions:
    """Read an ``.npz`` file: one that ``Predictions`` has written, or the ``evaluation.npz`` of a fitted model.

    The arrays are ``log_proba``, ``y``, ``counts``, ``prior``, and maybe ``validation_log_proba`` and ``validation_y``.
    """
    path = Path(path)
    arrays = read_arrays(path, MOST_BYTES)
    for prior in PRIORS:  # evaluation.npz holds the same predictions under each prior
        if f"log_proba.{prior}" in arrays and "classes.counts" in arrays:
            arrays |= {"log_proba": arrays[f"log_proba.{prior}"], "counts": arrays["classes.counts"]}
            arrays["prior"] = np.asarray(prior)
    missing = sorted({"log_proba", "y", "counts", "prior"} - set(arrays))
    if missing:
        raise InputError(f"{path} holds no {missing}; it has {sorted(arrays)}.")
    validation = None
    if "validation_log_proba" in arrays and "validation_y" in arrays:
        validation = (arrays["validation_log_proba"].astype(np.float64), arrays["validation_y"].astype(np.int64))
    return Predictions(
        log_proba=arrays["log_proba"].astype(np.float64),
        y=arrays["y"].astype(np.int64),
        counts=arrays["counts"].astype(np.int64),
        prior=_as_prior(arrays["prior"]),
        validation=validation,
    )


def read_prediction_table(
    path: str | Path, *, target: str, counts: Mapping[Any, int], prior: PriorName | ArrayLike
) -> Predictions:
    """Read a CSV, Parquet or JSON-lines table as ``ecrt predict`` writes it, with the true labels beside them.

    Parameters
    ----------
    target : the column with the true labels; those that are not in ``counts`` were not in training.
    counts : training samples of each label. A column ``p_<label>`` must hold its probability.
    prior : that the probabilities assume.
    """
    path = Path(path)
    names = [f"{PROBABILITY}{label}" for label in counts]
    columns = [ColumnReading(name=name, kind="number", decimal=".") for name in names]
    data = read_data(path, target=(target,), columns=columns)
    if not isinstance(data.X, pd.DataFrame) or data.y is None:
        raise InputError(f"{path.name} is no table of predictions.")
    place = {str(label): index for index, label in enumerate(counts)}
    with np.errstate(divide="ignore"):  # a probability of zero is minus infinity
        log_proba = np.log(data.X[names].to_numpy(dtype=np.float64))
    return Predictions(
        log_proba=np.asarray(log_proba),
        y=np.array([place.get(str(label), -1) for label in data.y.tolist()], dtype=np.int64),
        counts=np.array(list(counts.values()), dtype=np.int64),
        prior=_as_prior(np.asarray(prior)),
    )


def _as_prior(stored: NDArray[Any]) -> PriorName | Array:
    if stored.ndim == 0:
        for name in PRIORS:
            if str(stored) == name:
                return name
        raise InputError(f"There is no class prior {str(stored)!r}: use {PRIORS}, or one number for each class.")
    return stored.astype(np.float64)
