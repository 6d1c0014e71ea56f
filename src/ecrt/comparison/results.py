"""What a comparison found: figures of every run, tests of differences, and the answer in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.comparison.store import RESULTS_FILE, TIMES_FILE, Store
from ecrt.disk import write_json
from ecrt.errors import InputError
from ecrt.io import BadContentError, read_json, typed
from ecrt.metrics import PRIORS, Estimate, Pair, PriorName, corrected_estimate, paired, single_numbers

Values = list[float | None]


@dataclass(frozen=True)
class Measure:
    """A metric for readers: its label, its direction, and whether settings may be chosen by it."""

    label: str
    higher_is_better: bool = True
    tunable: bool = True


MEASURES: dict[str, Measure] = {
    "balanced_accuracy": Measure("Balanced accuracy"),
    "top1": Measure("Accuracy"),
    "top5": Measure("Top-5 accuracy"),
    "macro_f1": Measure("Macro F1"),
    "g_mean": Measure("G-mean"),
    "mean_average_precision": Measure("Mean average precision"),
    "average_precision": Measure("Average precision of the rarer class"),
    "roc_auc": Measure("ROC AUC"),
    "nll": Measure("NLL", higher_is_better=False),
    "balanced_nll": Measure("Balanced NLL", higher_is_better=False),
    # A temperature fitted on the validation rows cannot be judged on them.
    "nll_scaled": Measure("NLL, temperature-scaled", higher_is_better=False, tunable=False),
    "balanced_nll_scaled": Measure("Balanced NLL, temperature-scaled", higher_is_better=False, tunable=False),
    "ece": Measure("Calibration error", higher_is_better=False),
}
"""By the name that ``--metric`` takes and that ``ecrt.metrics.prediction_metrics`` gives."""

SHOWN = ("balanced_accuracy", "macro_f1", "g_mean", "top1", "mean_average_precision", "nll", "ece")
"""Columns of the table; the file of results has all."""


def choose_measure(name: str, n_classes: int) -> str:
    """The metric's name with underscores; hyphens are accepted too.

    >>> choose_measure("macro-f1", 3)
    'macro_f1'
    """
    key = name.strip().lower().replace("-", "_").replace(" ", "_")
    only = {"average_precision": n_classes == 2, "roc_auc": n_classes == 2, "top5": n_classes > 5}
    known = [measure for measure, about in MEASURES.items() if about.tunable and only.get(measure, True)]
    if key not in known:
        raise InputError(f"{name!r} is not a metric for {n_classes} classes. Known: {', '.join(known)}.")
    return key


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """The runs of one method, in the order of seeds.

    Attributes
    ----------
    error : of the first run that failed; a method with one is left out of the tests.
    parameters, validation, trials : what tuning chose, the metric it reached on the validation rows that chose it (the
        best of all trials, so no measure of quality: test rows have that), and the trials run.
    metrics : prior, then metric, to a value for each seed.
    recalls : prior to the recall of each class, for each seed; None where it has no test rows.
    """

    label: str
    error: str
    parameters: list[dict[str, Any]]
    validation: Values
    trials: list[dict[str, int]]
    metrics: dict[str, dict[str, Values]]
    recalls: dict[str, list[Values]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods on the same splits of one table.

    Attributes
    ----------
    settings : what was asked for.
    data : rows, columns, class labels, their counts and test rows a split, and test rows per training row.
    warnings : what stands in the way of a fair answer.
    methods : by name.
    times : seconds of each method and seed; the only part that another run of the same command may change.
    """

    settings: dict[str, Any]
    data: dict[str, Any]
    warnings: list[str]
    methods: dict[str, MethodResult]
    times: dict[str, Any]

    @property
    def metric(self) -> str:
        """The metric that settings were chosen by and that the verdict is about."""
        return str(self.settings["metric"])

    @property
    def prior(self) -> PriorName:
        """The class prior that settings were chosen under."""
        return "training" if self.settings["prior"] == "training" else "balanced"

    @property
    def reference(self) -> str:
        """The method that the others must beat."""
        return str(self.settings["reference"])

    @property
    def sound(self) -> list[str]:
        """Methods without a failed run."""
        return [name for name, result in self.methods.items() if not result.error]

    def label(self, method: str) -> str:
        """Name of a method for readers."""
        return self.methods[method].label

    def estimate(self, method: str, metric: str, prior: PriorName) -> Estimate | None:
        """Mean over seeds with its interval; None where a seed has no value."""
        values = self.methods[method].metrics[prior].get(metric, [])
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return corrected_estimate(known, self.data["test_to_train"])

    def against_reference(self, prior: PriorName, metric: str | None = None) -> list[Pair]:
        """Every other method against the reference, tested together."""
        if self.reference not in self.sound:
            return []
        return self._paired([(name, self.reference) for name in self.sound if name != self.reference], prior, metric)

    def all_pairs(self, prior: PriorName, metric: str | None = None) -> list[Pair]:
        """Every method against every other, the better one first, tested together."""
        ranked = self.ranking(prior, metric)
        return self._paired(list(combinations(ranked, 2)), prior, metric)

    def ranking(self, prior: PriorName, metric: str | None = None) -> list[str]:
        """Methods without a failed run, the best mean first."""
        metric = metric or self.metric
        found = {name: self.estimate(name, metric, prior) for name in self.sound}
        sign = -1 if MEASURES[metric].higher_is_better else 1
        return sorted(
            (name for name, estimate in found.items() if estimate is not None),
            key=lambda name: sign * found[name].mean,  # type: ignore[union-attr]
        )

    def class_gains(self, prior: PriorName) -> dict[str, list[Estimate | None]]:
        """For each method the gain in recall of every class over the reference; None where a class was not tested."""
        if self.reference not in self.sound:
            return {}
        base = _columns(self.methods[self.reference].recalls[prior])
        found: dict[str, list[Estimate | None]] = {}
        for name in self.sound:
            gains = _columns(self.methods[name].recalls[prior]) - base
            tested = [values[np.isfinite(values)] for values in gains]
            found[name] = [
                corrected_estimate(values, self.data["test_to_train"]) if len(values) else None for values in tested
            ]
        return found

    def mean_recalls(self, method: str, prior: PriorName) -> list[float | None]:
        """Recall of each class, mean over the seeds that test it."""
        tested = [values[np.isfinite(values)] for values in _columns(self.methods[method].recalls[prior])]
        return [float(values.mean()) if len(values) else None for values in tested]

    def verdict(self, prior: PriorName | None = None) -> dict[str, Any]:
        """What can be said under a class prior: that of the settings, if not given.

        ``ahead`` and ``behind`` name methods that differ from the reference by more than noise, the largest difference
        first; ``nearest`` is the best of the others, where none is ahead. ``leader`` has the best mean. With all pairs
        tested together, it ``beats`` some methods and is ``level`` with others. ``failed`` holds errors by method.
        """
        prior = prior or self.prior
        pairs = self.against_reference(prior)
        significant = sorted((pair for pair in pairs if pair.beyond_noise), key=lambda pair: -abs(pair.gain.mean))
        ahead = [pair.first for pair in significant if pair.gain.mean > 0]
        leader = self.ranking(prior)[:1]
        mine = [pair for pair in self.all_pairs(prior) if [pair.first] == leader]
        return {
            "ahead": ahead,
            "behind": [pair.first for pair in significant if pair.gain.mean < 0],
            "nearest": max(pairs, key=lambda pair: pair.gain.mean).first if pairs and not ahead else None,
            "leader": leader[0] if mine else None,
            "beats": [pair.second for pair in mine if pair.beyond_noise],
            "level": [pair.second for pair in mine if not pair.beyond_noise],
            "failed": {name: result.error for name, result in self.methods.items() if result.error},
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything but the times, in plain values."""
        return {
            "settings": self.settings,
            "data": self.data,
            "warnings": self.warnings,
            "methods": {name: asdict(result) for name, result in self.methods.items()},
            "table": {prior: self._table(prior) for prior in PRIORS},
            "against_reference": {prior: _plain_pairs(self.against_reference(prior)) for prior in PRIORS},
            "all_pairs": {prior: _plain_pairs(self.all_pairs(prior)) for prior in PRIORS},
            "verdict": {prior: self.verdict(prior) for prior in PRIORS},
        }

    def write(self, folder: Path) -> None:
        """Write ``results.json``, the same whenever and however often it is made, and ``times.json``."""
        write_json(folder / RESULTS_FILE, self.as_dict())
        write_json(folder / TIMES_FILE, self.times)

    @classmethod
    def read(cls, folder: Path) -> Comparison:
        """What ``write`` has written."""
        if not (folder / RESULTS_FILE).is_file():
            raise InputError(f"The folder {folder} holds no finished comparison.")
        found = read_json(folder / RESULTS_FILE, dict[str, Any])
        kept = {name: found.get(name) for name in ("settings", "data", "warnings", "methods")}
        try:
            comparison: Comparison = typed(
                {**kept, "times": read_json(folder / TIMES_FILE)}, cls, "It is no comparison"
            )
        except BadContentError as error:
            raise InputError(f"{folder / RESULTS_FILE} cannot be read. {error.problem}") from error
        return comparison

    def _paired(self, pairs: list[tuple[str, str]], prior: PriorName, metric: str | None) -> list[Pair]:
        metric = metric or self.metric
        values = {name: self.methods[name].metrics[prior].get(metric, []) for name in self.sound}
        usable = {name: [float(v) for v in row if v is not None] for name, row in values.items() if None not in row}
        return paired(
            [pair for pair in pairs if usable.get(pair[0]) and usable.get(pair[1])], usable,
            higher_is_better=MEASURES[metric].higher_is_better, test_to_train=self.data["test_to_train"],
        )  # fmt: skip

    def _table(self, prior: PriorName) -> dict[str, Any]:
        shown = dict.fromkeys((self.metric, *SHOWN))
        return {
            name: {metric: _plain_estimate(self.estimate(name, metric, prior)) for metric in shown}
            for name in self.sound
        }


def collect(
    store: Store, settings: dict[str, Any], data: dict[str, Any], warnings: list[str], labels: Mapping[str, str],
    classes: Sequence[Sequence[int]],
) -> Comparison:  # fmt: skip
    """Measure the predictions on disk.

    Parameters
    ----------
    labels : of the methods, by name.
    classes : for each seed, the classes of its training rows, in the order of the columns of its predictions.
    """
    methods: dict[str, MethodResult] = {}
    times: dict[str, list[dict[str, float]]] = {}
    ratios: list[float] = []
    for name, label in labels.items():
        records, found = [], []
        for seed, present in enumerate(classes):
            record, predictions = store.read_run(name, seed)
            records.append(record)
            ratios.append(record["test_rows"] / record["train_rows"])
            times.setdefault(name, []).append(store.read_seconds(name, seed))
            if predictions is not None:
                found.append({prior: predictions.metrics(prior) for prior in PRIORS} | {"classes": present})
        error = next((record["error"] for record in records if record["error"]), "")
        methods[name] = MethodResult(
            label=label,
            error=error,
            parameters=[record["parameters"] for record in records],
            validation=[record["validation"] for record in records],
            trials=[record["trials"] for record in records],
            metrics={} if error else {prior: _metrics(found, prior) for prior in PRIORS},
            recalls={} if error else {prior: _recalls(found, prior, len(data["classes"])) for prior in PRIORS},
        )
    data = data | {"test_to_train": float(np.mean(ratios))}
    return Comparison(settings=settings, data=data, warnings=warnings, methods=methods, times=times)


def _metrics(found: list[dict[str, Any]], prior: str) -> dict[str, Values]:
    rows = [single_numbers(one[prior]) for one in found]
    names = [name for name in MEASURES if any(name in row for row in rows)]
    return {name: [_finite(row.get(name)) for row in rows] for name in names}


def _recalls(found: list[dict[str, Any]], prior: str, n_classes: int) -> list[Values]:
    rows = []
    for one in found:
        row: Values = [None] * n_classes
        table = one[prior]["by_class"]
        for column, recall in zip(table["class"], table["recall"], strict=True):
            row[one["classes"][column]] = _finite(recall)
        rows.append(row)
    return rows


def _columns(rows: list[Values]) -> NDArray[np.float64]:
    """A row for each class and a column for each seed; NaN for None."""
    return np.array(rows, dtype=np.float64).T


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None


def _plain_estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {"mean": estimate.mean, "half_width": estimate.half_width}


def _plain_pairs(pairs: list[Pair]) -> list[dict[str, Any]]:
    return [asdict(pair) | {"beyond_noise": pair.beyond_noise} for pair in pairs]
