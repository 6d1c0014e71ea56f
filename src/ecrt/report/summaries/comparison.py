"""What a comparison shows, in the terminal and on its page: how far methods are apart, and on which classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ecrt.comparison import MEASURES, METHODS, SHOWN, Comparison, Estimate, Pair
from ecrt.metrics import PRIORS, PriorName
from ecrt.report.tables import Cell, Table, column_table, count_cell, label_cell, number_cell

__all__ = ["comparison_table", "summarise_comparison"]

MOST_CLASSES = 500
ON_SCREEN = ("macro_f1", "nll")


def summarise_comparison(found: Comparison) -> dict[str, Any]:
    """Turn a comparison into what its page shows."""
    counts = found.data["counts"]
    return {
        "title": found.settings["title"],
        "settings": found.settings,
        "metric": MEASURES[found.metric].label,
        "reference": found.label(found.reference),
        "chosen_prior": found.prior,
        "rows": found.data["rows"],
        "n_columns": found.data["columns"],
        "n_classes": len(counts),
        "smallest": min(counts),
        "largest": max(counts),
        "minutes": sum(sum(one.values()) for runs in found.times.values() for one in runs) / 60,
        "warnings": found.warnings,
        "views": [_view(found, prior) for prior in PRIORS],
        "tuning": _tuning_table(found),
        "parameters": _parameter_table(found),
        "columns": column_table(found.data.get("reading", ())),
    }


def comparison_table(found: Comparison) -> Table:
    """The metric under both priors and little else, as wide as a terminal."""
    prior = found.prior
    columns = [(found.metric, prior), (found.metric, PRIORS[1 - PRIORS.index(prior)])]
    columns += [(metric, prior) for metric in ON_SCREEN if metric != found.metric]
    table = _score_table(found, columns, prior)
    names = (
        f"{name.replace(' ', chr(10), 1)}\n{under}" for name, (_, under) in zip(table.columns[1:], columns, strict=True)
    )
    title = f"{found.settings['title'] or 'Comparison'}, {found.settings['seeds']} {found.settings['splits']} splits"
    return replace(table, columns=("Method", *names), title=title)


def _view(found: Comparison, prior: PriorName) -> dict[str, Any]:
    """What the page shows under one prior."""
    against = sorted(found.against_reference(prior), key=lambda pair: -pair.gain.mean)
    metrics = dict.fromkeys((found.metric, *SHOWN))
    return {
        "prior": prior,
        "verdict": found.verdict(prior),
        "scores": replace(_score_table(found, [(name, prior) for name in metrics], prior), key=f"table-{prior}"),
        "against": _pair_table(found, against, f"against-{prior}") if against else None,
        "pairs": _pair_table(found, found.all_pairs(prior), f"pairs-{prior}"),
        "classes": _class_table(found, prior),
    }


def _score_table(found: Comparison, columns: list[tuple[str, PriorName]], prior: PriorName) -> Table:
    """Metrics of every method, the best method on top and the best mean of each column marked."""
    best = {column: (found.ranking(column[1], column[0]) or [""])[0] for column in columns}
    rows = []
    for name in found.ranking(prior):
        cells = []
        for column in columns:
            estimate = found.estimate(name, *column)
            if estimate is None:
                cells.append(number_cell(None))
            else:
                cell = number_cell(estimate.mean, note=_half_width(estimate))
                cells.append(replace(cell, best=name == best[column]))
        rows.append((Cell(found.label(name)), *cells))
    measures = [MEASURES[metric] for metric, _ in columns]
    names = (f"{measure.label} {'↑' if measure.higher_is_better else '↓'}" for measure in measures)
    return Table(("Method", *names), tuple(rows))


def _pair_table(found: Comparison, pairs: list[Pair], key: str) -> Table:
    """Differences of pairs, with the p-value after Holm's correction for all of the table."""
    rows = []
    for pair in pairs:
        interval, p = pair.gain.interval, pair.adjusted
        rows.append((
            Cell(found.label(pair.first)), Cell(found.label(pair.second)),
            Cell(f"{pair.gain.mean:+.3f}", pair.gain.mean),
            Cell("–" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"),
            Cell("< 0.001", p) if p is not None and p < 0.001 else number_cell(p),
            Cell("yes" if pair.beyond_noise else "no"),
        ))  # fmt: skip
    columns = ("Method", "against", "Better by", "95 % interval", "p, corrected", "Beyond noise")
    return Table(columns, tuple(rows), key, sortable=True)


def _class_table(found: Comparison, prior: PriorName) -> Table | None:
    """Recall of each class with the reference, and what the others add; the rarest class first."""
    gains = found.class_gains(prior)
    others = [name for name in found.ranking(prior) if name != found.reference and name in gains]
    if not others:
        return None
    counts, tested = found.data["counts"], found.data["test_rows"]
    base = found.mean_recalls(found.reference, prior)
    rows = []
    for at in np.argsort(counts, kind="stable")[:MOST_CLASSES].tolist():
        name = label_cell(str(found.data["classes"][at]))
        cells = (
            number_cell(None) if gain is None else Cell(f"{gain.mean:+.3f}", gain.mean, _half_width(gain))
            for gain in (gains[other][at] for other in others)
        )
        rows.append(
            (name, count_cell(counts[at]), Cell(f"{tested[at]:,.3g}", tested[at]), number_cell(base[at]), *cells)
        )
    columns = ("Class", "Rows", "Test rows a split", found.label(found.reference), *map(found.label, others))
    return Table(columns, tuple(rows), f"classes-{prior}", sortable=True)


def _tuning_table(found: Comparison) -> Table:
    """Trials and seconds of each method, all splits together."""
    rows = []
    for name, result in found.methods.items():
        finished = [one["finished"] for one in result.trials]
        few, most = min(finished), max(finished)
        seconds = [np.mean([one[key] for one in found.times.get(name, [])]) for key in ("tuning", "refit")]
        rows.append((
            Cell(found.label(name), note="failed" if result.error else ""),
            Cell(f"{few}" if few == most else f"{few} to {most}", float(np.mean(finished))),
            *(count_cell(sum(one[key] for one in result.trials)) for key in ("cut", "failed")),
            *(Cell(f"{value:.1f} s", float(value)) for value in seconds),
        ))  # fmt: skip
    columns = ("Method", "Trials a split", "Cut short", "Failed", "Tuning a split", "Last fit")
    return Table(columns, tuple(rows), "tuning-table", sortable=True)


def _parameter_table(found: Comparison) -> Table:
    """What tuning chose on every split."""
    rows = []
    for name, result in found.methods.items():
        reference = METHODS[name].reference if name in METHODS else ""
        for seed, chosen in enumerate(result.parameters):
            text = ", ".join(f"{key} {_shown(value)}" for key, value in chosen.items())
            rows.append((
                Cell(found.label(name), full=reference), count_cell(seed), number_cell(result.validation[seed]),
                Cell(text),
            ))  # fmt: skip
    columns = ("Method", "Seed", "Best of all trials on validation rows", "Chosen setting")
    return Table(columns, tuple(rows), "parameters", sortable=True)


def _half_width(estimate: Estimate) -> str:
    return "" if estimate.half_width is None else f"± {estimate.half_width:.3f}"


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "chosen within" if value is None else str(value)
