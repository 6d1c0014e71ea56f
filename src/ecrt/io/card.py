"""The model card: what a model is, in Markdown, for whoever finds its folder."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ecrt.data import HEADINGS
from ecrt.diagnostics import SourceDiagnostics
from ecrt.io.versions import package_versions

MOST_ROWS = 50
"""Classes that are listed one by one."""

LONGEST_TEXT = 80
LONGEST_CELL = 200
SPECIAL = re.compile(r"[&<>|`*\[\]!\\~$@#]|:(?=//)|(?<=www)\.|(?<![^\W_])_|_(?![^\W_])", re.IGNORECASE)


@dataclass(frozen=True)
class CardRow:
    """One class: its label, its training samples, and whether it is minority and was de-mixed on."""

    label: Any
    n_samples: int
    minority: bool
    demixed: bool


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What the card tells.

    Attributes
    ----------
    estimator : name of its class.
    n_features : columns of X, ``None`` for a Dataset.
    classes : one row for each class.
    chosen : what was chosen or set, by name.
    diagnostics : measured after the fit; ``None`` where there are no sources to measure.
    metrics : results to report, perhaps in groups.
    metrics_of : a sentence on which model the results are of.
    columns : how columns were read, rows of ``ecrt.data.column_rows``.
    own_encoder : whether an encoder must be given when loading.
    use : the method to show with loading.
    """

    estimator: str
    n_features: int | None
    n_sources: int
    classes: list[CardRow]
    chosen: dict[str, str]
    diagnostics: SourceDiagnostics | None
    metrics: dict[str, Any] = field(default_factory=dict)
    metrics_of: str = ""
    columns: Sequence[Sequence[str]] = ()
    own_encoder: bool = False
    use: str = "predict_proba"


def model_card(facts: CardFacts) -> str:
    """The card as Markdown."""
    parts = ["# Model card"]
    for section in (_data, _columns, _chosen, _diagnostics, _metrics, _loading):
        parts += section(facts)
    return "\n".join(parts) + "\n"


def escape(value: Any, longest: int = LONGEST_TEXT) -> str:
    """A value from the user's data as text that Markdown and HTML show and do not obey.

    >>> escape("<b>a|b</b>")
    '&#60;b&#62;a&#124;b&#60;/b&#62;'
    """
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return SPECIAL.sub(lambda found: f"&#{ord(found.group())};", text)


def _data(facts: CardFacts) -> list[str]:
    rows = facts.classes
    minority = sum(row.minority for row in rows)
    features = "rows of a Dataset" if facts.n_features is None else f"{facts.n_features} features"
    lines = [
        f"\n{facts.estimator}, fitted on {sum(row.n_samples for row in rows):,} samples with {features}, in "
        f"{len(rows)} classes, {minority} of them minority.\n\n## Data\n",
        "| Class | Samples | Minority | De-mixed on |",
        "| --- | ---: | --- | --- |",
    ]
    shown = sorted(rows, key=lambda row: -row.n_samples)
    if len(rows) > MOST_ROWS:
        shown = shown[: MOST_ROWS // 2] + shown[-MOST_ROWS // 2 :]
    for row in shown:
        said = ("yes" if row.minority else "no", "yes" if row.demixed else "no")
        lines.append(f"| {escape(row.label)} | {row.n_samples} | {said[0]} | {said[1]} |")
    if len(rows) > MOST_ROWS:
        lines.append(f"\nThe largest and the smallest classes are listed, {len(rows) - MOST_ROWS} others are not.")
    return lines


def _columns(facts: CardFacts) -> list[str]:
    if not facts.columns:
        return []
    used = [place for place in range(len(HEADINGS)) if place < 2 or any(cells[place] for cells in facts.columns)]
    lines = ["\n## How columns were read\n", f"| {' | '.join(HEADINGS[place] for place in used)} |"]
    lines.append("|" + " --- |" * len(used))
    for cells in facts.columns:
        lines.append(f"| {' | '.join(escape(cells[place], LONGEST_CELL) for place in used)} |")
    return lines


def _chosen(facts: CardFacts) -> list[str]:
    return ["\n## Model\n", *(f"- {escape(name)}: {escape(value)}" for name, value in facts.chosen.items())]


def _diagnostics(facts: CardFacts) -> list[str]:
    found = facts.diagnostics
    if found is None:
        return []
    n_demixed = sum(one.demixed for one in found.classes)
    lines = ["\n## Diagnostics\n"]
    for kind, demixed in (("that de-mixing learned from", True), ("that it did not learn from", False)):
        known = [one for one in found.classes if one.demixed == demixed and not math.isnan(one.max_correlation)]
        if known:
            worst = max(known, key=lambda one: one.max_correlation)
            lines.append(
                f"- Independence, in classes {kind}: sources correlate by up to {worst.max_correlation:.2f} (class "
                f"{escape(worst.label)}); 0 is independent, samples that are few raise it."
            )
    lines.append(f"- Inverting the de-mixing gives the data back up to an error of {found.round_trip_error:.1e}.")
    needed = 2 * facts.n_sources + 1
    if found.theory_met:
        lines.append("- The theorem's conditions hold: the classes differ enough to identify the sources.")
    elif not found.enough_classes:
        lines.append(
            f"- The theorem's conditions do not hold: {n_demixed} classes were de-mixed on, {needed} are needed for "
            f"{facts.n_sources} sources. Sources need not be the true ones; predictions may be good all the same."
        )
    else:
        lines.append("- The theorem's conditions do not hold: the classes differ in too few directions.")
    return lines


def _metrics(facts: CardFacts) -> list[str]:
    if not facts.metrics:
        return []
    said = [f"{escape(facts.metrics_of, 400)}\n"] if facts.metrics_of else []
    return ["\n## Metrics\n", *said, "| Metric | Value |", "| --- | ---: |", *_metric_rows(facts.metrics, "")]


def _metric_rows(metrics: dict[Any, Any], group: str) -> list[str]:
    rows = []
    for name, value in metrics.items():
        full_name = f"{group}{escape(name)}"
        if isinstance(value, dict):
            rows += _metric_rows(value, f"{full_name}: ")
        else:
            rows.append(f"| {full_name} | {f'{value:.4g}' if isinstance(value, float) else escape(value)} |")
    return rows


def _loading(facts: CardFacts) -> list[str]:
    argument = ", encoder=my_encoder" if facts.own_encoder else ""
    needs = ["# my_encoder: the module that was given for fitting, built the same way"] if facts.own_encoder else []
    versions = ", ".join(f"{name} {number}" for name, number in package_versions().items())
    return [
        "\n## How to load\n\n```python",
        "import ecrt\n",
        *needs,
        f'model = ecrt.load("path/to/this/folder"{argument})',
        f"model.{facts.use}(X)\n```\n",
        f"Written with {versions}.",
    ]
