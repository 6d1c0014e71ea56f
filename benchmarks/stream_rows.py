"""Data larger than memory: peak memory and time of a fit and of predictions, over four doublings of the rows.

Makes a folder of Parquet files (50 million rows of 16 columns in six classes, the rarest with a row in 2,000) and a
memory-mapped table of 20 GB, most of which are holes that take no room on disk. Each fit and its predictions run in a
process of their own, under one thread: linear and Gaussian heads on plain features and on linear sources, or others
that ``--head`` names. Peak memory is all that the process ever had resident. Seconds are of the processor, user and
system, so that another program on the machine does not count.

    python benchmarks/stream_rows.py FOLDER [--rows 50000000] [--part parquet|mapped|both] [--head linear gaussian mlp]

Files and runs that are in the folder already are used again; it takes 5 GB, and may be deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import in_own_process

SHARES = (0.45, 0.3, 0.2, 0.045, 0.0045, 0.0005)
FILES, DOUBLINGS, GROUP = 16, 4, 250_000
MAPPED = (10_000_000, 256)
FILLED = 100
"""One block in so many of the mapped table is written."""

MOST_GB, MOST_DEVIATION = 2.0, 0.10


class World:
    """Six classes of rows: sources around class means, one of them bent in two classes, then mixed."""

    def __init__(self, n_columns: int) -> None:
        world = np.random.default_rng(5)
        self.mixing = world.normal(size=(n_columns, n_columns))
        self.means = 3.2 / np.sqrt(n_columns) * world.normal(size=(len(SHARES), n_columns))

    def rows(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and their classes."""
        rng = np.random.default_rng(seed)
        y = rng.choice(len(SHARES), n, p=SHARES)
        s = self.means[y] + rng.standard_normal((n, len(self.mixing)))
        s[:, 0] += 0.4 * (y % 2) * s[:, 1] ** 2
        return s @ self.mixing + 100, y


def write_folder(folder: Path, n_rows: int, n_columns: int) -> None:
    """Parquet files of float32, one after the other."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    world, each = World(n_columns), n_rows // FILES
    names = [f"c{place}" for place in range(n_columns)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int8())])
    for number in range(FILES):
        with ParquetWriter(folder / f"part-{number:02}.parquet", schema, compression="none") as file:
            for place, start in enumerate(range(0, each, GROUP)):
                X, y = world.rows(min(GROUP, each - start), 1000 * number + place)
                file.write_table(pa.table([*X.T.astype(np.float32), y.astype(np.int8)], schema=schema))


def write_mapped(path: Path, shape: tuple[int, int]) -> None:
    """A table with holes, and its labels beside it."""
    world, block = World(shape[1]), 8192
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
    labels = np.empty(shape[0], dtype=np.int8)
    for place, start in enumerate(range(0, shape[0], block)):
        n = min(block, shape[0] - start)
        if place % FILLED:
            labels[start : start + n] = np.random.default_rng(place).choice(len(SHARES), n, p=SHARES)
        else:
            table[start : start + n], labels[start : start + n] = world.rows(n, place)
    table.flush()
    np.save(path.with_name("y.npy"), labels)


def measure(kind: str, place: Path, n_files: int, heads: list[str]) -> dict[str, Any]:
    """A fit and predictions of all its rows, in this process."""
    import torch
    from sklearn.metrics import recall_score

    from ecrt import ECRTClassifier, FileRows
    from ecrt.data.streams import ArrayRows, RowStream

    torch.set_num_threads(1)
    rows: RowStream
    if kind == "parquet":
        rows = FileRows(sorted(place.glob("*.parquet"))[:n_files], "label")
        n_rows, new = rows.n_rows, World(rows.n_columns).rows(200_000, 999_999)
        clf_input: Any = (rows,)
    else:
        X, y = np.load(place, mmap_mode="r"), np.load(place.with_name("y.npy"))
        rows, n_rows, clf_input, new = ArrayRows(X, y), len(X), (X, y), World(X.shape[1]).rows(20_000, 999_999)
    before = peak()
    clocks = [(time.perf_counter(), time.process_time())]
    clf = ECRTClassifier(demixing=("none", "linear"), head=heads, random_state=0).fit(*clf_input)
    clocks.append((time.perf_counter(), time.process_time()))
    fitted = peak()
    counts = np.zeros(len(SHARES), dtype=np.int64)
    for block in rows.blocks():
        counts += np.bincount(clf.predict(block.X), minlength=len(SHARES))
    clocks.append((time.perf_counter(), time.process_time()))
    assert counts.sum() == n_rows
    fresh = np.asarray(new[0], dtype=np.float32).astype(np.float64)
    (_, at), (_, fit_end), (_, end) = clocks
    return {
        "rows": n_rows,
        "columns": rows.n_columns,
        "gb_before": before,
        "gb_fit": fitted,
        "gb_fit_and_predict": peak(),
        "fit_seconds": fit_end - at,
        "predict_seconds": end - fit_end,
        "wall_seconds": clocks[2][0] - clocks[0][0],
        "recalls_on_new_rows": recall_score(new[1], clf.predict(_like(fresh, clf)), average=None).round(4).tolist(),
        "members": {one.name: round(one.weight, 3) for one in clf.members_},
    }


def _like(X: np.ndarray, clf: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=clf.feature_names_in_) if hasattr(clf, "feature_names_in_") else X


def peak() -> float:
    """GB that the process has had resident at most."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 3)


def line(found: list[dict[str, Any]], what: str) -> dict[str, float]:
    """The line through the times: what a fit costs at least, what a million rows more cost, and how far times are off.

    A deviation is a share of the time that the line gives. The growth over the last doubling is of the time beyond what
    a fit costs at least.
    """
    n, t = (np.array([one[name] for one in found]) for name in ("rows", what))
    weight = 1 / t
    slope, start = np.polyfit(n / 1e6, t, 1, w=weight)
    given = start + slope * n / 1e6
    return {
        "start_seconds": float(start),
        "seconds_per_million_rows": float(slope),
        "largest_deviation": float(np.abs(t / given - 1).max()),
        "last_doubling": float((t[-1] - start) / (t[-2] - start)),
    }


def run(folder: Path, kind: str, place: Path, heads: list[str], n_files: int = 0) -> dict[str, Any]:
    """A measurement in its own process, or what it gave before."""
    kept = folder / f"{kind}-{n_files}-{'-'.join(heads)}.json"
    if not kept.exists():
        kept.write_text(json.dumps(in_own_process(__file__, "measure", kind, place, n_files, *heads)))
    print(kept.read_text(), flush=True)
    return json.loads(kept.read_text())


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--part", choices=["parquet", "mapped", "both"], default="both")
    parser.add_argument("--head", nargs="+", default=["linear", "gaussian"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    chosen = parser.parse_args()
    folder: Path = chosen.folder.resolve()
    document: dict[str, Any] = {
        "command": f"python benchmarks/stream_rows.py FOLDER --rows {chosen.rows}", "heads": chosen.head,
    }  # fmt: skip
    if chosen.part != "mapped":
        if not list(folder.glob("*.parquet")):
            write_folder(folder, chosen.rows, 16)
        found = [run(folder, "parquet", folder, chosen.head, FILES >> one) for one in reversed(range(DOUBLINGS + 1))]
        document["parquet"] = {
            "bytes": sum(file.stat().st_size for file in folder.glob("*.parquet")),
            "runs": found,
            "fit": line(found, "fit_seconds"),
            "predict": line(found, "predict_seconds"),
        }
        off = [document["parquet"][what]["largest_deviation"] for what in ("fit", "predict")]
        document["linear_within_10_percent"] = max(off) < MOST_DEVIATION
    if chosen.part != "parquet":
        table = folder / "X.npy"
        if not table.exists():
            write_mapped(table, MAPPED)
        size = {"bytes": table.stat().st_size, "bytes_on_disk": table.stat().st_blocks * 512}
        document["mapped"] = size | run(folder, "mapped", table, chosen.head)
    runs = [*document.get("parquet", {}).get("runs", ()), *([document["mapped"]] if "mapped" in document else [])]
    document["largest_gb"] = max(one["gb_fit_and_predict"] for one in runs)
    document["within_2_gb"] = document["largest_gb"] < MOST_GB
    text = json.dumps(document, indent=1)
    (chosen.out / "stream_rows.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])))
    else:
        main()
