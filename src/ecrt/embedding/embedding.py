"""Compute features chunk by chunk. After an interruption, finished chunks are used again, with the same result."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from ecrt.disk import check_writable, locked, remove_litter, replacing, write_arrays, write_json
from ecrt.embedding.backbones import Backbone
from ecrt.embedding.items import Items
from ecrt.errors import InputError, warn_user
from ecrt.training import Progress

BATCHES_PER_CHUNK = 8
PLAN, CHUNK = "plan.json", re.compile(r"\d{9}\.npy")


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
    size = batch_size * BATCHES_PER_CHUNK
    starts = range(0, len(items), size)
    kept = 0
    progress.start("Embedding", -(-len(items) // batch_size))
    with ThreadPoolExecutor(threads) as pool:
        for start in starts:
            rows = range(start, min(start + size, len(items)))
            file = parts / f"{start:09d}.npy"
            if file.is_file() and _read_chunk(file, len(rows)) is not None:
                kept += len(rows)
                for _ in range(0, len(rows), batch_size):
                    progress.advance("from an earlier run")
                continue
            chunk = []
            for batch in gen_batches(len(rows), batch_size):
                chunk.append(_checked(backbone, items, rows[batch], pool))
                progress.advance()
            with replacing(file) as unfinished:
                np.save(unfinished, np.concatenate(chunk))
    progress.finish()
    X = np.concatenate([np.load(parts / f"{start:09d}.npy") for start in starts])
    _write(output, X, items, backbone)
    return Embedded(output, len(X), X.shape[1], kept)


def _checked(backbone: Backbone, items: Items, batch: range, pool: ThreadPoolExecutor) -> NDArray[np.float32]:
    prepared = list(pool.map(lambda row: backbone.prepare(items.load(row)), batch))
    found = backbone.encode(prepared)
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(wrong):
        raise InputError(f"{backbone.name} gives no finite features of {items.ids[batch[wrong[0]]]}.")
    return found


def _claim_parts(parts: Path, items: Items, backbone: Backbone, batch_size: int) -> None:
    """Empty the folder of finished chunks if they belong to something else."""
    plan = {
        "backbone": backbone.name,
        "weights": backbone.identity,
        "items": items.identity,
        "rows": len(items),
        "batch_size": batch_size,
    }
    remove_litter(parts)
    strange = [file.name for file in parts.iterdir() if file.name != PLAN and not CHUNK.fullmatch(file.name)]
    if strange:
        raise InputError(f"The folder {parts} is used for finished parts, and holds other files: {strange[:5]}.")
    if _read_plan(parts) != plan:
        for file in parts.iterdir():
            file.unlink()
        write_json(parts / PLAN, plan)


def _read_chunk(file: Path, rows: int) -> NDArray[np.float32] | None:
    """A finished chunk; ``None``, with a warning, if it cannot be read."""
    try:
        found: NDArray[np.float32] = np.load(file)
        if len(found) == rows:
            return found
    except (OSError, ValueError, EOFError):
        pass
    warn_user(f"{file} cannot be read; these rows are embedded again.")
    return None


def _read_plan(parts: Path) -> Any:
    try:
        return json.loads((parts / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(output: Path, X: NDArray[np.float32], items: Items, backbone: Backbone) -> None:
    arrays: dict[str, Any] = {"X": X, "ids": items.ids, "backbone": np.array(backbone.name)}
    arrays |= {} if items.y is None else {"y": items.y}
    arrays |= {} if items.test is None else {"test": items.test}
    write_arrays(output, arrays, compressed=False)
