"""A run on rows that are read block by block: Parquet or Arrow files, or arrays of NumPy, larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ecrt.data import ColumnReading, DataFile, ReadOptions, column_rows, streams
from ecrt.data.column_decisions import decide_columns
from ecrt.data.files import check_uses, read_again
from ecrt.data.streams import ARROW, PARQUET, ArrayRows, FileRows, RowStream, cells_of, is_pattern, table_files
from ecrt.data.tables import NOT_AS_FITTED
from ecrt.errors import InputError, hide_warnings, warn_user
from ecrt.runs.config import OURS, FitConfig, Target, read_target
from ecrt.runs.evaluation import Evaluation, measure
from ecrt.runs.model_folder import (
    STOPPED,
    FittedRun,
    check_decision,
    left_out,
    make_estimator,
    subject_of,
    warn_of_untested,
    with_decision,
    with_positive,
    write_run,
)
from ecrt.training import stop_requested


def is_streamed(files: Sequence[Path]) -> bool:
    """Whether data are read block by block: several files, a folder of tables, ``.npy``, Arrow, or large Parquet."""
    first = files[0]
    if len(files) > 1 or is_pattern(first):
        return True
    if first.is_dir():
        return any(one.suffix.lower() in PARQUET + ARROW for one in first.rglob("*"))
    if first.suffix.lower() not in PARQUET or not first.is_file():
        return first.suffix.lower() in (".npy", *ARROW)
    return cells_of(first) > streams.STREAMED_CELLS


def files_of(files: Sequence[Path]) -> list[Path]:
    """The files that are read: of folders and patterns, those that they hold."""
    return list(files) if files[0].suffix == ".npy" else table_files(files)


def open_rows(
    files: Sequence[Path], *, target: Sequence[str] = (), drop: Sequence[str] = (), ids: Sequence[str] = ()
) -> RowStream:
    """Rows of such files. Of a ``.npy`` the target is another such file, with the labels."""
    if len(target) > 1:
        raise InputError(f"One target column is learned block by block, not {list(target)}.")
    if files[0].suffix == ".npy":
        if drop or ids or len(files) > 1:
            raise InputError(f"{files[0].name} is one array without named columns: leave --drop and --id out.")
        for one in target:
            if not Path(one).is_file():
                raise InputError(
                    f"{files[0].name} holds no labels, and there is no file {one}: name the file that holds them, such "
                    "as --target y.npy."
                )
        return ArrayRows(_mapped(files[0]), *(_mapped(Path(one)) for one in target))
    return FileRows(files, target[0] if target else None, drop=drop, ids=ids)


def _present(files: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Those of the names that are columns of the files."""
    if not names or files[0].suffix == ".npy":
        return []
    return [name for name in streams.column_names(files) if name in names]


def _mapped(file: Path) -> Any:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{file.name} cannot be read as an array of NumPy: {error}") from error


def fit_rows(
    files: Sequence[Path],
    output: Path,
    config: FitConfig,
    *,
    say: Callable[[str], None],
    show: Callable[[Sequence[ColumnReading]], None] = lambda columns: None,
    verbose: bool = True,
    checkpoint: Path | None = None,
) -> tuple[Evaluation | None, str]:
    """What ``fit_file`` does, for rows that are read block by block.

    Rows to test on are left out for good: there may be no time to fit again, and many rows can spare some.
    """
    idle = {
        "--weight": config.weight, "--use-unlabelled": config.use_unlabelled, "--encoding": config.encoding,
        f"method={config.method}": config.method != OURS,
        f"task={config.task}": config.task not in (None, "classification"),
    }  # fmt: skip
    for name in (name for name, given in idle.items() if given):
        raise InputError(f"{name} is for data in memory, and these are read block by block: take a sample of the rows.")
    if not config.target:
        raise InputError("Name the column with the class by --target; for a .npy file, the file with the labels.")
    if files[0].suffix == ".npy":
        if config.types:
            raise InputError(f"{files[0].name} is an array of numbers without named columns: leave --types out.")
    else:
        uses: dict[str, Sequence[str]] = {
            "the target": config.target,
            "an id (--id)": config.id,
            "dropped (--drop)": config.drop,
        }
        check_uses(files[0], streams.column_names(files), config.types, uses)
        if config.types.get(config.target[0], "category") != "category":
            raise InputError(f"--types {config.target[0]}: labels that are read block by block can only be a category.")
    rows = open_rows(files, target=config.target, drop=(*config.drop, *config.id))
    say("Reading all rows once.")
    scan = rows.scan(config.test_size)
    if isinstance(rows, FileRows) and rows.unlabelled:
        warn_user(f"{rows.unlabelled} rows without a label are left out.")
    readings: tuple[ColumnReading, ...] = ()
    columns: tuple[ColumnReading, ...] = ()
    tested = scan.tested
    if isinstance(scan.X, pd.DataFrame):
        readings, _ = decide_columns(scan.X, config)
        rows.reader = _reader(readings, rows.files[0].name if isinstance(rows, FileRows) else "")
        scan = rows.rescanned(rows.reader)
        tested = scan.tested
        label = ColumnReading(name=config.target[0], kind="category", role="target")
        ids = [ColumnReading(name=name, kind="identifier", role="id") for name in config.id]
        readings = (*readings, label, *ids)
        columns = (*readings, *left_out(config))
    n_test = 0 if tested is None else len(tested[1])
    n_rows, total = int(scan.counts.sum()), int(scan.every.sum())
    y = scan.classes[scan.y]
    data = DataFile(X=scan.X, y=y, ids=pd.DataFrame({"row": np.arange(len(y))}), columns=readings)
    target = replace(read_target(data, config.target, config.task or "classification"), names=())
    least, most = scan.every.argmin(), scan.every.argmax()
    say(
        f"{files[0].name}{' and others' if len(files) > 1 else ''}: {total} rows, {rows.n_columns} columns, "
        f"{len(scan.classes)} classes, from {scan.every[least]} {'row' if scan.every[least] == 1 else 'rows'} of "
        f"{str(scan.classes[least])!r} to {scan.every[most]} of {str(scan.classes[most])!r}."
    )
    say(f"They are read block by block; {len(y)} of them are kept in memory.")
    show(columns)
    config = with_positive(target, config, (scan.counts / np.bincount(scan.y))[scan.y])
    costs = check_decision(target, config)
    model = make_estimator(data, target, config, costs, verbose=verbose).set_params(checkpoint=checkpoint)
    say(
        f"Fitting on {n_rows} rows, to be tested on the other {n_test}." if n_test else f"Fitting on all {n_rows} rows."
    )
    if tested is not None:
        warn_of_untested(scan.classes, tested[1])
    model.fit(rows)
    if config.threshold is not None:
        model.set_params(costs=costs)
    interrupted = STOPPED if stop_requested() else ""
    found: Evaluation | None = None
    if tested is not None:
        truth = Target(target.task, target.reason, tested[1])
        found = with_decision(measure(model, tested[0], truth, title=files[0].name), model, config)
        subject = subject_of(n_rows, total, again=False, kept="")
        found = replace(found, subject=subject, columns=tuple(column_rows(columns)))
    write_run(output, config, target, model, found, columns, readings, interrupted)
    return found, interrupted


def _reader(readings: Sequence[ColumnReading], name: str, **how: Any) -> Callable[[Any], Any]:
    """What reads a block of a table as the rows in memory were read."""
    used = [reading.name for reading in readings if reading.is_used]

    def read(table: pd.DataFrame) -> pd.DataFrame:
        return read_again(table, readings, name, **how)[0][used]

    return read


def predict_rows(
    run: FittedRun, files: Sequence[Path], *, options: ReadOptions, allow_unreadable: bool = False
) -> Iterator[pd.DataFrame]:
    """What ``FittedRun.predict`` gives, block by block; the arguments are the same."""
    named = getattr(run.model, "feature_names_in_", None)
    rows = open_rows(files, drop=_present(files, run.config.drop), ids=run.config.id)
    if (named is None) != isinstance(rows, ArrayRows):
        raise InputError(f"{files[0].name} is not the kind of data that the model was fitted on.")
    if named is not None:
        read = _reader(run.columns, files[0].name, decimal=options.decimal, allow_unreadable=allow_unreadable)
    n_rows = 0
    for block in rows.blocks():
        ids = pd.DataFrame({"row": np.arange(n_rows, n_rows + len(block.X))})
        if named is not None and run.config.id:
            ids = block.X[list(run.config.id)].reset_index(drop=True)
        X = block.X if named is None else read(block.X)
        with hide_warnings(NOT_AS_FITTED):
            yield pd.concat([ids, run.predictions(X)], axis=1)
        n_rows += len(X)
