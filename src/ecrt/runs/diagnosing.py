"""Should transfer be used on these data, and why? Fits what has to be fitted, and asks every diagnostic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, column_or_1d

from ecrt.data import (
    ReadOptions,
    TableEncoder,
    column_rows,
    read_data,
    stratified_holdout,
    thin_out,
)
from ecrt.diagnostics import (
    Memorisation,
    MinorityGap,
    class_dependence,
    class_grids,
    feature_memorisation,
    minority_gap,
    source_gaussianity,
    source_stability,
    unique_feature,
)
from ecrt.errors import InputError, hide_warnings
from ecrt.estimators import ECRTClassifier, ECRTTransformer
from ecrt.metrics import nll_per_sample
from ecrt.runs.diagnosis import Diagnosis
from ecrt.runs.targets import labelled, read_target
from ecrt.selection import PLAIN, PseudoMinority, Selection
from ecrt.stages import sources_of
from ecrt.training import BarProgress, Progress

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]

SHARE = 0.2
"""Rows left out of each refit, and held out to compare heads."""

HEAD_SPLITS = 3
MOST_ROWS = 8000
"""Rows of frequent classes, all together, that refits and comparisons of heads learn from."""


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
    verbose : show progress bars.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> found = diagnose(X[:110], y[:110], estimator=ECRTClassifier(head="gaussian"), trials=6, refits=2)
    >>> found.selection.transfer, found.findings["theory"].answer
    (False, 'no')
    """
    labels: NDArray[Any] = np.asarray(column_or_1d(y))
    template = clone(estimator or ECRTClassifier()).set_params(random_state=random_state)
    template._check_parts(template._rules(several=False))
    if isinstance(X, np.ndarray | pd.DataFrame) and len(X) != len(labels):
        raise InputError(f"X has {len(X)} rows, y has {len(labels)} labels.")
    columns: tuple[tuple[str, ...], ...] = ()
    if isinstance(X, pd.DataFrame):
        table = TableEncoder.learn(X)  # once, on all rows: every refit then reads the same columns
        X, columns = table.typed(X), tuple(table.column_rows())
    mask = None if seen is None else _seen_mask(seen, len(labels))
    rng = np.random.default_rng(random_state)

    how = PseudoMinority(budget=budget) if trials is None else PseudoMinority(trials=trials)
    chosen = clone(template).set_params(selection=how, verbose=verbose)
    with hide_warnings("Plain logit adjustment"):  # the recommendation says it
        chosen.fit(X, labels)
    selection = Selection(**chosen.selection_)
    rare = chosen.minority_classes_.tolist()
    options = best_transfer_options(selection)
    model = clone(template).set_params(**options, minority=rare, selection=None, verbose=False)
    with ExitStack() as stack:
        progress: Progress = stack.enter_context(BarProgress()) if verbose else Progress()
        stack.enter_context(hide_warnings())  # the first fit has said it
        progress.start("diagnosis", 5 + refits + HEAD_SPLITS)
        found = _Examination(X, labels, chosen, model, options, rng, progress).run(selection, mask, refits, title)
    return replace(found, columns=columns)


def diagnose_file(
    path: Path,
    *,
    target: str,
    seen: str | None = None,
    ids: Sequence[str] = (),
    drop: Sequence[str] = (),
    reading: ReadOptions | None = None,
    **options: Any,
) -> Diagnosis:
    """Read a table, and diagnose it.

    Parameters
    ----------
    seen : column that says, by 0 and 1, whether the encoder was trained on a row; not learned from.
    reading : what is known of how the table is written.
    options : of ``diagnose``.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: diagnose reads tables and NPZ files of embeddings, no images.")
    if seen is not None and path.suffix == ".npz":
        raise InputError("An NPZ file has no columns: use a table with --seen.")
    data = read_data(path, target=(target,), ids=ids, aside=[seen] if seen else [], drop=drop, options=reading)
    labels = read_target(data, (target,), "classification")
    data = labelled(data, labels)
    marks = None if seen is None else _marks(data.aside[seen])
    found = diagnose(data.X, labels.y, seen=marks, title=path.name, **options)
    return replace(found, columns=tuple(column_rows(data.columns)))


def _marks(column: pd.Series[Any]) -> NDArray[Any]:
    """0 and 1, or truth values in words, which a file has as categories."""
    is_truth = isinstance(column.dtype, pd.CategoricalDtype) and set(column.cat.categories) == {"false", "true"}
    return np.asarray(column == "true" if is_truth else column)


def best_transfer_options(selection: Selection) -> dict[str, Any]:
    """Options of the transfer that was settled on, which was measured most often; linear where none was tried."""
    if selection.transfer:
        return dict(selection.options)
    tried = [one for one in selection.tried if one["options"].get("demixing") != "none" and np.isfinite(one["loss"])]
    settled = min(tried, key=lambda one: (-one["fits"], one["loss"]), default={"options": {"demixing": "linear"}})
    return dict(settled["options"])


class _Examination:
    """A transfer, fitted once as it would be used, and what the diagnostics say of it."""

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        chosen: ECRTClassifier,
        model: ECRTClassifier,
        options: dict[str, Any],
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        self.X, self.y, self.model, self.options, self.rng, self.progress = X, y, model, options, rng, progress
        self.classes = chosen.classes_
        self.labels: Labels = np.searchsorted(self.classes, y).astype(np.int64)
        self.counts = np.bincount(self.labels, minlength=len(self.classes))
        self.minority: Mask = np.isin(self.classes, chosen.minority_classes_)

    def run(self, selection: Selection, seen: Mask | None, refits: int, title: str) -> Diagnosis:
        """Ask all questions in turn."""
        own_encoder = self.model._encoder.trains
        given, left_out = np.arange(len(self.y)), np.arange(0)
        if own_encoder:
            given, left_out = stratified_holdout(self.labels, SHARE, self.rng)
        model = self._fit(self.model, given)
        self._step("fitted")
        z = np.asarray(model._features(self.X))
        s = sources_of(model.demixer_, z)
        # Where an encoder was trained, features of rows that it may have seen say nothing about new ones.
        learned = np.isin(self.classes, model.demixed_on_) if own_encoder else np.zeros(len(self.classes), dtype=bool)
        fresh = np.union1d(left_out, np.flatnonzero(~learned[self.labels]))
        z_new, s_new, y_new = z[fresh], s[fresh], self.labels[fresh]

        dependence = class_dependence(z_new, s_new, y_new, self.classes, self.minority, self.rng)
        self._step("independence")
        gaussianity = source_gaussianity(s_new, y_new, self.rng)
        grids = class_grids(s, self.labels, self.classes, self.minority, model.within_variance_)
        self._step("shape of sources")
        memorisation, whose = self._memorisation(z, seen, given if own_encoder else None)
        self._step("memorised rows")
        unique = unique_feature(z_new, y_new, self.minority, self.rng)
        self._step("unique feature")
        stability = source_stability([self._refit(model, z.shape[1]) for _ in range(refits)])
        gap = self._gap()
        self.progress.finish()
        augmentation = model.parts_["augmentation"]
        return Diagnosis(
            title=title, labels=self.classes, counts=self.counts, minority=self.minority, features=self._names(z),
            options=self.options, demixing=model.demixing_, n_sources=s.shape[1], n_demixed=len(model.demixed_on_),
            augmentation=augmentation.kind if augmentation.weight > 0 else "none", selection=selection,
            theory=model.diagnostics_, dependence=dependence, gaussianity=gaussianity, stability=stability, grids=grids,
            memorisation=memorisation, memorisation_of=whose, unique=unique, gap=gap,
        )  # fmt: skip

    def _step(self, note: str) -> None:
        self.progress.advance(note)

    def _names(self, z: Array) -> tuple[str, ...]:
        """Names of the columns, where features are columns."""
        table = self.model.table_ if hasattr(self.model, "table_") else None
        names = tuple(map(str, self.X.columns)) if isinstance(self.X, pd.DataFrame) else ()
        names = tuple(table.names_out) if table is not None and names else names
        return names if len(names) == z.shape[1] else ()

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

    def _refit(self, model: Any, n_features: int) -> Array:
        """Sources of some rows by de-mixing that was fitted with another seed, on four fifths of the rows."""
        known = model.get_params(deep=False)
        same = {name: known[name] for name in ECRTTransformer().get_params() if name in known}
        same |= {"demixing": model.parts_["demixing"], "random_state": int(self.rng.integers(2**31))}
        same |= {"minority": self.classes[self.minority].tolist() or "auto"}
        rows = self._some_rows()
        learn = rows[stratified_holdout(self.labels[rows], SHARE, self.rng)[0]]
        refitted = self._fit(ECRTTransformer(**same), learn)
        self._step("refit")
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
            self._step("features against sources")
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
    try:
        numbers = marks.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"seen must hold 0 and 1 (or False and True); it holds {marks[0]!r}.") from None
    if not np.isin(numbers, [0, 1]).all():
        odd = numbers[~np.isin(numbers, [0, 1])][0]
        raise InputError(f"seen must hold 0 and 1 (or False and True); it holds {odd:g}.")
    if numbers.all() or not numbers.any():
        raise InputError("seen has the same value for all rows: to compare, some must be seen and some not.")
    return numbers.astype(bool)
