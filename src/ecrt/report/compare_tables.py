"""A comparison as tables: for the terminal and for its page."""

from __future__ import annotations

import numpy as np

from ecrt.comparison import MEASURES, SHOWN, Comparison, Estimate, Pair
from ecrt.metrics import PRIORS, PriorName
from ecrt.report.model_tables import Entry, SheetTable
from ecrt.report.rendering import short, short_label
from ecrt.report.tables import Cell, ResultTable, Row

__all__ = ["class_gain_table", "comparison_table", "full_table", "pair_table", "tuning_table"]

MOST_CLASSES = 500
ON_SCREEN = ("macro_f1", "nll")


def comparison_table(found: Comparison, prior: PriorName) -> ResultTable:
    """The metric under both priors and little else, as wide as a terminal."""
    other = PRIORS[1 - PRIORS.index(prior)]
    columns = [(found.metric, prior), (found.metric, other)]
    columns += [(metric, prior) for metric in ON_SCREEN if metric != found.metric]
    return _table(found, columns, found.ranking(prior), prior, broken=True)


def full_table(found: Comparison, prior: PriorName) -> ResultTable:
    """Every metric that is shown, under one prior."""
    metrics = dict.fromkeys((found.metric, *SHOWN))
    return _table(found, [(metric, prior) for metric in metrics], found.ranking(prior), prior, broken=False)


def _table(
    found: Comparison, columns: list[tuple[str, PriorName]], ranking: list[str], prior: PriorName, *, broken: bool
) -> ResultTable:
    best = {column: (found.ranking(column[1], column[0]) or [""])[0] for column in columns}
    rows = [
        Row(found.label(name), tuple(_cell(found.estimate(name, *column), name == best[column]) for column in columns))
        for name in ranking
    ]
    names = []
    for metric, under in columns:
        measure = MEASURES[metric]
        name = f"{measure.label} {'↑' if measure.higher_is_better else '↓'}"
        names.append(f"{name.replace(' ', chr(10), 1)}\n{under}" if broken else name)
    title = f"{found.settings['title'] or 'Comparison'}, {found.settings['seeds']} {found.settings['splits']} splits"
    return ResultTable(title, tuple(names), tuple(rows), note_of(found))


def note_of(found: Comparison) -> str:
    """What the intervals are."""
    if found.settings["seeds"] < 2:
        return "One split, so no interval."
    return (
        f"Mean over {found.settings['seeds']} splits ± 95 % interval, widened for training rows that the splits share "
        "(Nadeau and Bengio, 2003). Bold: best mean of its column."
    )


def pair_table(found: Comparison, pairs: list[Pair], key: str) -> SheetTable:
    """Differences of pairs, with the p-value after Holm's correction for all of the table."""
    rows = []
    for pair in pairs:
        interval = pair.gain.interval
        rows.append(
            (
                Entry(found.label(pair.first)),
                Entry(found.label(pair.second)),
                Entry(f"{pair.gain.mean:+.3f}", pair.gain.mean),
                Entry("–" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"),
                Entry("–", float("nan")) if pair.adjusted is None else Entry(_p_value(pair.adjusted), pair.adjusted),
                Entry("yes" if pair.beyond_noise else "no"),
            )
        )
    columns = ("Method", "against", "Better by", "95 % interval", "p, corrected", "Beyond noise")
    return SheetTable(key, columns, tuple(rows), sortable=True, summary=f"All {len(rows)} pairs, tested together")


def class_gain_table(found: Comparison, prior: PriorName) -> SheetTable | None:
    """Recall of each class with the reference, and what the others add; the rarest class first."""
    gains = found.class_gains(prior)
    others = [name for name in found.ranking(prior) if name != found.reference and name in gains]
    if not others:
        return None
    counts, tested = found.data["counts"], found.data["test_rows"]
    base = found.mean_recalls(found.reference, prior)
    rows = []
    for at in np.argsort(counts, kind="stable")[:MOST_CLASSES].tolist():
        label = str(found.data["classes"][at])
        text = short_label(label, 48)
        name = Entry(text, full=short(label, 400) if text != label else "", label=True)
        cells = [_gain(gains[other][at]) for other in others]
        recall = base[at]
        rows.append(
            (
                name,
                Entry(f"{counts[at]:,}", float(counts[at])),
                Entry(f"{tested[at]:,.3g}", float(tested[at])),
                Entry("–", float("nan")) if recall is None else Entry(f"{recall:.3f}", recall),
                *cells,
            )
        )
    n = len(counts)
    summary = f"All {n:,} classes" if n <= MOST_CLASSES else f"The {MOST_CLASSES} rarest of {n:,} classes"
    columns = ("Class", "Rows", "Test rows a split", found.label(found.reference), *map(found.label, others))
    return SheetTable(f"class-gains-{prior}", columns, tuple(rows), sortable=True, summary=summary)


def tuning_table(found: Comparison) -> SheetTable:
    """Trials and seconds of each method, all splits together."""
    rows = []
    for name, result in found.methods.items():
        trials = {key: [one[key] for one in result.trials] for key in ("finished", "failed", "cut")}
        seconds = found.times.get(name, [])
        tuning, refit = (float(np.mean([one[key] for one in seconds])) for key in ("tuning", "refit"))
        few, most = min(trials["finished"]), max(trials["finished"])
        rows.append(
            (
                Entry(found.label(name), note="failed" if result.error else ""),
                Entry(f"{few}" if few == most else f"{few} to {most}", float(np.mean(trials["finished"]))),
                Entry(f"{sum(trials['cut'])}", float(sum(trials["cut"]))),
                Entry(f"{sum(trials['failed'])}", float(sum(trials["failed"]))),
                Entry(f"{tuning:.1f} s", tuning),
                Entry(f"{refit:.1f} s", refit),
            )
        )
    columns = ("Method", "Trials a split", "Cut short", "Failed", "Tuning a split", "Last fit")
    return SheetTable("tuning-table", columns, tuple(rows), sortable=True)


def _cell(estimate: Estimate | None, best: bool) -> Cell:
    if estimate is None:
        return Cell("–")
    mean, _, width = estimate.text().partition(" ± ")
    return Cell(mean, f"± {width}" if width else "", best)


def _gain(estimate: Estimate | None) -> Entry:
    if estimate is None:
        return Entry("–", float("nan"))
    width = "" if estimate.half_width is None else f"± {estimate.half_width:.3f}"
    return Entry(f"{estimate.mean:+.3f}", estimate.mean, note=width)


def _p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
