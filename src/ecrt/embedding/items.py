"""What is to be embedded: images of a collection, or a column of text, loaded one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.data import ImageList, open_image, read_arxiv, read_data, read_image_list
from ecrt.errors import InputError

Kind = Literal["image", "text"]
SourceLayout = Literal["folder", "tiny-imagenet", "inaturalist", "arxiv", "table"]
LAYOUTS: tuple[SourceLayout, ...] = ("folder", "tiny-imagenet", "inaturalist", "arxiv", "table")
ARXIV_NAME = "arxiv-metadata"
"""How the name of Kaggle's file begins."""


@dataclass(frozen=True, kw_only=True)
class Items:
    """Images or texts.

    Attributes
    ----------
    load : gives one of them by its number.
    ids : what names each.
    y : classes, or labels with separators; ``None`` where there are none.
    test : which of them are for testing; ``None`` where the source does not say.
    identity : changes when any of them does.
    """

    kind: Kind
    load: Callable[[int], Any]
    ids: NDArray[np.str_]
    y: NDArray[Any] | None
    test: NDArray[np.bool_] | None
    identity: str

    def __len__(self) -> int:
        return len(self.ids)


def read_items(
    source: Path,
    *,
    layout: str | None = None,
    text: str | None = None,
    target: str | None = None,
    split: str | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Items:
    """List what a source holds.

    Parameters
    ----------
    source : a folder of images, iNaturalist's annotations, Kaggle's arXiv file, or a table with a column of text.
    layout : how it is laid out; told from its name and from what is there if ``None``.
    text, target : columns of a table; the target may be left out.
    split : of a collection that is split, only ``"train"``, ``"val"`` or ``"test"``.
    rows : at most so many, drawn at random; all if ``None`` (of arXiv, the paper's 160,000).
    """
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"The layout {layout!r} is not known: choose one of {', '.join(LAYOUTS)}.")
    if not source.exists():
        raise InputError(f"There is no file or folder {source}.")
    found = layout or _layout_of(source)
    if found != "table" and (text is not None or target is not None):
        raise InputError(f"--text and --target are columns of a table; {source.name} is read as {found or 'images'}.")
    if found == "arxiv":
        return _abstracts(source, split, rows, seed)
    if found == "table":
        return _table(source, text, target, split, rows, seed)
    listed = read_image_list(source, found)
    chosen = _drawn(_of_split(listed.splits, split, source), rows, seed)
    return _images(listed.take(chosen))


def _layout_of(source: Path) -> SourceLayout | None:
    """Kaggle's file by its name, tables by being files, and collections of images told apart by their reader."""
    if source.is_dir():
        return None
    if source.suffix == ".json":
        return "arxiv" if source.name.startswith(ARXIV_NAME) else "inaturalist"
    return "table"


def _of_split(splits: NDArray[np.str_], split: str | None, source: Path) -> NDArray[np.int64]:
    if split is None:
        return np.arange(len(splits))
    chosen = np.flatnonzero(splits == split)
    if len(chosen) == 0:
        raise InputError(f"{source} has nothing in the split {split!r}; there are {sorted(set(splits.tolist()))}.")
    return chosen


def _drawn(rows: NDArray[np.int64], n: int | None, seed: int) -> NDArray[np.int64]:
    if n is None or n >= len(rows):
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[:n])


def _images(listed: ImageList) -> Items:
    paths = [listed.root / file for file in listed.files]
    stats = (path.stat() for path in paths)
    identity = _digest([f"{f}:{s.st_size}:{s.st_mtime_ns}" for f, s in zip(listed.files, stats, strict=True)])
    held_out = "test" if (listed.splits == "test").any() else "val"
    test = listed.splits == held_out
    return Items(
        kind="image",
        load=lambda number: open_image(paths[number]),
        ids=np.array(listed.files),
        y=listed.labels,
        test=test if test.any() and not test.all() else None,
        identity=identity,
    )


def _abstracts(source: Path, split: str | None, rows: int | None, seed: int) -> Items:
    found = read_arxiv(source, seed=seed, **({} if rows is None else {"n_rows": rows}))
    splits = np.where(found.test, "test", "train")
    chosen = _of_split(splits, split, source)
    return _texts(
        [found.texts[row] for row in chosen],
        ids=np.array(found.ids)[chosen],
        y=found.joined_labels[chosen],
        test=found.test if split is None else None,
    )


def _table(source: Path, text: str | None, target: str | None, split: str | None, rows: int | None, seed: int) -> Items:
    if source.suffix == ".npz":
        raise InputError(f"{source.name} holds arrays of numbers: there is nothing to embed.")
    if text is None:
        raise InputError(f"Name the column of {source.name} that holds the text: --text COL.")
    if split is not None:
        raise InputError(f"{source.name} is a table and has no splits: leave --split out.")
    data = read_data(source, target=() if target is None else (target,), ids=(text,), columns=())
    chosen = _drawn(np.arange(len(data.ids)), rows, seed)
    column = data.ids[text].iloc[chosen]
    empty = np.flatnonzero((column.isna() | (column == "")).to_numpy())
    if len(empty):
        raise InputError(f"{source.name}: row {chosen[empty[0]]} has no text in {text!r}.")
    y = None if data.y is None else data.y[chosen]
    if y is not None and y.dtype == object:
        y = np.array([str(value) for value in y])
    return _texts([str(value) for value in column], ids=chosen.astype(np.str_), y=y, test=None)


def _texts(texts: Sequence[str], **further: Any) -> Items:
    return Items(kind="text", load=lambda number: texts[number], identity=_digest(texts), **further)


def _digest(parts: Sequence[str]) -> str:
    content = hashlib.sha256()
    for part in parts:
        content.update(part.encode() + b"\0")
    return content.hexdigest()
