"""The model card: what a model is, in Markdown, for whoever finds its folder. Its template holds all words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ecrt.data import HEADINGS
from ecrt.estimators.base import EstimatorBase
from ecrt.io.model_files import package_versions

MOST_CLASSES = 50
"""Classes that are listed one by one."""

MOST_NAMED = 8
"""Rare classes that a summary names."""

MOST_COSTS = 12
"""Classes whose costs are listed one by one."""

SPECIAL = re.compile(r"[&<>|`*\[\]!\\~$@#]|:(?=//)|(?<=www)\.|(?<![^\W_])_|_(?![^\W_])", re.IGNORECASE)


class Escaped(str):
    """Text that has been escaped."""


def escape(value: Any, longest: int = 80) -> Escaped:
    """A value from the user's data as text that Markdown and HTML show and do not obey.

    >>> escape("<b>a|b</b>")
    '&#60;b&#62;a&#124;b&#60;/b&#62;'
    """
    if isinstance(value, Escaped):
        return value
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return Escaped(SPECIAL.sub(lambda found: f"&#{ord(found.group())};", text))


def model_card(estimator: EstimatorBase, *, own_encoder: bool) -> str:
    """The card as Markdown. Whatever is filled in is escaped.

    Parameters
    ----------
    own_encoder : whether an encoder must be given when loading.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    classes = sorted(_classes(estimator), key=lambda row: -row[1])
    n_columns = getattr(estimator, "n_features_in_", None)
    diagnosis = getattr(estimator, "_diagnosis", None)
    headings, columns = _columns(estimator)
    methods = ("predict_proba", "predict", "transform")
    templates = Environment(
        loader=PackageLoader("ecrt.estimators"), finalize=escape, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    templates.filters["escape"] = escape
    return templates.get_template(
        "model_card.md"
    ).render(
        model=estimator,
        n_rows=getattr(estimator, "rows_weighed_", None),  # not stored, as columns_read_ is not
        kind=type(estimator).__name__,
        n_samples=sum(row[1] for row in classes),
        features="rows of a Dataset" if n_columns is None else f"{n_columns} features",
        n_classes=len(classes),
        n_minority=sum(row[2] for row in classes),
        classes=classes
        if len(classes) <= MOST_CLASSES
        else classes[: MOST_CLASSES // 2] + classes[-MOST_CLASSES // 2 :],
        costs=_costs(estimator),
        headings=headings,
        columns=columns,
        encoder=type(estimator.encoder_).__name__ if own_encoder else estimator._encoder.network,
        n_sources=estimator.demixer_.linear.n_signal,
        diagnosis=diagnosis,
        most_dependent=_most_dependent(diagnosis),
        metrics=list(_one_by_one(getattr(estimator, "metrics_", {}))),
        metrics_of=getattr(estimator, "metrics_of_", ""),
        own_encoder=own_encoder,
        use=next(name for name in methods if hasattr(estimator, name)),
        versions=package_versions(),
    )


def summary_html(estimator: EstimatorBase) -> str:
    """Members, verdicts and the report of a fitted model, for a notebook; nothing of one that is not fitted."""
    if not hasattr(estimator, "history_"):
        return ""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(loader=PackageLoader("ecrt.estimators"), autoescape=True, undefined=StrictUndefined)
    names = ("verdict_", "unlabelled_verdict_", "decision_verdict_", "interrupted_")
    report: Path | None = getattr(estimator, "_report", None)
    link = ""
    if report is not None and report.is_file():
        near = report.is_relative_to(Path.cwd())
        link = report.relative_to(Path.cwd()).as_posix() if near else report.as_uri()
    classes, unit = _classes(estimator), "classes" if hasattr(estimator, "classes_") else "bins of the target"
    rare = [f"{name} ({count:,})" for name, count, minority, _ in classes if minority]
    samples = f"{sum(row[1] for row in classes):,} samples in "
    return templates.get_template("summary.html").render(
        kind=type(estimator).__name__,
        fitted_on=f"{len(classes)} labels"
        if getattr(estimator, "multilabel_", False)
        else f"{samples}{len(classes)} {unit}",
        rare=", ".join(rare[:MOST_NAMED]) + (" and more" if len(rare) > MOST_NAMED else ""),
        members=getattr(estimator, "members_", ()),
        method=estimator.rival.label if hasattr(estimator, "rival") else "",
        sentences=[sentence for name in names if (sentence := getattr(estimator, name, ""))],
        link=link,
    )


def _classes(estimator: EstimatorBase) -> list[tuple[Any, float, bool, bool]]:
    """Of each class, or bin of the target: label, training samples, whether it is minority and was de-mixed on."""
    if hasattr(estimator, "classes_"):
        labels, names = estimator.classes_, estimator.classes_.tolist()
        counts, minority = estimator.class_counts_, estimator.minority_classes_
    else:
        counts, minority = estimator.bin_counts_, estimator.minority_bins_
        labels = np.arange(len(counts))
        names = [f"bin {number} of the target" for number in labels]
    demixed = np.isin(labels, getattr(estimator, "demixed_on_", labels[:0]))
    return list(zip(names, counts.round(1).tolist(), np.isin(labels, minority), demixed, strict=True))


def _costs(estimator: EstimatorBase) -> list[tuple[Any, list[tuple[Any, float]]]]:
    """Of each class that may be listed, what it costs to predict each."""
    if getattr(estimator, "costs", None) is None or len(estimator.classes_) > MOST_COSTS:
        return []
    names, matrix = estimator.classes_.tolist(), estimator.cost_matrix_.tolist()
    return [(name, list(zip(names, row, strict=True))) for name, row in zip(names, matrix, strict=True)]


def _columns(estimator: EstimatorBase) -> tuple[list[str], list[list[str]]]:
    """Headings, and how each column was read. ``columns_read_`` is not stored: a loaded model reads tables only."""
    rows = getattr(estimator, "columns_read_", ())
    if not rows and hasattr(estimator, "feature_names_in_") and estimator.table_ is not None:
        rows = estimator.table_.column_rows()
    used = [place for place in range(len(HEADINGS)) if place < 2 or any(cells[place] for cells in rows)]
    return [HEADINGS[place] for place in used], [[cells[place] for place in used] for cells in rows]


def _most_dependent(diagnosis: Any) -> list[Any]:
    """The class whose sources correlate most, of those that de-mixing learned from, and of the others."""
    found = [] if diagnosis is None else [one for one in diagnosis.classes if not math.isnan(one.max_correlation)]
    groups = ([one for one in found if one.demixed == demixed] for demixed in (True, False))
    return [max(group, key=lambda one: one.max_correlation) for group in groups if group]


def _one_by_one(metrics: Mapping[str, Any], *groups: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Metrics, each with the names of the groups that it is in, and its own."""
    for name, value in metrics.items():
        if isinstance(value, dict):
            yield from _one_by_one(value, *groups, name)
        else:
            yield (*groups, name), f"{value:.4g}" if isinstance(value, float) else value
