"""What is to be embedded: images of a collection, or a column of text, loaded one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.data import ImageList, open_image, read_data, read_image_list
from ecrt.errors import InputError

Kind = Literal["image", "text"]


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
    text: str | None = None,
    target: str | None = None,
    split: str | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Items:
    """List what a source holds.

    Parameters
    ----------
    source : a folder of images, or a table with a column of text.
    text, target : columns of a table; the target may be left out.
    split : of a collection that is split, only ``"train"``, ``"val"`` or ``"test"``.
    rows : at most so many, drawn at random; all if ``None``.
    """
    if not source.exists():
        raise InputError(f"There is no file or folder {source}.")
    if source.is_file():
        return _table(source, text, target, split, rows, seed)
    if text is not None or target is not None:
        raise InputError(f"--text and --target are columns of a table; {source.name} is read as a folder of images.")
    listed = read_image_list(source)
    chosen = np.arange(len(listed.files)) if split is None else np.flatnonzero(listed.splits == split)
    if len(chosen) == 0:
        raise InputError(
            f"{source} has nothing in the split {split!r}; there are {sorted(set(listed.splits.tolist()))}."
        )
    return image_items(listed.take(_drawn(chosen, rows, seed)))


def _drawn(rows: NDArray[np.int64], n: int | None, seed: int) -> NDArray[np.int64]:
    if n is None or n >= len(rows):
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[:n])


def image_items(listed: ImageList) -> Items:
    """The images of a list, those of its split ``"test"``, or else ``"val"``, for testing."""
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
    return text_items([str(value) for value in column], ids=chosen.astype(np.str_), y=y, test=None)


def text_items(
    texts: Sequence[str], *, ids: NDArray[np.str_], y: NDArray[Any] | None, test: NDArray[np.bool_] | None
) -> Items:
    """Texts with their names, labels and test rows."""
    return Items(kind="text", load=lambda number: texts[number], ids=ids, y=y, test=test, identity=_digest(texts))


def _digest(parts: Sequence[str]) -> str:
    content = hashlib.sha256()
    for part in parts:
        content.update(part.encode() + b"\0")
    return content.hexdigest()
