"""Features of images or of a column of text, computed chunk by chunk.

After an interruption, finished chunks are used again, with the same result.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from ecrt.data import ImageList, open_image, read_data, read_image_list
from ecrt.disk import check_writable, locked, remove_litter, replacing, write_arrays, write_json
from ecrt.embedding.backbones import Backbone, Kind
from ecrt.errors import InputError, warn_user
from ecrt.training import Progress

BATCHES_PER_CHUNK = 8
PLAN, CHUNK = "plan.json", re.compile(r"\d{9}\.npy")


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
        kind="image", load=lambda number: open_image(paths[number]), ids=np.array(listed.files), y=listed.labels,
        test=test if test.any() and not test.all() else None, identity=identity,
    )  # fmt: skip


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
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# --- features ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Embedded:
    """What was written.

    Attributes
    ----------
    kept : rows that an earlier, interrupted run had finished.
    """

    file: Path
    rows: int
    features: int
    kept: int


def embed(
    items: Items,
    backbone: Backbone,
    output: Path,
    *,
    batch_size: int = 64,
    threads: int = 4,
    progress: Progress | None = None,
) -> Embedded:
    """Write features to an NPZ file with X, ids, and y and test if they are known.

    Rows are cut into chunks in a fixed way. A finished chunk is kept in the folder OUTPUT.parts, and the same call
    continues with the missing ones. The folder is removed when the file is written. Chunks of other items, weights or
    batch sizes are not used.

    Parameters
    ----------
    threads : number of threads that open and prepare images.
    """
    if backbone.takes != items.kind:
        raise InputError(f"{backbone.name} takes {backbone.takes}s, and the source holds {items.kind}s.")
    check_writable(output)
    parts = output.with_name(f"{output.name}.parts")
    with locked(parts, wait=False):
        _claim_parts(parts, items, backbone, batch_size)
        found = _embed(items, backbone, output, parts, batch_size, threads, progress or Progress())
        shutil.rmtree(parts)
    return found


def _embed(
    items: Items, backbone: Backbone, output: Path, parts: Path, batch_size: int, threads: int, progress: Progress
) -> Embedded:
    kept, numbers = 0, range(len(items))
    chunks = [numbers[part] for part in gen_batches(len(items), batch_size * BATCHES_PER_CHUNK)]
    files = [parts / f"{chunk.start:09d}.npy" for chunk in chunks]
    progress.start("Embedding", -(-len(items) // batch_size))
    with ThreadPoolExecutor(threads) as pool:
        for file, chunk in zip(files, chunks, strict=True):
            batches = [chunk[part] for part in gen_batches(len(chunk), batch_size)]
            if file.is_file() and _is_whole(file, len(chunk)):
                kept += len(chunk)
                for _ in batches:
                    progress.advance("from an earlier run")
                continue
            found = []
            for batch in batches:
                prepared = list(pool.map(lambda number: backbone.prepare(items.load(number)), batch))
                found.append(backbone.encode(prepared))
                wrong = np.flatnonzero(~np.isfinite(found[-1]).all(axis=1))
                if len(wrong):
                    raise InputError(f"{backbone.name} gives NaN or infinity for {items.ids[batch[wrong[0]]]}.")
                progress.advance()
            with replacing(file) as unfinished:
                np.save(unfinished, np.concatenate(found))
    progress.finish()
    X = np.concatenate([np.load(file) for file in files])
    arrays = {"X": X, "ids": items.ids, "backbone": np.array(backbone.name), "y": items.y, "test": items.test}
    write_arrays(output, {name: array for name, array in arrays.items() if array is not None}, compressed=False)
    return Embedded(output, len(X), X.shape[1], kept)


def _claim_parts(parts: Path, items: Items, backbone: Backbone, batch_size: int) -> None:
    """Empty the folder of finished chunks if they belong to something else."""
    names = ("backbone", "weights", "items", "rows", "batch_size")
    plan = dict(zip(names, (backbone.name, backbone.identity, items.identity, len(items), batch_size), strict=True))
    remove_litter(parts)
    strange = [file.name for file in parts.iterdir() if file.name != PLAN and not CHUNK.fullmatch(file.name)]
    if strange:
        raise InputError(f"The folder {parts} is used for finished parts, and holds other files: {strange[:5]}.")
    if _read_plan(parts) != plan:
        for file in parts.iterdir():
            file.unlink()
        write_json(parts / PLAN, plan)


def _is_whole(file: Path, rows: int) -> bool:
    """Whether a chunk was finished; warns if it cannot be read."""
    try:
        if len(np.load(file)) == rows:
            return True
    except (OSError, ValueError, EOFError):
        pass
    warn_user(f"{file} cannot be read; these rows are embedded again.")
    return False


def _read_plan(parts: Path) -> Any:
    try:
        return json.loads((parts / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
