"""Rows that are read block by block, as often as needed: memory-mapped arrays, Parquet and Arrow files, Datasets.

A first pass counts the classes and keeps some rows. Which rows are kept, or held out, is decided by a hash of what they
hold: it depends neither on their order nor on how they are divided among files, and copies of a row stay together.
"""

from __future__ import annotations

import copy
import mmap
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import glob
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.arrays import Labels, Mask
from ecrt.data.tables import Hashes, mixed, row_hashes
from ecrt.errors import InputError

STREAMED_CELLS = 2**27
"""A memory-mapped array, or a file, of more cells is read block by block: as float64 they would take 1 GiB."""

BLOCK_CELLS, BLOCK_ROWS, PIECES = 2**21, 2**16, 16
"""A block has so many cells, and rows, at most; in random order it is put together of pieces from so many places."""

OPEN_PIECES = 4
"""Row groups that are read at the same time, so that blocks hold rows of several places."""

KEPT_ROWS, KEPT_CELLS, LEAST_KEPT = 50_000, 2**23, 1000
"""Rows of a stream that are kept in memory, and their cells, at most; and rows that are kept however wide they are.
Every class keeps as many as can be."""

PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


# --- rows that are kept -----------------------------------------------------------------------------------------------


def _taken(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return pd.concat(parts, ignore_index=True) if isinstance(parts[0], pd.DataFrame) else np.concatenate(parts)


class KeptRows:
    """Rows with the smallest hashes, of every class as many as can be, or of all together; copies are kept once.

    Which rows stay does not depend on the order in which they are added.

    Parameters
    ----------
    most : rows that are kept, if there are no more classes.
    by_class : whether rows are kept class by class.
    """

    def __init__(self, most: int, *, by_class: bool) -> None:
        self.most, self.by_class, self.room = most, by_class, sys.maxsize
        self.limit = np.empty(0, dtype=np.uint64)
        self.parts: list[tuple[Any, Hashes, Labels, Labels]] = []
        self.waiting = 0

    def add(self, X: Any, hashes: Hashes, label: Labels) -> None:
        """Look at more rows; labels are numbers from 0 on."""
        group = label if self.by_class else np.zeros_like(label)
        more = int(group.max(initial=-1)) + 1 - len(self.limit)
        if more > 0:
            self.limit = np.concatenate([self.limit, np.full(more, np.iinfo(np.uint64).max)])
        rows = np.flatnonzero(hashes <= self.limit[group])
        if len(rows):
            self.parts.append((_taken(X, rows), hashes[rows], label[rows], np.ones(len(rows), dtype=np.int64)))
            self.waiting += len(rows)
        if self.waiting > self.most // 2:
            self.settle()

    def settle(self) -> tuple[Any, Hashes, Labels, Labels]:
        """Rows that stay, in the order of their hashes; hashes, labels, and how often each row has occurred."""
        X, hashes, label, times = (_joined(part) for part in zip(*self.parts, strict=True))
        hashes, first, same = np.unique(hashes, return_index=True, return_inverse=True)
        label, times = label[first], np.bincount(same, times).astype(np.int64)
        group = label if self.by_class else np.zeros_like(label)
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group, minlength=len(self.limit))
        place = np.empty(len(group), dtype=np.int64)
        place[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.room = min(self.room, _room(counts, self.most))  # later rows leave no more places
        last, stay = place == self.room - 1, place < self.room
        self.limit[group[last]] = hashes[last]
        found = _taken(X, first[stay]), hashes[stay], label[stay], times[stay]
        self.parts, self.waiting = [found], 0
        return found


def _room(counts: Labels, most: int) -> int:
    """Places of each group so that all together hold no more than so many rows; one place at least."""
    low, high = 1, max(most, 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(counts, middle).sum() <= most else (low, middle - 1)
    return low


def _repeated(hashes: Hashes, group: Labels, times: Labels, most: int) -> Labels:
    """Rows as often as they have occurred; where a group has no room for that, in proportion, rounded by their hash."""
    share = np.minimum(most / np.maximum(np.bincount(group, times), 1), 1.0)[group]
    part = mixed(hashes ^ np.uint64(3)) / 2.0**64
    return np.repeat(np.arange(len(group)), np.floor(times * share + np.where(share < 1, part, 0.5)).astype(np.int64))


def held_out_rows(hashes: Hashes, y: Labels, fraction: float) -> Mask:
    """About a share of the rows of each class; copies of a row stay together.

    Rows are taken in an order that their hashes decide. One with so many copies that they exceed the share is passed
    over, and at least one row of a class stays.
    """
    found: list[np.uint64] = []
    for label in np.unique(y):
        once, copies = np.unique(hashes[y == label], return_counts=True)
        wanted = min(int(fraction * copies.sum() + 0.5), int(copies.sum()) - 1)
        for place in np.argsort(mixed(once ^ np.uint64(1))):
            if copies[place] <= wanted and len(once) > 1:
                wanted -= int(copies[place])
                found.append(once[place])
    return np.isin(hashes, np.array(found, dtype=np.uint64))


def hashes_of(X: Any, y: Any) -> Hashes:
    """A number for each row that depends on what it holds, and on its label."""
    code, labels = pd.factorize(np.asarray(y), use_na_sentinel=False)
    return mixed(row_hashes(X)) * np.uint64(3) + mixed(np.asarray(labels))[code]


class MarkedRows:
    """Some rows, to be found again among others.

    Only rows that agree with one of them in the column that tells most of them apart are hashed.
    """

    def __init__(self, X: Any, y: Any) -> None:
        columns = [self._column(X, place).nunique() for place in range(X.shape[1])]
        self.hashes, self.place = hashes_of(X, y), int(np.argmax(columns))
        self.values = self._column(X, self.place).unique()

    def among(self, X: Any, y: Any) -> Mask:
        """Which of these rows they are."""
        found = self._column(X, self.place).isin(self.values).to_numpy(copy=True)
        near = np.flatnonzero(found)
        if len(near):
            found[near] = np.isin(hashes_of(_taken(X, near), y[near]), self.hashes)
        return found

    @staticmethod
    def _column(X: Any, place: int) -> pd.Series[Any]:
        return X.iloc[:, place] if isinstance(X, pd.DataFrame) else pd.Series(X[:, place])


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan:
    """What the first pass over a stream finds.

    Attributes
    ----------
    classes, counts : labels in order, and rows of each to learn from.
    every : all rows of each class, those that are left out to test on among them.
    X, y, hashes : rows that are kept, with their class indices: all rows of small classes, some of large ones.
    stored : the same rows as they are stored.
    digest : of all rows and labels, in their order.
    tested : other rows and their labels, to test on, classes as frequent among them as in the stream, but for those
        that are so rare that they keep their rows.
    """

    classes: NDArray[Any]
    counts: Labels
    every: Labels
    X: Any
    y: Labels
    hashes: Hashes
    stored: Any
    digest: str
    tested: tuple[Any, NDArray[Any]] | None = None

    @property
    def complete(self) -> bool:
        """Whether all rows are kept."""
        return len(self.y) == int(self.counts.sum())


# --- streams ----------------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """Rows and their labels, if there are any; and which rows are marked, if some are."""

    X: Any
    y: Any
    marked: Any = None


class RowStream:
    """Rows that can be read again and again, block by block.

    Attributes
    ----------
    n_columns : columns as they are stored.
    labelled : whether rows have labels.
    reader : makes of rows as they are stored what a model takes.
    left_out : rows to test on, which are not read again.
    labels_needed : whether rows without a label are not predicted.
    """

    labels_needed = False

    def __init__(self, n_columns: int, *, labelled: bool) -> None:
        self.n_columns, self.labelled = n_columns, labelled
        self.reader: Callable[[Any], Any] = lambda X: X
        self.left_out: MarkedRows | None = None
        self._scan: Scan | None = None

    def _stored(self, rng: np.random.Generator | None) -> Iterator[tuple[Any, Any]]:
        """Rows as they are stored, and their labels; in order, or mixed."""
        raise NotImplementedError

    @property
    def block_rows(self) -> int:
        """Rows of a block at most."""
        return min(max(BLOCK_CELLS // max(self.n_columns, 1), PIECES), BLOCK_ROWS)

    @property
    def most_kept(self) -> int:
        """Rows that are kept in memory at most."""
        return max(min(KEPT_ROWS, KEPT_CELLS // max(self.n_columns, 1)), LEAST_KEPT)

    def blocks(self, rng: np.random.Generator | None = None, marked: MarkedRows | None = None) -> Iterator[Block]:
        """All rows but those that are left out, read by ``reader``.

        Parameters
        ----------
        rng : gives them a random order, as far as blocks can be put together of pieces from several places.
        marked : rows to be marked.
        """
        n_rows, left = 0, sum(len(rows.hashes) for rows in (self.left_out, marked) if rows is not None)
        for X, y in self._stored(rng):
            n_rows += len(X)
            if self.left_out is not None and (out := self.left_out.among(X, y)).any():
                X, y = _taken(X, ~out), y[~out]
                left -= int(out.sum())
            if len(X):
                found = None if marked is None else marked.among(X, y)
                left -= 0 if found is None else int(found.sum())
                yield Block(self.reader(X), y, found)
        if self._scan is not None and n_rows != self._scan.every.sum():
            raise InputError(
                f"The first pass over the rows found {self._scan.every.sum()} of them, a later one {n_rows}: every "
                "pass must give the same rows."
            )
        if left > 0:
            raise InputError("A later pass over the rows does not find some of the first again: they change.")

    def to_predict(self) -> Iterator[Any]:
        """All rows, with a label or without; of ``labelled_only`` those that have one."""
        rows = copy.copy(self)
        if not self.labels_needed:
            rows.left_out = rows._scan = None
            rows.forget_labels()
        empty = True
        for block in rows.blocks():
            empty = False
            yield block.X
        if empty:
            raise InputError(
                f"Found a table of 0 sample(s) and {self.n_columns} feature(s) while a minimum of 1 and 1 is required."
            )

    def forget_labels(self) -> None:
        """Read rows alone from now on, where labels can be left unread."""

    def labelled_only(self) -> Self:
        """The same rows, of which those that have a label are predicted."""
        rows = copy.copy(self)
        rows.labels_needed = True
        return rows

    def scan(self, test_size: float = 0.0) -> Scan:
        """Count the classes and keep some rows; a second call gives the same.

        Parameters
        ----------
        test_size : share of the rows that are left out from then on, to test on, up to ``KEPT_ROWS`` of them. A class
            keeps at least one row to learn from.
        """
        if self._scan is None:
            self._scan = self._scanned(test_size)
        return self._scan

    def rescanned(self, read: Callable[[Any], Any]) -> Scan:
        """What was scanned, its rows read as they are to be learned from."""
        found = self.scan()
        tested = None if found.tested is None else (read(found.tested[0]), found.tested[1])
        self._scan = replace(found, X=read(found.X), tested=tested)
        return self._scan

    def _scanned(self, test_size: float) -> Scan:
        known: dict[Any, int] = {}
        counts = np.zeros(0, dtype=np.int64)
        most = self.most_kept
        kept, tests = KeptRows(most, by_class=True), KeptRows(most, by_class=False)
        digest = blake2b(digest_size=8)
        for X, y in self._stored(None):
            hashes = hashes_of(X, y)
            digest.update(hashes.tobytes())
            code, labels = pd.factorize(np.asarray(y), use_na_sentinel=False)
            group = np.array([known.setdefault(one, len(known)) for one in labels.tolist()], dtype=np.int64)[code]
            _check_labels(labels, known)
            counts = np.bincount(group, minlength=len(known)) + np.pad(counts, (0, len(known) - len(counts)))
            kept.add(X, hashes, group)
            if test_size > 0:
                tests.add(X, _to_test(hashes), group)
        if not known:
            raise InputError("There are no rows to learn from.")
        X, hashes, label, times = kept.settle()
        tested: tuple[Any, NDArray[Any]] | None = None
        names, every = _labels_of(list(known)), counts
        if test_size > 0:
            found, order, of, often = tests.settle()
            taken = np.cumsum(often) <= test_size * counts.sum()
            left = counts - np.bincount(of[taken], often[taken], minlength=len(counts)).astype(np.int64)
            _, last = np.unique(of[::-1], return_index=True)  # of each class
            last = len(of) - 1 - last
            taken[last[left[of[last]] == 0]] = False
            if taken.any():
                found, order, of, often = _taken(found, taken), order[taken], of[taken], often[taken]
                self.left_out = MarkedRows(found, names[of])
                rows = _repeated(order, np.zeros_like(of), often, most)
                tested = _taken(found, rows), names[of[rows]]
                counts = counts - np.bincount(of, often, minlength=len(counts)).astype(np.int64)
                stay = ~np.isin(_to_test(hashes), order)
                X, hashes, label, times = _taken(X, stay), hashes[stay], label[stay], times[stay]
        ranked = np.argsort(names)
        place = np.argsort(ranked)
        rows = _repeated(hashes, label, times, _room(np.bincount(label, times).astype(np.int64), most))
        kept_rows = _taken(X, rows)
        return Scan(
            classes=names[ranked], counts=counts[ranked], every=every[ranked], X=kept_rows, y=place[label[rows]],
            hashes=hashes[rows], stored=kept_rows, digest=digest.hexdigest(), tested=tested,
        )  # fmt: skip


def _to_test(hashes: Hashes) -> Hashes:
    """Another order of the same rows."""
    return mixed(hashes ^ np.uint64(2))


def _labels_of(values: list[Any]) -> NDArray[Any]:
    """An array of labels; whole numbers beyond the largest int64 stay whole."""
    large = all(isinstance(one, int) and one >= 0 for one in values) and max(values, default=0) >= 2**63
    return np.asarray(values, dtype=np.uint64 if large else None)


def _check_labels(labels: Any, known: dict[Any, int]) -> None:
    """Refuse labels that are missing, of two kinds, or numbers to be estimated."""
    if pd.isna(labels).any():
        raise InputError("Some rows have no label. Leave such rows out, or, if that is a class, give it a name.")
    if len({isinstance(one, str) for one in known}) > 1:
        raise InputError(f"Labels are text and numbers, such as {list(known)[:5]}: make them all text, for example.")
    if any(isinstance(one, float) and abs(one) >= 2.0**63 for one in labels.tolist()):
        raise InputError("Input y contains infinity or a value too large: labels must be text or whole numbers.")
    if any(isinstance(one, float) and not one.is_integer() for one in labels.tolist()):
        raise InputError(f"Labels are numbers such as {labels[0]}: classes are needed. Numbers are learned in memory.")
    if len(known) > KEPT_ROWS:
        raise InputError(f"There are more than {KEPT_ROWS:,} classes, which cannot be learned block by block.")


class ArrayRows(RowStream):
    """Rows of an array, which may be a memory-mapped file, with their labels.

    Parameters
    ----------
    X : array of numbers (n_samples, n_features).
    y : labels, an array that may be memory-mapped; ``None`` for none.
    """

    def __init__(self, X: NDArray[Any], y: Any = None) -> None:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise InputError(f"An array of numbers with two dimensions is needed; X has {X.ndim}, and dtype {X.dtype}.")
        super().__init__(X.shape[1], labelled=y is not None)
        self.X, self.y = X, None if y is None else np.asarray(y)
        if self.y is not None and self.y.shape != X.shape[:1]:
            raise InputError(f"X has {len(X)} rows, y has the shape {self.y.shape}; one label for each row is needed.")

    def _stored(self, rng: np.random.Generator | None) -> Iterator[tuple[Any, Any]]:
        n = self.block_rows if rng is None else max(self.block_rows // PIECES, 1)
        starts = np.arange(0, len(self.X), n)
        groups = (
            starts[:, None]
            if rng is None
            else np.split(rng.permutation(starts), np.arange(PIECES, len(starts), PIECES))
        )
        for group in groups:
            X = np.concatenate([np.asarray(self.X[start : start + n], dtype=np.float64) for start in group])
            y = None if self.y is None else np.concatenate([self.y[start : start + n] for start in group])
            release(self.X)
            yield X, y


def release(X: NDArray[Any]) -> None:
    """Let go of the pages of a memory-mapped file that have been read, which count as memory of the process."""
    base: Any = X
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    # Changes to a copy on write live in memory alone, and would be lost.
    pages: Any = getattr(base, "_mmap", None)
    if hasattr(pages, "madvise") and getattr(base, "mode", "c") in ("r", "r+"):
        pages.madvise(mmap.MADV_DONTNEED)


class FileRows(RowStream):
    """Rows of Parquet or Arrow files.

    Parameters
    ----------
    paths : files, folders of such files, or patterns such as ``"data/*.parquet"``.
    target : column with the label; ``None`` for none.
    drop : columns that are left out.
    ids : columns that stay as they are stored, among the others; numbers of these become float64.
    """

    def __init__(
        self,
        paths: str | Path | Iterable[str | Path],
        target: str | None = None,
        drop: Sequence[str] = (),
        ids: Sequence[str] = (),
    ) -> None:
        self.files = table_files(paths)
        self.target, self.unlabelled = target, 0
        first = _schema(self.files[0])
        import pyarrow

        for name in [*drop, *ids, *([] if target is None else [target])]:
            if name not in first.names:
                raise InputError(f"{self.files[0].name} has no column {name!r}; there are {first.names[:20]}.")
        self.columns = [name for name in first.names if name not in (*drop, target)]
        self.metadata = first.metadata
        if not self.columns:
            raise InputError(f"{self.files[0].name} has no column to learn from beside the target.")
        super().__init__(len(self.columns), labelled=target is not None)
        self.pieces: list[tuple[Path, int]] = []
        self.kinds: dict[str, Any] = {}
        self.n_rows = 0
        for file in self.files:
            schema, sizes = _schema(file), _sizes(file)
            if twice := [name for name in schema.names if schema.names.count(name) > 1]:
                raise InputError(f"{file.name} has more than one column {twice[0]!r}.")
            if target is not None and target not in schema.names:
                raise InputError(f"{file.name} lacks the target column {target!r}.")
            for name in schema.names:
                if name not in (*self._wanted, *drop):
                    raise InputError(f"{file.name} has a column {name!r} that {self.files[0].name} lacks.")
            for name in self._wanted:
                if name not in schema.names:
                    raise InputError(f"{file.name} lacks the column {name!r} that {self.files[0].name} has.")
                kind = schema.field(name).type
                if pyarrow.types.is_nested(kind):
                    raise InputError(
                        f"Column {name!r} of {file.name} holds {kind}, not single values: leave it out (--drop {name})."
                    )
                common = _common_type(self.kinds.setdefault(name, kind), kind)
                if common is None:
                    kinds = (first.field(name).type, kind)
                    raise InputError(
                        f"Column {name!r} is {kinds[0]} in {self.files[0].name}, {kinds[1]} in {file.name}."
                    )
                self.kinds[name] = common
            self.pieces += [(file, place) for place in range(len(sizes))]
            self.n_rows += sum(sizes)
        if target is not None and pyarrow.types.is_decimal(self.kinds[target]):
            self.kinds[target] = pyarrow.float64()
        self.numeric = [name not in ids and _is_number(self.kinds[name]) for name in self.columns]
        self._pyarrow = pyarrow

    @property
    def _wanted(self) -> list[str]:
        return [*self.columns, *([] if self.target is None else [self.target])]

    def forget_labels(self) -> None:
        """Read rows alone from now on, those without a label among them."""
        self.target = None

    def _stored(self, rng: np.random.Generator | None) -> Iterator[tuple[Any, Any]]:
        self.unlabelled = 0
        if rng is None:
            for piece in self.pieces:
                for batch in self._batches(piece, self.block_rows):
                    yield self._rows([batch])
            return
        left = [self.pieces[place] for place in rng.permutation(len(self.pieces))]
        n = max(self.block_rows // OPEN_PIECES, 1)
        reading: list[Iterator[Any]] = []
        while left or reading:
            while left and len(reading) < OPEN_PIECES:
                reading.append(self._batches(left.pop(), n))
            found = [(one, next(one, None)) for one in reading]
            reading = [one for one, batch in found if batch is not None]
            if batches := [batch for _, batch in found if batch is not None]:
                yield self._rows(batches)

    def _batches(self, piece: tuple[Path, int], n: int) -> Iterator[Any]:
        """Record batches of up to so many rows of one row group, or of one batch of an Arrow file."""
        with readable(piece[0]):
            yield from self._stored_batches(*piece, n)

    def _stored_batches(self, file: Path, place: int, n: int) -> Iterator[Any]:
        wanted = self._wanted
        if file.suffix.lower() in PARQUET:
            from pyarrow.parquet import ParquetFile

            with ParquetFile(file, buffer_size=2**16, pre_buffer=False) as source:
                for batch in source.iter_batches(n, row_groups=[place], columns=wanted, use_threads=False):
                    yield batch.select(wanted)
            return
        with self._pyarrow.memory_map(str(file)) as source:
            batch = self._pyarrow.ipc.open_file(source).get_batch(place).select(wanted)
            for start in range(0, batch.num_rows, n):
                yield batch.slice(start, n)

    def _of_common_types(self, batch: Any) -> Any:
        """A table of these rows, in which columns have the types that all files have in common."""
        found = []
        for name in self._wanted:
            column, kind = batch.column(name), self.kinds[name]
            try:  # a label must stay what it is; features become float64 anyway
                found.append(column if column.type == kind else column.cast(kind, safe=name == self.target))
            except self._pyarrow.ArrowInvalid as error:
                raise InputError(
                    f"Column {name!r} is not of one type in all files, and some values are no {kind}: {error}"
                ) from error
        return self._pyarrow.Table.from_arrays(found, names=self._wanted, metadata=self.metadata)

    def _rows(self, batches: list[Any]) -> tuple[Any, Any]:
        """A data frame of numbers (float64), or of numbers, categories and dates, and the labels."""
        table = self._pyarrow.concat_tables([self._of_common_types(batch) for batch in batches])
        y: Any = None
        if self.target is not None:
            absent = table.column(self.target).is_null(nan_is_null=True).to_numpy()
            if absent.any():  # whole numbers with gaps would become float64, which merges large ones
                self.unlabelled += int(absent.sum())
                table = table.filter(self._pyarrow.array(~absent))
            y = np.asarray(table.column(self.target).to_pandas())
            if y.dtype.kind == "f" and (y == np.round(y)).all() and (np.abs(y) < 2.0**63).all():
                y = y.astype(np.int64)
        if all(self.numeric):
            numbers = np.empty((table.num_rows, len(self.columns)))
            for place, name in enumerate(self.columns):
                numbers[:, place] = table.column(name).to_pandas()
            return pd.DataFrame(numbers, columns=self.columns), y
        frame = table.select(self.columns).to_pandas()
        for name, numeric in zip(self.columns, self.numeric, strict=True):
            if numeric:  # whole numbers and truth values, with gaps in some blocks and without in others
                frame[name] = frame[name].astype(np.float64)
        return frame, y


def is_pattern(path: str | Path) -> bool:
    """Whether a path stands for several files."""
    return any(sign in str(path) for sign in "*?[") and not Path(path).exists()


def table_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Parquet and Arrow files that are meant, each once, in order of their names."""
    found: dict[Path, None] = {}
    for path in [paths] if isinstance(paths, str | Path) else paths:
        places = [Path(one) for one in glob(str(path))] if is_pattern(path) else [Path(path)]
        for place in sorted(places):
            if not place.exists():
                raise InputError(f"There is no file or folder {place}.")
            inside = [one for one in place.rglob("*") if one.suffix.lower() in PARQUET + ARROW and one.is_file()]
            found |= dict.fromkeys(sorted(inside) if place.is_dir() else [place])
    wrong = [file.name for file in found if file.suffix.lower() not in PARQUET + ARROW]
    if wrong:
        raise InputError(
            f"{wrong[0]}: several files, or a folder, must be Parquet or Arrow ({', '.join(PARQUET + ARROW)})."
        )
    if not found:
        raise InputError(f"No Parquet or Arrow file at {paths}.")
    return list(found)


def column_names(paths: str | Path | Iterable[str | Path]) -> list[str]:
    """Columns of the first of such files."""
    return list(_schema(table_files(paths)[0]).names)


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    )  # fmt: skip


def _common_type(one: Any, other: Any) -> Any:
    """A type for the values of both; ``None`` if there is none."""
    import pyarrow

    if one == other:
        return one
    one, other = (kind.value_type if pyarrow.types.is_dictionary(kind) else kind for kind in (one, other))
    if _is_number(one) and _is_number(other) and not all(map(pyarrow.types.is_integer, (one, other))):
        return pyarrow.float64()
    schemas = [pyarrow.schema([("", kind)]) for kind in (one, other)]
    try:
        return pyarrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return None


def _schema(file: Path) -> Any:
    return _opened(file, lambda parquet: parquet.schema_arrow, lambda arrow: arrow.schema)


def _sizes(file: Path) -> list[int]:
    """Rows of each row group, or of each batch."""
    return list(
        _opened(
            file,
            lambda parquet: [parquet.metadata.row_group(one).num_rows for one in range(parquet.num_row_groups)],
            lambda arrow: [arrow.get_batch(one).num_rows for one in range(arrow.num_record_batches)],
        )
    )


def cells_of(file: Path) -> int:
    """Rows times columns of a file."""
    return sum(_sizes(file)) * len(_schema(file).names)


def _opened(file: Path, parquet: Callable[[Any], Any], arrow: Callable[[Any], Any]) -> Any:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError("Parquet and Arrow files need pyarrow: pip install 'ecrt[parquet]'.") from error
    with readable(file):
        if file.suffix.lower() in PARQUET:
            with ParquetFile(file) as source:
                return parquet(source)
        with pyarrow.memory_map(str(file)) as source:
            return arrow(pyarrow.ipc.open_file(source))


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Say which file cannot be read: it may be damaged, or have been changed or removed since it was opened first."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, LookupError) as error:
        raise InputError(f"{file.name} cannot be read: {' '.join(str(error).split())}") from error


class ItemRows(RowStream):
    """Rows of something that gives items one by one, such as a torch IterableDataset: x, or (x, label).

    It is iterated once in every pass, and must give the same items each time; their order is that of the items.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items
        first = next(iter(items), None)
        if first is None:
            raise InputError("The dataset is empty.")
        labelled = isinstance(first, tuple | list)
        if labelled and len(first) != 2:
            raise InputError(f"The dataset gives {len(first)} values for each item, a pair (x, y) is needed.")
        x = np.asarray(first[0] if labelled else first)
        if x.ndim != 1 or x.dtype.kind not in "fiub":
            raise InputError(
                f"Item 0 of the dataset has the shape {x.shape} and dtype {x.dtype}: rows of numbers are read one by "
                "one. Images need a Dataset with a length."
            )
        super().__init__(len(x), labelled=labelled)
        self.shape, self.pairs = x.shape, labelled

    def forget_labels(self) -> None:
        """Read rows alone from now on."""
        self.labelled = False

    def _stored(self, rng: np.random.Generator | None) -> Iterator[tuple[Any, Any]]:
        xs: list[Any] = []
        ys: list[Any] = []
        for index, item in enumerate(self.items):
            x, y = item if self.pairs else (item, None)
            if np.shape(x) != self.shape:
                raise InputError(f"Item {index} of the dataset has shape {np.shape(x)}, item 0 has {self.shape}.")
            xs.append(np.asarray(x, dtype=np.float64))
            if self.labelled:
                label = np.asarray(y)
                if label.size != 1:
                    raise InputError(
                        f"Item {index} of the dataset has {label.size} labels: rows that are read one by one have one "
                        "each. Several labels are learned in memory."
                    )
                ys.append(label.item())
            if len(xs) == self.block_rows:
                yield np.stack(xs), np.asarray(ys) if self.labelled else None
                xs, ys = [], []
        if xs:
            yield np.stack(xs), np.asarray(ys) if self.labelled else None
