"""A file to a comparison of methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ecrt.comparison import Comparison, compare
from ecrt.data import ReadOptions, read_data
from ecrt.errors import InputError
from ecrt.runs.targets import labelled, read_target


def compare_file(
    path: Path,
    output: Path,
    *,
    target: str,
    group: str | None = None,
    time: str | None = None,
    ids: Sequence[str] = (),
    drop: Sequence[str] = (),
    reading: ReadOptions | None = None,
    **options: Any,
) -> Comparison:
    """Read a table, and compare methods on it.

    Parameters
    ----------
    group, time : columns that rows are split by; like ids, they are not learned from.
    reading : what is known of how the table is written.
    options : of ``ecrt.compare``.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: compare reads tables and NPZ files of embeddings, no images.")
    aside = [name for name in (group, time) if name is not None]
    if aside and path.suffix == ".npz":
        raise InputError("An NPZ file has no columns to split by: use a table with --group and --time.")
    data = read_data(path, target=(target,), ids=ids, aside=aside, drop=drop, options=reading)
    labels = read_target(data, (target,), "classification")
    data = labelled(data, labels)
    if not isinstance(data.X, (pd.DataFrame, np.ndarray)):
        raise InputError(f"{path} holds no table.")
    return compare(
        data.X,
        labels.y,
        groups=None if group is None else data.aside[group].to_numpy(),
        times=None if time is None else data.aside[time].to_numpy(),
        output=output,
        title=path.name,
        reading=data.columns,
        **options,
    )
