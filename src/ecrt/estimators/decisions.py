"""Decisions under costs: the class of lowest expected cost, with offsets where held-out rows know better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from ecrt.arrays import Array, Labels
from ecrt.errors import InputError
from ecrt.estimators.inputs import in_pandas

FOLDS = 5
SWEEPS = 5
"""How often every offset is chosen in turn."""

MOST_CLASSES = 50
"""Offsets are chosen for at most so many classes: with more, no held-out rows could tell them all."""

LARGEST_COST = 1e100
"""Sums of larger ones might no longer be numbers."""

MOST_ROWS = 20_000
"""Held-out rows that choose."""


def cost_matrix(costs: Any, classes: NDArray[Any]) -> Array:
    """Costs in the order of the classes, rows for the true class and columns for the predicted one.

    Parameters
    ----------
    costs : a square array in that order; or a data frame, or a mapping of mappings, with the names of classes in any
        order, where a cost on the diagonal that is not given is 0.

    >>> cost_matrix({"no": {"yes": 1}, "yes": {"no": 10}}, np.array(["no", "yes"])).tolist()
    [[0.0, 1.0], [10.0, 0.0]]
    """
    costs = in_pandas(costs)
    if isinstance(costs, Mapping):
        if not all(isinstance(row, Mapping) for row in costs.values()):
            raise InputError("costs must hold a mapping from predicted classes to costs for each true class.")
        costs = pd.DataFrame({key: pd.Series(dict(row), dtype=object) for key, row in costs.items()}).T
    names = [str(label) for label in classes.tolist()]
    if isinstance(costs, pd.DataFrame):
        costs = _named(costs, names)
    try:
        if np.iscomplexobj(costs):
            raise TypeError("some are complex")
        found = np.array(costs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"costs must hold numbers: {error}.") from error
    if found.shape != (len(names), len(names)):
        raise InputError(
            f"costs must have a row and a column for each of the {len(names)} classes {classes.tolist()[:10]}; "
            f"its shape is {found.shape}."
        )
    if not np.isfinite(found).all():
        true, predicted = np.argwhere(~np.isfinite(found))[0]
        raise InputError(
            f"costs: that of predicting {names[predicted]!r} for a row of {names[true]!r} is not a number."
        )
    if np.abs(found).max() > LARGEST_COST:
        raise InputError(
            f"costs: {found.flat[np.abs(found).argmax()]:g} is beyond {LARGEST_COST:g}. Give them in other units."
        )
    return found


def _named(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """A table of costs with its rows and columns in order; the diagonal is filled."""
    table = table.set_axis(table.index.map(str), axis=0).set_axis(table.columns.map(str), axis=1)
    for axis, found in (("row", table.index.tolist()), ("column", table.columns.tolist())):
        what = {"row": "true", "column": "predicted"}[axis]
        for name in (one for one in found if one not in names):
            raise InputError(f"costs has a {axis} {name!r}, which is no class; there are {names[:10]}.")
        for name in (one for one in names if one not in found and (axis == "row" or len(names) > 1)):
            raise InputError(f"costs has no {axis} for the {what} class {name!r}.")
        if len(set(found)) < len(found):
            raise InputError(f"costs names a class in two {axis}s: {sorted(found)[:10]}.")
    table = table.loc[names, names]
    return table.mask(np.eye(len(names), dtype=bool) & table.isna().to_numpy(), 0.0)


def lowest_cost(scores: Array, costs: Array, offsets: Array | None = None) -> Labels:
    """Place of the class whose expected cost, plus its offset, is lowest.

    Parameters
    ----------
    scores : log-probabilities of the classes, up to a constant for each row.
    """
    expected = softmax(np.asarray(scores, dtype=np.float64), axis=1) @ costs
    return (expected if offsets is None else expected + offsets).argmin(axis=1)


def cut_of(costs: Array, place: int, offsets: Array | None = None) -> float:
    """Of two classes, the probability from which the one at a place is predicted; NaN if it is always or never so.

    >>> round(cut_of(np.array([[0.0, 1.0], [4.0, 0.0]]), 1), 6)
    0.2
    """
    other = 1 - place
    alarm, miss = costs[other, place] - costs[other, other], costs[place, other] - costs[place, place]
    more = 0.0 if offsets is None else offsets[place] - offsets[other]
    cut = (alarm + more) / (alarm + miss) if alarm + miss > 0 else np.nan
    return float(cut) if 0 < cut < 1 else np.nan


def cut_sentence(classes: NDArray[Any], counts: NDArray[Any], costs: Array, offsets: Array | None) -> str:
    """Which of two classes is predicted when: from a probability of the rarer one on; empty for more classes."""
    if len(classes) != 2:
        return ""
    place = int(np.argmin(counts))
    cut = cut_of(costs, place, offsets)
    rare, other = (repr(str(label)) for label in (classes[place], classes[1 - place]))
    return "" if np.isnan(cut) else f"{rare} is predicted from a probability of {cut:.4g} on, {other} below it."


@dataclass(frozen=True)
class Decision:
    """Offsets that held-out rows chose, and the options that they chose them for; they serve under no others."""

    offsets: Array
    costs: Array
    class_prior: str | list[float]


class Saving(NamedTuple):
    """What offsets save, on rows that did not choose them: cost of a row under either rule, gain and its error.

    ``caution`` is what one more row of each class would cost if it were the worst that there can be: a mistake that
    none of a few rows shows may still come.
    """

    rows: int = 0
    plain: float = 0.0
    moved: float = 0.0
    gain: float = 0.0
    error: float = 0.0
    caution: float = 0.0

    @property
    def certain(self) -> bool:
        """Whether they save something beyond noise, and beyond what caution asks."""
        return self.gain - 1.96 * self.error > self.caution

    @property
    def sentence(self) -> str:
        """What is predicted, and why."""
        if not self.rows:
            return (
                "The class of lowest expected cost is predicted; no held-out rows could move the cuts between classes."
            )
        width = 1.96 * self.error
        figures = (
            f"{self.moved:.3f} a row with them, {self.plain:.3f} without (saved {self.gain:+.3f}, 95 % interval "
            f"{self.gain - width:+.3f} to {self.gain + width:+.3f}; needed is more than {self.caution:.3f})"
        )
        if self.certain:
            return f"The class of lowest expected cost is predicted, with cuts moved by held-out rows: {figures}."
        return (
            "The class of lowest expected cost is predicted. Cuts that held-out rows would move do not save enough "
            f"for certain: {figures}."
        )


def choose_offsets(log_proba: Array, y: Labels, costs: Array, prior: Array) -> tuple[Array, Saving]:
    """Offsets of expected costs that make held-out rows cheapest; all 0, the plain rule, if they do not help for sure.

    Probabilities that are right need no offsets. So these are chosen on some of the rows and tried on the others, fold
    by fold, and kept only if they save there more than noise and caution.

    Parameters
    ----------
    log_proba : of held-out rows, under the prior.
    y : class indices.
    prior : frequencies of classes where the model is used; they weigh the rows.
    """
    n_classes = len(costs)
    order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    log_proba, y = log_proba[order], y[order]
    counts = np.bincount(y, minlength=n_classes)
    if n_classes > MOST_CLASSES or (counts >= 2).sum() < 2:
        return np.zeros(n_classes), Saving()
    expected, paid = softmax(log_proba, axis=1) @ costs, costs[y]
    share = np.where(counts > 0, prior, 0.0)
    weight = (share / share.sum() / np.maximum(counts, 1))[y]
    fold = np.empty(len(y), dtype=np.int64)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % FOLDS
    rows, plain = np.arange(len(y)), expected.argmin(axis=1)
    moved = plain.copy()
    for number in range(FOLDS):
        mine = fold == number
        offsets = _cheapest(expected[~mine], paid[~mine], weight[~mine])
        moved[mine] = (expected[mine] + offsets).argmin(axis=1)
    cost, cheaper = paid[rows, plain], paid[rows, moved]
    saved = cost - cheaper
    mean = np.bincount(y, saved, n_classes) / np.maximum(counts, 1)
    around = np.where(counts[y] > 1, saved - mean[y], saved)  # of a single row nobody knows how it varies
    inflated = (counts / np.maximum(counts - 1, 1))[y]
    error = float(np.sqrt((weight**2 * around**2 * inflated).sum()))
    caution = float((share / share.sum()) @ ((costs.max(axis=1) - costs.min(axis=1)) / (counts + 1)))
    saving = Saving(len(y), float(weight @ cost), float(weight @ cheaper), float(weight @ saved), error, caution)
    return _cheapest(expected, paid, weight) if saving.certain else np.zeros(n_classes), saving


def _cheapest(expected: Array, paid: Array, weight: Array) -> Array:
    """Offsets under which these rows cost least: each in turn is put where the costs of all rows are lowest.

    ``paid`` is what each row costs under each prediction.
    """
    n_classes, rows = expected.shape[1], np.arange(len(expected))
    offsets = np.zeros(n_classes)
    for _ in range(SWEEPS):
        before = offsets.copy()
        for label in range(n_classes):
            others = expected + offsets
            others[:, label] = np.inf
            second = others.argmin(axis=1)
            margin = others[rows, second] - expected[:, label]  # below it the label is predicted
            added = weight * (paid[:, label] - paid[rows, second])
            order = np.argsort(-margin, kind="stable")
            edges, total = margin[order], np.append(0.0, np.cumsum(added[order]))
            possible = np.concatenate([[True], edges[1:] < edges[:-1], [True]])  # a cut cannot part equal margins
            best = int(np.argmin(np.where(possible, total, np.inf)))
            now = int((margin > offsets[label]).sum())
            if total[best] < total[now] - 1e-12:
                low = edges[best] if best < len(edges) else edges[-1] - 1e-9
                high = edges[best - 1] if best else edges[0] + 1e-9
                # No farther than these rows ask for: between two of them there may be a long way.
                near = low + 0.1 * (high - low) if low >= 0 else high - 0.1 * (high - low)
                offsets[label] = 0.0 if low < 0 < high else near
        if np.array_equal(offsets, before):
            break
    return offsets
