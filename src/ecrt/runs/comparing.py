"""A file to a comparison of methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ecrt.comparison import Comparison, compare
from ecrt.data import ReadOptions
from ecrt.runs.targets import read_classes


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
    data, y = read_classes(path, target, ids=ids, drop=drop, aside=(group, time), reading=reading)
    X: Any = data.X  # not images, which were refused
    return compare(
        X,
        y,
        groups=None if group is None else data.aside[group].to_numpy(),
        times=None if time is None else data.aside[time].to_numpy(),
        output=output,
        title=path.name,
        reading=data.columns,
        **options,
    )
