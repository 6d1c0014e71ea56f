"""The page of a regression: errors where targets are frequent and rare, as tables, sentences and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecrt.metrics.classification import FREQUENCY_GROUPS, frequency_group
from ecrt.report.drawing import GREY, INK, MINORITY, OTHERS, PALETTE, count_axis, legend_below, svg, svg_figure
from ecrt.report.model_tables import Entry, SheetTable, column_table, count_entry, number_entry
from ecrt.report.model_words import versions_text
from ecrt.report.rendering import FigureBlock, short
from ecrt.runs.records import Measured

__all__ = ["NumbersPage", "summarise_numbers"]

Array = NDArray[np.float64]

MOST_OUTPUTS, MOST_POINTS, WORST = 4, 4000, 10
GROUP_COLOURS = {"many": OTHERS, "medium": PALETTE[3], "few": MINORITY}
GROUP_TEXTS = {
    "all": "all test rows",
    "many": "regions of the target with more than 100 training rows",
    "medium": "20 to 100",
    "few": "fewer than 20",
}


@dataclass(frozen=True)
class NumbersPage:
    """Everything on the page of a regression."""

    title: str
    facts: tuple[tuple[str, str], ...]
    sentences: tuple[str, ...]
    subject: str
    columns: SheetTable | None
    errors: SheetTable
    agreement: FigureBlock
    density: FigureBlock
    worst: SheetTable
    tried: SheetTable

    @property
    def figures(self) -> dict[str, FigureBlock]:
        """Figures by the name of their file."""
        return {"predicted": self.agreement, "density": self.density}


def summarise_numbers(found: Measured) -> NumbersPage:
    """Turn the figures of a regression into what its page shows."""
    return NumbersPage(
        title=short(found.title, 120) if found.title else "A fitted ECRT regression",
        facts=(*found.facts.items(), ("Versions", versions_text(found.versions))),
        sentences=tuple(_sentences(found)),
        subject=found.subject,
        columns=column_table(found.columns),
        errors=_error_table(found),
        agreement=_agreement_block(found),
        density=_density_block(found),
        worst=_worst_table(found),
        tried=_tried_table(found),
    )


def _sentences(found: Measured) -> list[str]:
    everyone, few, guess = found.metrics["all"], found.metrics["few"], found.metrics["guessing"]
    told = [
        f"Tested on {everyone['rows']:,.0f} rows. The mean absolute error is {_units(everyone['mae'])}; always saying "
        f"the mean of the training targets gives {_units(guess['mae'])}."
    ]
    if few["rows"] and np.isfinite(few["mae"]):
        error = (found.arrays["predicted"] - found.arrays["y"])[found.arrays["group"] == "few"].mean()
        away = "below" if error < 0 else "above"
        told.append(
            f"Where training targets are few ({few['rows']:,.0f} test rows) it is {_units(few['mae'])}; predictions "
            f"there lie {_units(abs(float(error)))} {away} the truth on average."
        )
    else:
        told.append("No test row has a target where training targets are few.")
    return told


def _error_table(found: Measured) -> SheetTable:
    rows = []
    groups = found.arrays["group"]
    error = found.arrays["predicted"] - found.arrays["y"]
    for name in ("all", *FREQUENCY_GROUPS):
        figures = found.metrics[name]
        mine = error if name == "all" else error[groups == name]
        rows.append((
            Entry(name.capitalize(), note=GROUP_TEXTS[name]), count_entry(figures["rows"]),
            *(_entry(figures[key]) for key in ("mae", "rmse", "gm")),
            _entry(float(mine.mean()) if len(mine) else float("nan")),
        ))  # fmt: skip
    guess = found.metrics["guessing"]
    rows.append((
        Entry("Guessing", note="the mean of the training targets, for all test rows"), count_entry(guess["rows"]),
        *(_entry(guess[key]) for key in ("mae", "rmse", "gm")), Entry("–", float("nan")),
    ))  # fmt: skip
    columns = ("Training targets", "Test rows", "MAE ↓", "RMSE ↓", "GM ↓", "Mean error")
    return SheetTable("errors", columns, tuple(rows))


def _agreement_block(found: Measured) -> FigureBlock:
    truth, predicted, group = (found.arrays[name] for name in ("y", "predicted", "group"))
    some = np.sort(np.random.default_rng(0).permutation(len(truth))[:MOST_POINTS])
    shown = min(truth.shape[1], MOST_OUTPUTS)
    panels = [
        svg(_agreement_drawer(truth[some, at], predicted[some, at], group[some], found.names[at]), f"predicted{at}")
        for at in range(shown)
    ]
    more = "" if shown == truth.shape[1] else f" The first {shown} of {truth.shape[1]} targets are shown."
    return FigureBlock(
        "Predicted against true targets",
        _panels(panels),
        "Each dot is a test row; on the dotted line predictions are exact. Red dots have targets that were rare in "
        f"training: where they bend away from the line, towards the others, rare targets are not reached.{more}",
    )


def _agreement_drawer(truth: Array, predicted: Array, group: NDArray[np.str_], name: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        low, high = min(truth.min(), predicted.min()), max(truth.max(), predicted.max())
        axes.plot([low, high], [low, high], color=INK, linestyle=":", linewidth=1)
        for part, colour in GROUP_COLOURS.items():
            mine = group == part
            if mine.any():
                axes.scatter(
                    truth[mine], predicted[mine], s=9, color=colour, alpha=0.6, linewidths=0, rasterized=True,
                    label=part,
                )  # fmt: skip
        axes.set_title(short(name, 24), parse_math=False)
        axes.set_xlabel("true")
        axes.set_ylabel("predicted")
        legend_below(axes)

    return draw


def _density_block(found: Measured) -> FigureBlock:
    """Error of each region against its training rows, and along the target above a histogram of training."""
    counts, region = found.arrays["counts"], found.arrays["region"]
    error = np.abs(found.arrays["predicted"] - found.arrays["y"]).mean(axis=1)
    rows = np.bincount(region, minlength=len(counts))
    mae = np.bincount(region, weights=error, minlength=len(counts)) / np.maximum(rows, 1)
    edges, tested = found.arrays["edges"], rows > 0
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    colours = np.array([GROUP_COLOURS[name] for name in frequency_group(counts).tolist()])

    def against_rows(axes: Axes) -> None:
        axes.scatter(np.maximum(counts[tested], 1), mae[tested], s=26, color=colours[tested], linewidths=0, zorder=3)
        count_axis(axes, np.maximum(counts[tested], 1))
        axes.set_ylim(bottom=0)
        axes.set_title("By training rows")
        axes.set_xlabel("training rows in the region (log scale)")
        axes.set_ylabel("mean absolute error")

    def along_target(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
        upper.bar(middle[tested], mae[tested], width=0.9 * width, color=colours[tested])
        upper.set_title("Along the target")
        upper.set_ylabel("mean absolute error")
        lower.bar(middle, np.maximum(counts, 0), width=0.9 * width, color=GREY)
        lower.set_yscale("symlog", linthresh=1)
        lower.set_ylabel("training rows")
        lower.set_xlabel(short(found.names[0], 40) if len(found.names) == 1 else "first direction of the targets")

    return FigureBlock(
        "Error against the density of the target",
        _panels([svg(against_rows, "by-density"), svg_figure(along_target, "along-target", size=(4.2, 4.2))]),
        "The range of the training targets is cut into equal regions. Each dot, and each bar above, is a region with "
        "test rows: blue ones have more than 100 training rows, yellow ones 20 to 100, red ones fewer. The lower bars "
        "are training rows, on a logarithmic scale.",
    )


def _worst_table(found: Measured) -> SheetTable:
    truth, predicted = found.arrays["y"], found.arrays["predicted"]
    size = np.abs(predicted - truth)
    row, output = np.unravel_index(np.argsort(-size, axis=None, kind="stable")[:WORST], size.shape)
    counts = found.arrays["counts"][found.arrays["region"]]
    several = truth.shape[1] > 1
    rows = [
        (
            Entry(f"{at + 1:,}", float(at + 1)), *((Entry(short(found.names[to], 40)),) if several else ()),
            _entry(truth[at, to]), _entry(predicted[at, to]), _entry(predicted[at, to] - truth[at, to]),
            count_entry(counts[at]),
        )
        for at, to in zip(row.tolist(), output.tolist(), strict=True)
    ]  # fmt: skip
    columns = ("Test row", *(("Target",) if several else ()), "True", "Predicted", "Error", "Training rows nearby")
    return SheetTable("worst", columns, tuple(rows), sortable=True)


def _tried_table(found: Measured) -> SheetTable:
    rows = [
        (
            Entry(name, note="chosen" if name == found.chosen else ""),
            *(number_entry(losses.get(key, float("nan")), 4) for key in ("all", "rare")),
        )
        for name, losses in found.candidates.items()
    ]
    return SheetTable("tried", ("Tried", "Held-out loss ↓", "Rare targets ↓"), tuple(rows), sortable=True)


def _entry(value: Any) -> Entry:
    return Entry(_units(float(value)), float(value)) if np.isfinite(value) else Entry("–", float("nan"))


def _units(value: float) -> str:
    """A number in the units of the target: four digits that count.

    >>> _units(12345.6), _units(0.0123456), _units(0.0)
    ('12,346', '0.01235', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _panels(panels: list[str]) -> tuple[Markup, ...]:
    return tuple(Markup(panel) for panel in panels)
