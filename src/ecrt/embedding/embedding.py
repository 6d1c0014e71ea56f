"""Items through a backbone, chunk by chunk: finished chunks survive an interruption, and the result is the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.embedding.backbones import Backbone
from ecrt.embedding.items import Items
from ecrt.errors import InputError
from ecrt.training import Progress, SilentProgress

__all__ = ["Embedded", "embed"]

BATCHES_PER_CHUNK = 8
PLAN = "plan.json"


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
    """Write features to an NPZ file with X, ids, and as far as they are known y and test.

    Rows are cut into chunks in a fixed way, and a chunk is kept in OUTPUT.parts as soon as it is finished: the same
    call goes on with those that are missing. The folder goes when the file is written. Chunks of other items, weights
    or batches are not used.

    Parameters
    ----------
    threads : that open and prepare images while the network waits.
    """
    if backbone.takes != items.kind:
        raise InputError(f"{backbone.name} takes {backbone.takes}s, and the source holds {items.kind}s.")
    progress = progress or SilentProgress()
    parts = _open_parts(output, items, backbone, batch_size)
    size = batch_size * BATCHES_PER_CHUNK
    starts = range(0, len(items), size)
    kept = 0
    progress.start("Embedding", -(-len(items) // batch_size))
    with ThreadPoolExecutor(threads) as pool:
        for start in starts:
            rows = range(start, min(start + size, len(items)))
            file = parts / f"{start:09d}.npy"
            if file.is_file():
                kept += len(rows)
                for _ in range(0, len(rows), batch_size):
                    progress.advance("from an earlier run")
                continue
            chunk = []
            for batch in _batches(rows, batch_size):
                chunk.append(_checked(backbone, items, batch, pool))
                progress.advance()
            _write_array(file, np.concatenate(chunk))
    progress.finish()
    X = np.concatenate([np.load(parts / f"{start:09d}.npy") for start in starts])
    _write(output, X, items, backbone)
    shutil.rmtree(parts)
    return Embedded(output, len(X), X.shape[1], kept)


def _batches(rows: range, size: int) -> Iterator[range]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _checked(backbone: Backbone, items: Items, batch: range, pool: ThreadPoolExecutor) -> NDArray[np.float32]:
    prepared = list(pool.map(lambda row: backbone.prepare(items.load(row)), batch))
    found = backbone.encode(prepared)
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(wrong):
        raise InputError(f"{backbone.name} gives no finite features of {items.ids[batch[wrong[0]]]}.")
    return found


def _open_parts(output: Path, items: Items, backbone: Backbone, batch_size: int) -> Path:
    """The folder of finished chunks, emptied if they are of something else."""
    plan = {
        "backbone": backbone.name,
        "weights": backbone.identity,
        "items": items.identity,
        "rows": len(items),
        "batch_size": batch_size,
    }
    parts = output.with_name(f"{output.name}.parts")
    try:
        if parts.is_dir() and _read_plan(parts) != plan:
            shutil.rmtree(parts)
        parts.mkdir(parents=True, exist_ok=True)
        _write_text(parts / PLAN, json.dumps(plan, indent=1))
    except OSError as error:
        raise InputError(f"Cannot write to {parts}: {error.strerror or error}.") from error
    return parts


def _read_plan(parts: Path) -> Any:
    try:
        return json.loads((parts / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(output: Path, X: NDArray[np.float32], items: Items, backbone: Backbone) -> None:
    arrays: dict[str, Any] = {"X": X, "ids": items.ids, "backbone": np.array(backbone.name)}
    arrays |= {} if items.y is None else {"y": items.y}
    arrays |= {} if items.test is None else {"test": items.test}
    half = output.with_name(f"{output.name}.half")
    with half.open("wb") as file:
        np.savez(file, **arrays)
    half.replace(output)


def _write_array(file: Path, array: NDArray[np.float32]) -> None:
    half = file.with_suffix(".half")
    with half.open("wb") as out:
        np.save(out, array)
    half.replace(file)


def _write_text(file: Path, text: str) -> None:
    half = file.with_suffix(".half")
    half.write_text(text, encoding="utf-8")
    half.replace(file)
