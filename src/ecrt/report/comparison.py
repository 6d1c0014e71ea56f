"""A comparison, in the terminal and on its page: how far methods are apart, and on which classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ecrt.comparison import MEASURES, METHODS, SHOWN, Comparison
from ecrt.metrics import PRIORS, Estimate, Pair, PriorName, mean_of_finite
from ecrt.report import drawing
from ecrt.report.drawing import DOTTED, INK, MINORITY, OTHERS, PALETTE, SMALL, svg
from ecrt.report.rendering import Cell, Plots, Table, column_table, label_cell, number_cell, paragraphs

MOST_CLASSES = 500
ON_SCREEN = ("macro_f1", "nll")
MARKS = "os^Dv"
"""Of the methods that get their own colour; the sixth colour and grey are left for what is not a method."""


def summarise_comparison(found: Comparison) -> dict[str, Any]:
    """What the page shows: the comparison, and what follows from it."""
    return vars(found) | {
        "metric": MEASURES[found.metric].label,
        "reference": found.label(found.reference),
        "chosen_prior": found.prior,
        "minutes": sum(sum(one.values()) for runs in found.times.values() for one in runs) / 60,
        "views": [_view(found, prior) for prior in PRIORS],
        "tuning": _tuning_table(found),
        "parameters": _parameter_table(found),
        "columns": column_table(found.data.get("reading", ())),
    }


def verdict_text(found: Comparison, prior: PriorName | None = None) -> list[str]:
    """The answer in sentences: the methods against the reference, the leader against all, and what failed.

    Parameters
    ----------
    prior : the class prior that figures are under; the one that settings were chosen under, if not given.
    """
    summary = summarise_comparison(found)
    view = summary["views"][PRIORS.index(prior or found.prior)]
    return paragraphs("comparison_words.html", "verdict", summary, view)


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
    verdict = found.verdict(prior)
    columns = [(metric, prior) for metric in dict.fromkeys((found.metric, *SHOWN))]
    return {
        "prior": prior,
        "verdict": verdict,
        "gains": {pair.first: pair.gain for pair in against},
        "best": found.estimate(verdict["leader"], found.metric, prior) if verdict["leader"] else None,
        "scores": _score_table(found, columns, prior, f"scores-table-{prior}"),
        "against": _pair_table(found, against, f"against-{prior}") if against else None,
        "pairs": _pair_table(found, found.all_pairs(prior), f"pairs-{prior}"),
        "classes": _class_table(found, prior),
    }


def _score_table(found: Comparison, columns: list[tuple[str, PriorName]], prior: PriorName, key: str = "") -> Table:
    """Metrics of every method, the best method on top and the best mean of each column marked."""
    ranking = found.ranking(prior)
    headings, cells = ["Method"], [[Cell(found.label(name)) for name in ranking]]
    for metric, under in columns:
        measure, best = MEASURES[metric], found.ranking(under, metric)[:1]
        headings.append(f"{measure.label} {'↑' if measure.higher_is_better else '↓'}")
        estimates = [found.estimate(name, metric, under) for name in ranking]
        cells.append([
            replace(_estimate_cell(estimate, "{:.3f}"), best=[name] == best)
            for name, estimate in zip(ranking, estimates, strict=True)
        ])  # fmt: skip
    return Table(tuple(headings), tuple(zip(*cells, strict=True)), key)


def _estimate_cell(estimate: Estimate | None, form: str) -> Cell:
    """A mean with half of its interval; a dash where it is missing."""
    width = None if estimate is None else estimate.half_width
    return number_cell(None if estimate is None else estimate.mean, form, "" if width is None else f"± {width:.3f}")


def _pair_table(found: Comparison, pairs: list[Pair], key: str) -> Table:
    """Differences of pairs, with the p-value after Holm's correction for all of the table."""
    p_values = [pair.adjusted for pair in pairs]
    columns: dict[str, list[Any]] = {
        "Method": [found.label(pair.first) for pair in pairs],
        "against": [found.label(pair.second) for pair in pairs],
        "Better by": [_estimate_cell(pair.gain, "{:+.3f}") for pair in pairs],
        "p, corrected": [Cell("< 0.001", p) if p is not None and p < 0.001 else number_cell(p) for p in p_values],
        "Beyond noise": [pair.beyond_noise for pair in pairs],
    }
    return Table.of(columns, key, sortable=True)


def _class_table(found: Comparison, prior: PriorName) -> Table | None:
    """Recall of each class with the reference, and what the others add; the rarest class first."""
    gains = found.class_gains(prior)
    others = [name for name in found.ranking(prior) if name != found.reference and name in gains]
    if not others:
        return None
    of, recalls = found.data, found.methods[found.reference].recalls[prior]
    order = np.argsort(of["counts"], kind="stable")[:MOST_CLASSES].tolist()
    columns = {
        "Class": [label_cell(of["classes"][at]) for at in order],
        "Rows": [of["counts"][at] for at in order],
        "Test rows a split": [number_cell(of["test_rows"][at], "{:,.3g}") for at in order],
        found.label(found.reference): [mean_of_finite(recalls[:, at]) for at in order],
        **{found.label(name): [_estimate_cell(gains[name][at], "{:+.3f}") for at in order] for name in others},
    }
    return Table.of(columns, f"classes-{prior}", sortable=True)


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
            *(number_cell(sum(one[key] for one in result.trials), "{:.0f}") for key in ("cut", "failed")),
            *(number_cell(value, "{:.1f} s") for value in seconds),
        ))  # fmt: skip
    columns = ("Method", "Trials a split", "Cut short", "Failed", "Tuning a split", "Last fit")
    return Table(columns, tuple(rows), "tuning-table", sortable=True)


def _parameter_table(found: Comparison) -> Table:
    """What tuning chose on every split."""
    rows = []
    for name, result in found.methods.items():
        method = Cell(found.label(name), full=METHODS[name].reference if name in METHODS else "")
        for seed, (chosen, reached) in enumerate(zip(result.parameters, result.validation, strict=True)):
            text = ", ".join(f"{key} {_shown(value)}" for key, value in chosen.items())
            rows.append((method, number_cell(seed, "{:.0f}"), number_cell(reached), Cell(text)))
    columns = ("Method", "Seed", "Best of all trials on validation rows", "Chosen setting")
    return Table(columns, tuple(rows), "parameters", sortable=True)


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "chosen within" if value is None else str(value)


def comparison_plots(found: Comparison) -> Plots:
    """Every figure of the page; without a sound reference there is nothing to measure gains against."""
    plots: dict[str, list[str]] = {}
    for prior in PRIORS:
        pairs = {pair.first: pair for pair in found.against_reference(prior)}
        ranked = [pairs[name] for name in found.ranking(prior) if name in pairs]
        size = (4.8, 0.42 * len(found.ranking(prior)) + 0.9)
        plots[f"scores-{prior}"] = [svg(_scores, f"scores-{prior}", found, prior, size=size)]
        plots[f"class-gains-{prior}"] = []
        if ranked:
            size = (4.8, 0.42 * len(ranked) + 0.9)
            plots[f"scores-{prior}"].append(svg(_gains, f"gains-{prior}", found, ranked, size=size))
            plots[f"class-gains-{prior}"] = [svg(_class_gains, f"class-gains-{prior}", found, prior, size=(7.0, 3.6))]
    return plots


def _scores(axes: Axes, found: Comparison, prior: PriorName) -> None:
    """A dot for each split, and the mean with its interval; one line for each method, the best on top."""
    ranking, measure = found.ranking(prior), MEASURES[found.metric]
    for line, name in zip(drawing.name_lines(axes, [found.label(name) for name in ranking]), ranking, strict=True):
        values = np.array(found.methods[name].metrics[prior][found.metric], dtype=np.float64)
        colour = MINORITY if name == found.reference else OTHERS
        axes.plot(values, np.full(len(values), line + 0.18), "o", color=colour, alpha=0.5, markersize=4)
        estimate = found.estimate(name, found.metric, prior)
        if estimate is not None:
            axes.errorbar(
                estimate.mean, line - 0.1, xerr=estimate.half_width, fmt="|", color=INK, markersize=11,
                markeredgewidth=2, elinewidth=1.5, capsize=3,
            )  # fmt: skip
    axes.set_xlabel(f"{measure.label} ({'higher' if measure.higher_is_better else 'lower'} is better)")


def _gains(axes: Axes, found: Comparison, pairs: list[Pair]) -> None:
    """What each method gains over the reference, with its interval; filled where it is beyond noise."""
    axes.axvline(0, **DOTTED)
    lines = drawing.name_lines(axes, [found.label(pair.first) for pair in pairs])
    for line, pair in zip(lines, pairs, strict=True):
        axes.errorbar(
            pair.gain.mean, line, xerr=pair.gain.half_width, fmt="o", color=OTHERS, markersize=7, elinewidth=1.5,
            capsize=3, markerfacecolor=OTHERS if pair.beyond_noise else "none",
        )  # fmt: skip
    axes.set_xlabel(f"Better than {found.label(found.reference)} by")


def _class_gains(axes: Axes, found: Comparison, prior: PriorName) -> None:
    """Gain in recall of every class over the reference against its rows, for the best methods."""
    gains = found.class_gains(prior)
    names = [name for name in found.ranking(prior) if name != found.reference][: len(MARKS)]
    counts = np.array(found.data["counts"], dtype=np.int64)
    axes.axhline(0, **DOTTED)
    drawing.count_axis(axes, counts)
    for place, name in enumerate(names):
        values = [np.nan if gain is None else gain.mean for gain in gains[name]]
        shift = 1.03 ** (place - (len(names) - 1) / 2)  # side by side where classes are few
        axes.plot(
            counts * shift, values, MARKS[place], color=PALETTE[place], markersize=5, alpha=0.8,
            label=found.label(name),
        )  # fmt: skip
    axes.set(xlabel="Rows of the class", ylabel="Recall gained")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL, handletextpad=0.3)
