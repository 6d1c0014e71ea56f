"""Should transfer be used on one data set, and why? What is asked, the answers as plain data, and diagnosis.json.

Answers are codes with the numbers behind them; ``ecrt.report`` puts them into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, column_or_1d

from ecrt.arrays import Array, Labels, Mask
from ecrt.data import ColumnReading, TableEncoder, column_rows, stratified_holdout, thin_out
from ecrt.diagnostics import (
    Gaussianity,
    Memorisation,
    MinorityGap,
    SourceDiagnostics,
    UniqueFeature,
    class_dependence,
    feature_memorisation,
    minority_gap,
    source_gaussianity,
    source_stability,
    unique_feature,
)
from ecrt.disk import plain, write_json
from ecrt.errors import InputError, hide_warnings
from ecrt.estimators import ECRTClassifier, ECRTTransformer
from ecrt.estimators.inputs import in_pandas
from ecrt.metrics import LEVEL, nll_per_sample
from ecrt.runs.findings import Answer, Finding, theory_finding
from ecrt.selection import PLAIN, PseudoMinority, Selection
from ecrt.stages import sources_of
from ecrt.training import BarProgress, Progress

DIAGNOSIS_FILE = "diagnosis.json"
FORMAT = 1
NOT_WRITTEN = {"null", "projections", "minority", "weights", "seen", "held_out", "quantiles", "seconds"}
"""Arrays that only figures need, and times, which differ from run to run."""

STABLE, UNSTABLE = 0.95, 0.8
"""Mean correlations of matching sources from which, and below which, fits agree and do not."""

SHARE = 0.2
"""Rows left out of each refit, and held out to compare heads."""

HEAD_SPLITS = 3
MOST_ROWS = 8000
"""Rows of frequent classes, all together, that refits and comparisons of heads learn from."""

Recommendation = Literal["use", "use with care", "do not use"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """Answers to whether, and why, transfer helps here.

    Attributes
    ----------
    title : what the data are.
    labels, counts, minority : classes, their rows, and which of them are minority.
    features : names of the features, where columns have them.
    options : of the transfer that was examined: the best that was tried, even if it was not chosen.
    demixing, n_sources, n_demixed : its de-mixing, sources, and classes de-mixed on.
    augmentation : how it draws synthetic samples; "none" where it draws none.
    selection : does transfer help, and by how much.
    theory : the conditions of the theorem, among others.
    dependence, gaussianity, stability : of its sources; ``stability`` is the MCC of every two refits.
    memorisation : ``None`` where it is not known; ``memorisation_of`` says which rows an encoder has seen: those that
        were "marked", or those of the encoder that was "trained here"; "unknown" where neither is so.
    unique : ``None`` where there are too few rows.
    gap : sources against features on held-out rows of the minority; ``None`` where none could be held out.
    columns : how columns were read, rows of ``ecrt.data.column_rows``.
    """

    title: str
    labels: NDArray[Any]
    counts: NDArray[np.int64]
    minority: NDArray[np.bool_]
    features: tuple[str, ...]
    options: dict[str, Any]
    demixing: str
    n_sources: int
    n_demixed: int
    augmentation: str
    selection: Selection
    theory: SourceDiagnostics
    dependence: pd.DataFrame
    gaussianity: Gaussianity
    stability: tuple[float, ...]
    memorisation: Memorisation | None
    memorisation_of: Literal["marked", "trained here", "unknown"]
    unique: UniqueFeature | None
    gap: MinorityGap | None
    columns: tuple[tuple[str, ...], ...] = ()

    @property
    def harmed(self) -> bool:
        """Whether held-out rows of the rare classes are worse off with transfer."""
        return self.selection.vetoed or (self.gap is not None and self.gap.high < 0)

    @property
    def recommendation(self) -> Recommendation:
        """Whether to use ECRT on these data."""
        if not self.selection.transfer or self.harmed:
            return "do not use"
        return "use with care" if self.unique is not None and self.unique.found else "use"

    @property
    def findings(self) -> dict[str, Finding]:
        """A finding for each question, by its short name."""
        return {
            "transfer": Finding("yes" if self.selection.transfer else "no"),
            "theory": theory_finding(
                self.n_sources, self.n_demixed, self.theory.enough_classes, self.theory.smallest_singular_value
            ),
            "dependence": self._dependence(),
            "gaussianity": self._gaussianity(),
            "stability": self._stability(),
            "memorisation": Finding("cannot tell", harmless=True)
            if self.memorisation is None
            else Finding("no" if self.memorisation.memorised else "yes"),
            "unique feature": self._unique_feature(),
            "features or sources": self._features_or_sources(),
        }

    def _dependence(self) -> Finding:
        classes = self.dependence
        tested = classes[classes["p_s"].notna()]
        if self.n_sources < 2:
            return Finding("yes", because="one source")
        if tested.empty:
            return Finding("cannot tell", {"n_classes": len(classes)})
        after = tested[tested["p_s"] < LEVEL]
        numbers = {
            "tested": len(tested), "too_few": len(classes) - len(tested),
            "by_sources": len(after), "by_features": int((tested["p_z"] < LEVEL).sum()),
            "rare": [str(label) for label in after["label"][after["minority"]]],
            "rare_tested": bool(tested["minority"].any()),
        }  # fmt: skip
        return Finding("yes" if after.empty else "partly" if len(after) <= len(tested) / 2 else "no", numbers)

    def _gaussianity(self) -> Finding:
        shapes, strong = self.gaussianity.sources, self.gaussianity.strong
        if shapes.empty:
            return Finding("cannot tell")
        beyond, furthest = int((shapes["p_value"] < LEVEL).sum()), shapes.iloc[0]
        numbers = {
            "n_sources": len(shapes), "beyond": beyond, "strong": len(strong),
            "skewness": float(furthest["skewness"]), "excess_kurtosis": float(furthest["excess_kurtosis"]),
        }  # fmt: skip
        if strong.empty:
            return Finding("yes" if beyond == 0 else "partly", numbers, harmless=beyond > 0)
        return Finding("no" if len(strong) > len(shapes) / 2 else "partly", numbers)

    def _stability(self) -> Finding:
        if not self.stability:
            return Finding("cannot tell")
        lowest, mean = min(self.stability), float(np.mean(self.stability))
        answer: Answer = "yes" if lowest >= STABLE else "partly" if lowest >= UNSTABLE else "no"
        return Finding(answer, {"mean": mean, "lowest": lowest, "pairs": len(self.stability)})

    def _unique_feature(self) -> Finding:
        if self.unique is None:
            return Finding("cannot tell")
        numbers = {
            "by_chance": float(np.quantile(self.unique.null, 0.95)),
            "heaviest": [
                self.features[at] if self.features else f"column {at}"
                for at in np.argsort(-np.abs(self.unique.weights), kind="stable")[:3]
            ],
        }
        return Finding("no" if self.unique.found else "yes", numbers)

    def _features_or_sources(self) -> Finding:
        if self.gap is None:
            return Finding("cannot tell")
        if self.gap.high < 0:
            return Finding("no")
        return Finding("yes" if self.gap.low > 0 else "partly", harmless=self.gap.low <= 0)

    def as_dict(self) -> dict[str, Any]:
        """Everything that is written, as JSON has it; the same seed gives the same."""
        measured = ("theory", "dependence", "gaussianity", "stability", "memorisation", "unique", "gap")
        return {
            "format": FORMAT,
            "title": self.title,
            "rows": int(self.counts.sum()),
            "columns": plain(self.columns),
            "classes": [str(label) for label in self.labels],
            "minority": [str(label) for label in self.labels[self.minority]],
            "recommendation": self.recommendation,
            "transfer": self.selection.transfer,
            "findings": plain(self.findings),
            "examined": plain(self.options) | {"sources": self.n_sources, "demixed_on": self.n_demixed},
            **{name: plain(getattr(self, name), NOT_WRITTEN) for name in ("selection", *measured)},
        }

    def write(self, folder: str | Path) -> Path:
        """Write ``diagnosis.json``; gives its path."""
        path = Path(folder) / DIAGNOSIS_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.as_dict())
        return path


def diagnose(
    X: Any,
    y: ArrayLike,
    *,
    estimator: ECRTClassifier | None = None,
    trials: int | None = 30,
    budget: float = 180.0,
    refits: int = 3,
    seen: ArrayLike | None = None,
    random_state: int = 0,
    title: str = "",
    reading: Sequence[ColumnReading] = (),
    verbose: bool = False,
) -> Diagnosis:
    """Say whether transfer helps on these data, by how much, and why.

    Parameters
    ----------
    X, y : a table, embeddings or images as ``ECRTClassifier.fit`` takes them, and one label for each row.
    estimator : whose options are fixed and which are open to selection; ``None`` for the default.
    trials, budget : fits of the selection at most; with ``trials=None``, seconds. Trials give the same result on every
        machine.
    refits : fits of the de-mixing with other seeds.
    seen : whether the encoder that made X was trained on a row; unknown if not given.
    title : what the data are.
    reading : how columns of X were read from a file, for the page.
    verbose : show progress bars.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> found = diagnose(X[:110], y[:110], estimator=ECRTClassifier(head="gaussian"), trials=6, refits=2)
    >>> found.selection.transfer, found.findings["theory"].answer
    (False, 'no')
    """
    X, labels = in_pandas(X), np.asarray(column_or_1d(y))
    template = clone(estimator or ECRTClassifier()).set_params(random_state=random_state)
    template._check_parts(template._rules(several=False))
    if isinstance(X, np.ndarray | pd.DataFrame) and len(X) != len(labels):
        raise InputError(f"X has {len(X)} rows, y has {len(labels)} labels.")
    columns: tuple[tuple[str, ...], ...] = ()
    if isinstance(X, pd.DataFrame):
        table = TableEncoder.learn(X)  # once, on all rows: every refit then reads the same columns
        X, columns = table.typed(X), tuple(column_rows(reading) if reading else table.column_rows())
    mask = None if seen is None else _seen_mask(seen, len(labels))
    rng = np.random.default_rng(random_state)

    how = PseudoMinority(budget=budget) if trials is None else PseudoMinority(trials=trials)
    chosen = clone(template).set_params(selection=how, verbose=verbose)
    with hide_warnings("Plain logit adjustment"):  # the recommendation says it
        chosen.fit(X, labels)
    selection, rare = Selection(**chosen.selection_), chosen.minority_classes_
    options = best_transfer_options(selection)
    model = clone(template).set_params(**options, minority=rare.tolist(), selection=None, verbose=False)
    bars: AbstractContextManager[Progress] = BarProgress() if verbose else nullcontext(Progress())
    with bars as progress, hide_warnings():  # the first fit has given them
        progress.start("diagnosis", 5 + refits + HEAD_SPLITS)
        minority = np.isin(chosen.classes_, rare)
        examined = _Examination(X, labels, chosen.classes_, minority, model, options, rng, progress)
        return examined.run(selection, mask, refits, title=title, columns=columns)


def best_transfer_options(selection: Selection) -> dict[str, Any]:
    """Options of the transfer that was settled on, which was measured most often; linear where none was tried."""
    if selection.transfer:
        return dict(selection.options)
    tried = [one for one in selection.tried if one["options"].get("demixing") != "none" and np.isfinite(one["loss"])]
    settled = min(tried, key=lambda one: (-one["fits"], one["loss"]), default={"options": {"demixing": "linear"}})
    return dict(settled["options"])


@dataclass
class _Examination:
    """A transfer, fitted once as it would be used, and what the diagnostics say of it."""

    X: Any
    y: NDArray[Any]
    classes: NDArray[Any]
    minority: Mask
    model: ECRTClassifier
    options: dict[str, Any]
    rng: np.random.Generator
    progress: Progress

    def __post_init__(self) -> None:
        self.labels: Labels = np.searchsorted(self.classes, self.y).astype(np.int64)
        self.counts = np.bincount(self.labels, minlength=len(self.classes))

    def run(self, selection: Selection, seen: Mask | None, refits: int, **of_data: Any) -> Diagnosis:
        """Ask all questions in turn."""
        own_encoder = self.model._encoder.trains
        given, left_out = np.arange(len(self.y)), np.arange(0)
        if own_encoder:
            given, left_out = stratified_holdout(self.labels, SHARE, self.rng)
        model = self._fit(self.model, given)
        self.progress.advance("fitted")
        z = np.asarray(model._features(self.X))
        s = sources_of(model.demixer_, z)
        # Where an encoder was trained, features of rows that it may have seen say nothing about new ones.
        learned = np.isin(self.classes, model.demixed_on_) if own_encoder else np.zeros(len(self.classes), dtype=bool)
        fresh = np.union1d(left_out, np.flatnonzero(~learned[self.labels]))
        z_new, s_new, y_new = z[fresh], s[fresh], self.labels[fresh]

        dependence = class_dependence(z_new, s_new, y_new, self.classes, self.minority, self.rng)
        self.progress.advance("independence")
        gaussianity = source_gaussianity(s_new, y_new, self.rng)
        self.progress.advance("shape of sources")
        memorisation, whose = self._memorisation(z, seen, given if own_encoder else None)
        self.progress.advance("memorised rows")
        unique = unique_feature(z_new, y_new, self.minority, self.rng)
        self.progress.advance("unique feature")
        stability = source_stability([self._refit(model) for _ in range(refits)])
        gap = self._gap()
        self.progress.finish()
        augmentation = model.parts_["augmentation"]
        return Diagnosis(
            **of_data, labels=self.classes, counts=self.counts, minority=self.minority, features=self._names(z),
            options=self.options, demixing=model.demixing_, n_sources=s.shape[1], n_demixed=len(model.demixed_on_),
            augmentation=augmentation.kind if augmentation.weight > 0 else "none", selection=selection,
            theory=model.diagnostics_, dependence=dependence, gaussianity=gaussianity, stability=stability,
            memorisation=memorisation, memorisation_of=whose, unique=unique, gap=gap,
        )  # fmt: skip

    def _names(self, z: Array) -> tuple[str, ...]:
        """Names of the columns, where features are columns."""
        table = self.model.table_ if isinstance(self.X, pd.DataFrame) else None
        return () if table is None or len(table.names_out) != z.shape[1] else tuple(table.names_out)

    def _fit(self, model: Any, rows: Labels) -> Any:
        whole = len(rows) == len(self.y)
        return model.fit(self.X if whole else _safe_indexing(self.X, rows), self.y[rows])

    def _memorisation(
        self, z: Array, seen: Mask | None, given: Labels | None
    ) -> tuple[Memorisation | None, Literal["marked", "trained here", "unknown"]]:
        if seen is not None:
            return feature_memorisation(z, self.labels, seen, self.rng), "marked"
        if given is None:
            return None, "unknown"
        # The encoder's own hold-out lies among the rows it was given: the ratio is, if anything, too small.
        of_encoder = np.ones(len(self.classes), dtype=bool)
        if self.model._learns_from("encoder") == "majority" and self.minority.any() and (~self.minority).sum() >= 3:
            of_encoder = ~self.minority
        rows = np.flatnonzero(of_encoder[self.labels])
        mask = np.isin(np.arange(len(self.y)), given)
        return feature_memorisation(z[rows], self.labels[rows], mask[rows], self.rng), "trained here"

    def _some_rows(self) -> Labels:
        """All rows, or fewer of frequent classes where there are very many."""
        share = min(MOST_ROWS / max(int(self.counts[~self.minority].sum()), 1), 1.0)
        sizes = {m: max(int(np.ceil(share * self.counts[m])), 2) for m in np.flatnonzero(~self.minority).tolist()}
        return thin_out(self.labels, sizes, self.rng)

    def _refit(self, model: Any) -> Array:
        """Sources of some rows by de-mixing that was fitted with another seed, on four fifths of the rows."""
        known = model.get_params(deep=False)
        same = {name: known[name] for name in ECRTTransformer().get_params() if name in known}
        same |= {"demixing": model.parts_["demixing"], "random_state": int(self.rng.integers(2**31))}
        same |= {"minority": self.classes[self.minority].tolist() or "auto"}
        rows = self._some_rows()
        learn = rows[stratified_holdout(self.labels[rows], SHARE, self.rng)[0]]
        refitted = self._fit(ECRTTransformer(**same), learn)
        self.progress.advance("refit")
        shown = np.linspace(0, len(self.y) - 1, min(len(self.y), 2000)).astype(np.int64)
        return np.asarray(refitted.transform(_safe_indexing(self.X, shown)))

    def _gap(self) -> MinorityGap | None:
        """h(z) against h(s) on held-out rows of the minority."""
        losses: list[Array] = []
        labels: list[Labels] = []
        for _ in range(HEAD_SPLITS):
            rows = self._some_rows()
            learn, check = (rows[part] for part in stratified_holdout(self.labels[rows], SHARE, self.rng))
            check = check[self.minority[self.labels[check]]]
            if len(check):
                seed = int(self.rng.integers(2**31))
                losses.append(np.column_stack([
                    self._losses(clone(self.model).set_params(**how, random_state=seed), learn, check)
                    for how in (PLAIN, self.options)
                ]))  # fmt: skip
                labels.append(self.labels[check])
            self.progress.advance("features against sources")
        if not losses:
            return None
        both = np.concatenate(losses)
        return minority_gap(both[:, 0], both[:, 1], np.concatenate(labels))

    def _losses(self, model: Any, learn: Labels, check: Labels) -> Array:
        fitted = self._fit(model.set_params(class_prior="balanced"), learn)
        log_p = fitted.predict_log_proba(_safe_indexing(self.X, check))
        return nll_per_sample(log_p, self.labels[check])  # every class keeps a row to learn from


def _seen_mask(seen: ArrayLike, n_rows: int) -> Mask:
    marks = np.asarray(seen)
    if marks.shape != (n_rows,):
        raise InputError(
            f"seen must say for each of the {n_rows} rows whether it was seen; it has shape {marks.shape}."
        )
    words = {"true": 1, "false": 0}  # as a file has them
    numbers = pd.to_numeric([words.get(mark, mark) for mark in marks.tolist()], errors="coerce").astype(np.float64)
    odd = marks[~np.isin(numbers, [0, 1])].tolist()
    if odd:
        raise InputError(f"seen must hold 0 and 1 (or False and True); it holds {odd[0]!r}.")
    if numbers.all() or not numbers.any():
        raise InputError("seen has the same value for all rows: to compare, some must be seen and some not.")
    return numbers.astype(bool)
