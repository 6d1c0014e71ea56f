"""Figures of a comparison: how far methods are apart, and on which classes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from ecrt.comparison import MEASURES, Comparison
from ecrt.metrics import PRIORS, PriorName
from ecrt.report.drawing import INK, MINORITY, OTHERS, PALETTE, count_axis, svg
from ecrt.report.rendering import Plots

__all__ = ["comparison_plots"]

MOST_COLOURED = 5
"""Methods that get a colour of their own; the sixth colour and grey are left for what is not a method."""


def comparison_plots(found: Comparison) -> Plots:
    """Every figure of the page; without a sound reference there is nothing to measure gains against."""
    plots: dict[str, list[str]] = {}
    for prior in PRIORS:
        against = bool(found.against_reference(prior))
        plots[f"scores-{prior}"] = [score_panel(found, prior)] + ([gain_panel(found, prior)] if against else [])
        plots[f"class-gains-{prior}"] = [class_gain_panel(found, prior)] if against else []
    return plots


def score_panel(found: Comparison, prior: PriorName) -> str:
    """A dot for each split, and the mean with its interval; one line for each method, the best on top."""
    ranking, measure = found.ranking(prior), MEASURES[found.metric]

    def draw(axes: Axes) -> None:
        for line, name in enumerate(reversed(ranking)):
            values = np.array(found.methods[name].metrics[prior][found.metric], dtype=np.float64)
            estimate = found.estimate(name, found.metric, prior)
            colour = MINORITY if name == found.reference else OTHERS
            axes.plot(values, np.full(len(values), line + 0.18), "o", color=colour, alpha=0.5, markersize=4)
            if estimate is not None:
                axes.errorbar(
                    estimate.mean, line - 0.1, xerr=estimate.half_width, fmt="|", color=INK, markersize=11,
                    markeredgewidth=2, elinewidth=1.5, capsize=3,
                )  # fmt: skip
        _lines(axes, found, ranking)
        axes.set_xlabel(f"{measure.label} ({'higher' if measure.higher_is_better else 'lower'} is better)")

    return svg(draw, f"scores-{prior}", size=(4.8, 0.42 * len(ranking) + 0.9))


def gain_panel(found: Comparison, prior: PriorName) -> str:
    """How much better than the reference each method is, with its interval; filled where it is beyond noise."""
    pairs = {pair.first: pair for pair in found.against_reference(prior)}
    ranking = [name for name in found.ranking(prior) if name in pairs]

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=INK, linewidth=1, linestyle=":")
        for line, name in enumerate(reversed(ranking)):
            pair = pairs[name]
            axes.errorbar(
                pair.gain.mean, line, xerr=pair.gain.half_width, fmt="o", color=OTHERS, markersize=7, elinewidth=1.5,
                capsize=3, markerfacecolor=OTHERS if pair.beyond_noise else "none",
            )  # fmt: skip
        _lines(axes, found, ranking)
        axes.set_xlabel(f"Better than {found.label(found.reference)} by")

    return svg(draw, f"gains-{prior}", size=(4.8, 0.42 * len(ranking) + 0.9))


def class_gain_panel(found: Comparison, prior: PriorName) -> str:
    """Gain in recall of every class over the reference against its rows, for the best methods."""
    gains = found.class_gains(prior)
    names = [name for name in found.ranking(prior) if name != found.reference][:MOST_COLOURED]
    counts = np.array(found.data["counts"], dtype=np.int64)

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=INK, linewidth=1, linestyle=":")
        count_axis(axes, counts)
        for place, name in enumerate(names):
            known = [at for at, gain in enumerate(gains[name]) if gain is not None]
            values = [gain.mean for gain in gains[name] if gain is not None]
            shift = 1.03 ** (place - (len(names) - 1) / 2)  # side by side where classes are few
            axes.plot(
                counts[known] * shift, values, "os^Dv"[place], color=PALETTE[place], markersize=5, alpha=0.8,
                label=found.label(name),
            )  # fmt: skip
        axes.set_xlabel("Rows of the class")
        axes.set_ylabel("Recall gained")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5, handletextpad=0.3)

    return svg(draw, f"class-gains-{prior}", size=(7.0, 3.6))


def _lines(axes: Axes, found: Comparison, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [found.label(name) for name in reversed(names)])
    axes.set_ylim(-0.6, len(names) - 0.4)
