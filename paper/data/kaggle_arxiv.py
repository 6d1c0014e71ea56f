"""arXiv's metadata as Kaggle hands it out: a JSON object on every line, and the paper's choice of labels from it."""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.data import LABEL_SEPARATOR
from ecrt.errors import InputError

__all__ = ["Abstracts", "nearly_balanced_rows", "read_arxiv"]

Rows = NDArray[np.int64]

LEAST_ROWS = 20
"""The supplement leaves labels with fewer rows out."""

TEST_ROWS = 10
"""Test rows that every label has at least; the supplement: 10 to 50."""

N_ROWS = 160_000
"""Abstracts in the paper."""


@dataclass(frozen=True, kw_only=True)
class Abstracts:
    """Texts with several labels each.

    Attributes
    ----------
    texts : title and abstract.
    y : indicators, a column for each of ``names``.
    test : rows of a nearly balanced test set.
    """

    texts: tuple[str, ...]
    ids: tuple[str, ...]
    y: NDArray[np.uint8]
    names: NDArray[np.str_]
    test: NDArray[np.bool_]

    @property
    def joined_labels(self) -> NDArray[np.str_]:
        """Labels of each row as one text, which ``ecrt fit --task multilabel`` reads."""
        return np.array([LABEL_SEPARATOR.join(self.names[row > 0]) for row in self.y])


def read_arxiv(
    file: Path,
    *,
    n_rows: int | None = N_ROWS,
    least: int = LEAST_ROWS,
    test_rows: int = TEST_ROWS,
    seed: int = 0,
) -> Abstracts:
    """Abstracts drawn at random, with the labels that enough of them have (supplement E.2).

    The file has millions of lines: only their categories and places are kept, and the texts of the rows drawn are read
    in a second pass.

    Parameters
    ----------
    file : arxiv-metadata-oai-snapshot.json.
    n_rows : abstracts to draw; ``None`` for all. Rows left without a label are dropped from them.
    least : labels of fewer drawn rows are left out.
    test_rows : rows that the test set has of every label, at least.
    """
    rng = np.random.default_rng(seed)
    places, found = _index(file)
    drawn = np.sort(rng.permutation(len(found))[:n_rows])
    categories = [found[row].split() for row in drawn]
    names, counts = np.unique([name for row in categories for name in row], return_counts=True)
    names = names[counts >= least]
    if len(names) == 0:
        raise InputError(f"{file}: no category has {least} of the {len(drawn)} rows drawn; draw more rows.")
    place = {name: column for column, name in enumerate(names.tolist())}
    y = np.zeros((len(drawn), len(names)), dtype=np.uint8)
    for at, row in enumerate(categories):
        y[at, [place[name] for name in row if name in place]] = 1
    labelled = y.any(axis=1)
    texts, ids = _texts(file, places[drawn[labelled]])
    y = y[labelled]
    test = np.zeros(len(y), dtype=bool)
    test[nearly_balanced_rows(y, test_rows, rng)] = True
    return Abstracts(texts=texts, ids=ids, y=y, names=names.astype(np.str_), test=test)


def nearly_balanced_rows(y: NDArray[np.uint8], least: int, rng: np.random.Generator) -> Rows:
    """Rows that hold every label ``least`` times or a little more; half of a label's rows at most are taken for it.

    Labels are served from the rarest on, each with rows drawn at random: a row with several labels counts for all.
    """
    counts = y.sum(axis=0, dtype=np.int64)
    chosen = np.zeros(len(y), dtype=bool)
    for label in np.argsort(counts, kind="stable"):
        missing = min(least, int(counts[label]) // 2) - int(y[chosen, label].sum(dtype=np.int64))
        if missing > 0:
            free = np.flatnonzero((y[:, label] > 0) & ~chosen)
            chosen[rng.permutation(free)[:missing]] = True
    return np.flatnonzero(chosen)


def _index(file: Path) -> tuple[Rows, list[str]]:
    """Number and first byte of every line, and its categories; equal ones share one text, since there are millions."""
    if not file.is_file():
        raise InputError(f"There is no file {file}.")
    places, categories = array("q"), []
    with file.open("rb") as lines:
        start = 0
        for number, line in enumerate(lines, start=1):
            if line.strip():
                found = _field(file, number, _record(file, number, line), "categories")
                places.extend((number, start))
                categories.append(sys.intern(found))
            start += len(line)
    if not categories:
        raise InputError(f"{file} has no lines.")
    return np.array(places, dtype=np.int64).reshape(-1, 2), categories


def _texts(file: Path, places: Rows) -> tuple[tuple[str, ...], tuple[str, ...]]:
    texts, ids = [], []
    with file.open("rb") as lines:
        for number, start in places.tolist():
            lines.seek(start)
            record = _record(file, number, lines.readline())
            title, abstract = (_field(file, number, record, key) for key in ("title", "abstract"))
            # Both are broken into lines, and abstracts are indented.
            texts.append(" ".join(f"{title}. {abstract}".split()))
            ids.append(_field(file, number, record, "id"))
    return tuple(texts), tuple(ids)


def _record(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"{file}, line {number}: no JSON ({error}).") from error
    if not isinstance(record, dict):
        raise InputError(f"{file}, line {number}: expected an object with categories, title and abstract.")
    return record


def _field(file: Path, number: int, record: dict[str, Any], key: str) -> str:
    if not isinstance(record.get(key), str) or not record[key].strip():
        raise InputError(f"{file}, line {number}: no text under {key!r}.")
    return str(record[key])
