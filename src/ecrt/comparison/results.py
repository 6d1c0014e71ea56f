"""What a comparison found: figures of every run, and tests of differences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.disk import plain, write_json
from ecrt.errors import InputError
from ecrt.metrics import PRIORS, Estimate, Pair, PriorName, corrected_estimate, paired


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
    recalls : prior to the recall of each class, a row for each seed; NaN where it has no test rows.
    """

    label: str
    error: str
    parameters: list[dict[str, Any]]
    validation: list[float | None]
    trials: list[dict[str, int]]
    metrics: dict[str, dict[str, list[float]]]
    recalls: dict[str, NDArray[np.float64]]


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
        values = self._values(method, metric, prior)
        return corrected_estimate(values, self.data["test_to_train"]) if values else None

    def against_reference(self, prior: PriorName) -> list[Pair]:
        """Every other method against the reference, tested together."""
        if self.reference not in self.sound:
            return []
        return self._paired([(name, self.reference) for name in self.sound if name != self.reference], prior)

    def all_pairs(self, prior: PriorName) -> list[Pair]:
        """Every method against every other, the better one first, tested together."""
        return self._paired(list(combinations(self.ranking(prior), 2)), prior)

    def ranking(self, prior: PriorName, metric: str | None = None) -> list[str]:
        """Methods without a failed run, the best mean first."""
        metric = metric or self.metric
        values = {name: self._values(name, metric, prior) for name in self.sound}
        sign = -1 if MEASURES[metric].higher_is_better else 1
        return sorted((name for name in values if values[name]), key=lambda name: sign * float(np.mean(values[name])))

    def class_gains(self, prior: PriorName) -> dict[str, list[Estimate | None]]:
        """For each method the gain in recall of every class over the reference; None where a class was not tested."""
        if self.reference not in self.sound:
            return {}
        base = self.methods[self.reference].recalls[prior]
        return {
            name: [
                corrected_estimate(tested, self.data["test_to_train"]) if len(tested) else None
                for tested in (values[np.isfinite(values)] for values in (self.methods[name].recalls[prior] - base).T)
            ]
            for name in self.sound
        }

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
            "methods": plain(self.methods),
            "table": plain({prior: self._table(prior) for prior in PRIORS}, without=("p_value",)),
            "against_reference": {prior: _plain_pairs(self.against_reference(prior)) for prior in PRIORS},
            "all_pairs": {prior: _plain_pairs(self.all_pairs(prior)) for prior in PRIORS},
            "verdict": {prior: self.verdict(prior) for prior in PRIORS},
        }

    def write(self, folder: Path) -> None:
        """Write ``results.json``, the same whenever and however often it is made, and ``times.json``."""
        write_json(folder / "results.json", self.as_dict())
        write_json(folder / "times.json", self.times)

    def _values(self, method: str, metric: str, prior: PriorName) -> list[float]:
        """A metric on every seed; nothing where a seed has no value."""
        values = self.methods[method].metrics[prior].get(metric, [])
        return values if np.isfinite(values).all() else []

    def _paired(self, pairs: list[tuple[str, str]], prior: PriorName) -> list[Pair]:
        values = {name: self._values(name, self.metric, prior) for name in self.sound}
        usable = [(first, second) for first, second in pairs if values[first] and values[second]]
        higher = MEASURES[self.metric].higher_is_better
        return paired(usable, values, higher_is_better=higher, test_to_train=self.data["test_to_train"])

    def _table(self, prior: PriorName) -> dict[str, dict[str, Estimate | None]]:
        shown = dict.fromkeys((self.metric, *SHOWN))
        return {name: {metric: self.estimate(name, metric, prior) for metric in shown} for name in self.sound}


def _plain_pairs(pairs: list[Pair]) -> list[dict[str, Any]]:
    return [plain(pair) | {"beyond_noise": pair.beyond_noise} for pair in pairs]
