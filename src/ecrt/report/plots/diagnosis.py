"""Figures of a diagnosis: one for each question that has something to show."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ecrt.diagnostics import COARSE, Dependence, Gaussianity, Memorisation, MinorityGap, Stability, UniqueFeature
from ecrt.report.drawing import GREY, INK, MINORITY, OTHERS, PALETTE, count_axis, legend_below, svg
from ecrt.report.rendering import Plots, short, short_label
from ecrt.runs.diagnosis import Diagnosis

__all__ = ["diagnosis_plots"]

LOW_PANEL = (4.8, 1.5)


def diagnosis_plots(found: Diagnosis) -> Plots:
    """Every figure of the page, by the key of its question."""
    unique, memorisation, gap = found.unique, found.memorisation, found.gap
    return {
        "transfer": [transfer_panel(found)] if len(found.selection.tried) > 1 else [],
        "theory": [theory_panel(found)],
        "dependence": [dependence_panel(found.dependence)] if found.dependence.tested else [],
        "gaussianity": [gaussianity_panel(found.gaussianity)] if found.gaussianity.sources else [],
        "stability": [stability_panel(found.stability)] if found.stability.pairs else [],
        "gridding": [grid_panel(found)] if any(np.isfinite(grid.gap) for grid in found.grids) else [],
        "memorisation": [] if memorisation is None else [memorisation_panel(memorisation)],
        "unique-feature": [] if unique is None else [projection_panel(unique), null_panel(unique)],
        "features-or-sources": [] if gap is None else [gap_panel(gap)],
    }


def transfer_panel(found: Diagnosis) -> str:
    """What the transfer that was settled on saves on plain logit adjustment, with its interval."""
    selection = found.selection

    def draw(axes: Axes) -> None:
        _interval(axes, selection.gain, selection.low, selection.high, OTHERS)
        axes.set_yticks([0], [_candidate(found.options)], parse_math=False)
        axes.set_xlabel("Nats saved")

    return svg(draw, "transfer", size=LOW_PANEL)


def _candidate(options: dict[str, object]) -> str:
    """Options in few words; the name of an option is left out where its value speaks for itself."""
    if options.get("augmentation") == "none":
        options = {name: value for name, value in options.items() if not name.startswith("augmentation")}
    words = [str(value) if isinstance(value, str) else f"{name} {value}" for name, value in options.items()]
    return short(", ".join(words).replace("__", " ").replace("_", " "), 36)


def theory_panel(found: Diagnosis) -> str:
    """Classes that there are, beside those that the theorem asks for."""

    def draw(axes: Axes) -> None:
        needed = 2 * found.n_sources + 1
        axes.barh([1, 0], [found.n_demixed, needed], color=[OTHERS, GREY], height=0.6)
        for line, value in ((1, found.n_demixed), (0, needed)):
            axes.annotate(f" {value}", (value, line), va="center")
        axes.set_yticks([1, 0], ["Classes learned from", "Asked for"])
        axes.set_xlim(0, 1.15 * max(found.n_demixed, needed))
        axes.set_xlabel("Classes")

    return svg(draw, "theory", size=LOW_PANEL)


def dependence_panel(result: Dependence) -> str:
    """HSIC of each class before and after; filled where it is beyond chance."""
    classes = result.tested

    def draw(axes: Axes) -> None:
        for line, one in enumerate(reversed(classes)):
            for value, p, colour in ((one.hsic_z, one.p_z, GREY), (one.hsic_s, one.p_s, OTHERS)):
                axes.plot(value, line, "o", color=colour, markerfacecolor=colour if p < 0.05 else "none", markersize=6)
        names = [short_label(str(one.label), 16) + (" *" if one.minority else "") for one in reversed(classes)]
        axes.set_yticks(range(len(classes)), names, parse_math=False)
        axes.set_ylim(-0.7, len(classes) - 0.3)
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        axes.set_xlabel("Largest normalised HSIC of two coordinates")
        for colour, name in ((GREY, "features"), (OTHERS, "sources")):
            axes.plot([], [], "o", color=colour, label=name)
        axes.legend(loc="lower right", fontsize=9)

    return svg(draw, "dependence", size=(4.8, 0.24 * len(classes) + 1.0))


def gaussianity_panel(result: Gaussianity) -> str:
    """Quantiles of the sources furthest from Gaussian against those of a Gaussian."""

    def draw(axes: Axes) -> None:
        expected = result.quantiles[:, 0]
        axes.plot(expected, expected, color=INK, linewidth=1, linestyle=":")
        for place, shape in enumerate(result.sources[: result.quantiles.shape[1] - 1]):
            axes.plot(
                expected, result.quantiles[:, 1 + place], color=PALETTE[place], linewidth=1.6,
                label=f"source {shape.source + 1}",
            )  # fmt: skip
        axes.set_xlabel("Quantile of a Gaussian")
        axes.set_ylabel("Quantile of the residuals")
        axes.legend(loc="upper left", fontsize=9)

    return svg(draw, "gaussianity")


def stability_panel(result: Stability) -> str:
    """MCC of every pair of fits."""

    def draw(axes: Axes) -> None:
        axes.plot(result.pairs, np.zeros(len(result.pairs)), "o", color=OTHERS, alpha=0.6, markersize=7)
        axes.axvline(1.0, color=INK, linewidth=1, linestyle=":")
        axes.set_xlim(0, 1.05)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("MCC of two fits (1: the same sources)")

    return svg(draw, "stability", size=LOW_PANEL)


def grid_panel(found: Diagnosis) -> str:
    """Gap between neighbouring values of each rare class against its rows."""
    grids = [grid for grid in found.grids if np.isfinite(grid.gap)]

    def draw(axes: Axes) -> None:
        rows = np.array([grid.n_rows for grid in grids], dtype=np.int64)
        count_axis(axes, rows)
        axes.plot(rows, [grid.gap for grid in grids], "o", color=MINORITY, alpha=0.7)
        axes.axhline(COARSE, color=INK, linewidth=1, linestyle=":")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Rows of the class")
        axes.set_ylabel("Gap, standard deviations")

    return svg(draw, "gridding", size=(4.8, 2.6))


def memorisation_panel(result: Memorisation) -> str:
    """Distances from class means of rows seen in training and of others."""

    def draw(axes: Axes) -> None:
        top = float(np.quantile(np.concatenate([result.seen, result.held_out]), 0.99))
        bins = np.linspace(0, max(top, 1e-9), 40)
        _outline(axes, result.seen, bins, GREY, "seen by the encoder")
        _outline(axes, result.held_out, bins, OTHERS, "not seen")
        axes.set_xlabel("Squared distance from the class mean (seen: mean 1)")
        axes.set_yticks([])
        legend_below(axes)

    return svg(draw, "memorisation", size=(4.8, 3.0))


def projection_panel(result: UniqueFeature) -> str:
    """Rows along the direction in which rare classes vary most, class means taken off."""

    def draw(axes: Axes) -> None:
        edge = float(np.quantile(np.abs(result.projections), 0.995))
        bins = np.linspace(-edge, edge, 50)
        _outline(axes, result.projections[~result.minority], bins, OTHERS, "frequent classes")
        _outline(axes, result.projections[result.minority], bins, MINORITY, "rare classes")
        axes.set_yticks([])
        axes.set_xlabel("Deviation from the class mean, sd of frequent classes")
        legend_below(axes)

    return svg(draw, "projection")


def null_panel(result: UniqueFeature) -> str:
    """The ratio of variances beside what chance gives."""

    def draw(axes: Axes) -> None:
        axes.hist(result.null, bins=12, color=GREY, label="by chance")
        axes.axvline(result.ratio, color=MINORITY, linewidth=2.5, label="rare classes")
        axes.set_yticks([])
        axes.set_xlim(left=0)
        axes.set_xlabel("Variance on the other half, majority = 1")
        legend_below(axes)

    return svg(draw, "chance")


def gap_panel(gap: MinorityGap) -> str:
    """What sources save on held-out rows of the minority, with its interval."""

    def draw(axes: Axes) -> None:
        _interval(axes, gap.gain, gap.low, gap.high, MINORITY)
        axes.set_yticks([0], ["h(s) over h(z)"])
        axes.set_xlabel("Nats saved on held-out rare rows")

    return svg(draw, "gap", size=LOW_PANEL)


def _interval(axes: Axes, mean: float, low: float, high: float, colour: str) -> None:
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    axes.errorbar(mean, 0, xerr=[[mean - low], [high - mean]], fmt="o", color=colour, markersize=7, capsize=3)
    axes.set_ylim(-1, 1)


def _outline(axes: Axes, values: NDArray[np.float64], bins: NDArray[np.float64], colour: str, label: str) -> None:
    axes.hist(values, bins=list(bins), density=True, histtype="stepfilled", color=colour, alpha=0.35)
    axes.hist(values, bins=list(bins), density=True, histtype="step", color=colour, linewidth=1.6, label=label)
