"""Figures of the paper drawn from our results, as inline SVG."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from PIL import Image

from ecrt.report.drawing import GREY, INK, MINORITY, OTHERS, PALETTE, count_axis, legend_below, limits, svg
from paper.experiments.extreme import SIZES
from paper.experiments.toy_figures import MANY_PRIORS, PAPER_EFFICIENCY, PLAIN
from paper.page.figure import FigureBlock
from paper.page.frequency import frequency_figures
from paper.page.results import PaperResults
from paper.published import EXTREME

__all__ = ["paper_figures"]

Row = dict[str, Any]
TOY = "toy-figures"


def paper_figures(results: PaperResults) -> list[FigureBlock]:
    """All figures that there are results for."""
    makers = (_toy, _gridding, _efficiency, _distance, _risk, _packing, _extreme, _mnist, _dynamics)
    made = [make(results) for make in makers]
    return [*(figure for figure in made if figure is not None), *frequency_figures(results)]


def _panel(draw: Callable[[Axes], None], name: str) -> Markup:
    return Markup(svg(draw, name))


def _scatter(points: Sequence[Sequence[Sequence[float]]], title: str, symbol: str) -> Callable[[Axes], None]:
    """One cloud for each class."""

    def draw(axes: Axes) -> None:
        low, high = limits(np.concatenate([np.asarray(part) for part in points]))
        for label, part in enumerate(points):
            xy = np.asarray(part)
            axes.scatter(xy[:, 0], xy[:, 1], s=8, color=PALETTE[label % len(PALETTE)], alpha=0.7, linewidths=0,
                         rasterized=True, marker="o" if label < len(PALETTE) else "^")  # fmt: skip
            axes.annotate(str(label), np.median(xy, axis=0), fontsize=10, color=INK, ha="center", va="center")
        _frame(axes, title, symbol, low, high)

    return draw


def _frame(axes: Axes, title: str, symbol: str, low: Any, high: Any) -> None:
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_title(title)
    axes.set_xlabel(f"{symbol}₁")
    axes.set_ylabel(f"{symbol}₂")


def _toy(results: PaperResults) -> FigureBlock | None:
    rows = results.rows(TOY, part="picture")
    if not rows:
        return None
    row = rows[0]
    panels = (
        _panel(_scatter(row["true_sources"], "True sources", "s"), "toy-true"),
        _panel(_scatter(row["features"], "Features", "z"), "toy-features"),
        _panel(_scatter(row["sources"], "Recovered sources", "s"), "toy-found"),
    )
    return FigureBlock(
        "Toy: data, features and recovered sources (supplement D)", panels,
        f"Seven classes after the Hénon map; the flow never saw class 0. Mean rank correlation of recovered and true "
        f"sources: {row['mcc']:.3f}.",
    )  # fmt: skip


def _gridding(results: PaperResults) -> FigureBlock | None:
    rows = results.rows(TOY, part="picture")
    if not rows:
        return None
    row = rows[0]
    reference, few = np.asarray(row["reference"]), np.asarray(row["minority"])
    low, high = limits(np.concatenate([reference, few]))

    def drawer(kind: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            drawn = np.asarray(row["augmented"][kind])
            for xy, colour, size, label in (
                (reference, GREY, 9, "true distribution"),
                (drawn, OTHERS, 9, "synthetic"),
                (few, MINORITY, 26, "samples"),
            ):
                style: Row = {"alpha": 0.7, "linewidths": 0, "rasterized": True}
                axes.scatter(xy[:, 0], xy[:, 1], s=size, color=colour, label=label, **style)
            _frame(axes, kind.capitalize(), "s", low, high)
            legend_below(axes)

        return draw

    return FigureBlock(
        "Gridding artefact (figure “Comparison of different source augmentations”)",
        tuple(_panel(drawer(kind), f"grid-{kind}") for kind in ("permutation", "parametric", "oracle")),
        f"From {len(few)} samples permutation can only reach the crossings of a grid; a Gaussian fills the cloud. The "
        "oracle permutes many held-out samples.",
    )  # fmt: skip


def _efficiency(results: PaperResults) -> FigureBlock | None:
    lines = results.summary(TOY, part="efficiency")
    if not lines:
        return None
    majorities = sorted({line["n_majority"] for line in lines})

    def curves(axes: Axes) -> None:
        for place, n in enumerate(majorities):
            for weight, style in ((0.0, ":"), (0.5, "-")):
                mine = [
                    line for line in lines
                    if (line["n_majority"], line["kind"], line["weight"]) == (n, "parametric", weight)
                ]  # fmt: skip
                _curve(axes, mine, "n_minority", "top1", PALETTE[place], style,
                       f"{n:,} majority" if weight else None)  # fmt: skip
        count_axis(axes, np.array([line["n_minority"] for line in lines]))
        axes.set_title("Dotted: without augmentation")
        axes.set_xlabel("minority samples")
        axes.set_ylabel("accuracy")
        legend_below(axes)

    def strengths(axes: Axes) -> None:
        largest = [line for line in lines if line["n_majority"] == majorities[-1]]
        for place, n in enumerate(sorted({line["n_minority"] for line in largest if line["weight"] == 1.0})):
            for kind, style in (("permutation", "--"), ("parametric", "-")):
                mine = sorted(
                    (line for line in largest
                     if line["n_minority"] == n and (line["kind"] == kind or line["weight"] == 0.0)),
                    key=lambda line: line["weight"],
                )  # fmt: skip
                _curve(axes, mine, "weight", "top1", PALETTE[place], style, f"{n} samples" if style == "-" else None)
        axes.set_title("Dashed: permutation, full: parametric")
        axes.set_xlabel("share of synthetic samples, λ")
        axes.set_ylabel("accuracy")
        legend_below(axes)

    presets = results.summary("toy-preset", part=PAPER_EFFICIENCY)

    def preset(axes: Axes) -> None:
        for place, name in enumerate(("ECRT-1P, paper preset", MANY_PRIORS)):
            for what, style in ((name, "-"), (name + PLAIN, ":")):
                mine = [line for line in presets if line["what"] == what]
                _curve(axes, mine, "n_minority", "top1", PALETTE[place], style, name if style == "-" else None)
        count_axis(axes, np.array([line["n_minority"] for line in presets]))
        axes.set_title("The paper's preset; dotted: without")
        axes.set_xlabel("minority samples")
        axes.set_ylabel("accuracy")
        legend_below(axes)

    return FigureBlock(
        "Effective sample size, and sensitivity to λ",
        (_panel(curves, "efficiency"), _panel(strengths, "strengths"),
         *([_panel(preset, "preset-efficiency")] if presets else [])),
        "First: how many samples augmentation is worth is how much further right the dotted line reaches the height of "
        "the full one. Second: accuracy over the share of a class's mass that synthetic samples hold."
        + " Third: as the first, for the paper's preset." * bool(presets),
    )  # fmt: skip


def _curve(axes: Axes, lines: list[Row], x: str, y: str, colour: str, style: str, label: str | None) -> None:
    if lines:
        widths = [line.get(f"{y}_half_width") or 0.0 for line in lines]
        axes.errorbar(
            [line[x] for line in lines], [line[y] for line in lines], yerr=widths, color=colour, linestyle=style,
            label=label, marker="o", markersize=3.5, linewidth=1.4, elinewidth=0.7,
        )  # fmt: skip


def _distance(results: PaperResults) -> FigureBlock | None:
    lines = results.summary(TOY, part="mmd")
    if not lines:
        return None

    def drawer(bandwidth: float) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for place, kind in enumerate(dict.fromkeys(line["kind"] for line in lines)):
                mine = [line for line in lines if (line["kind"], line["bandwidth"]) == (kind, bandwidth)]
                _curve(axes, mine, "size", "mmd", PALETTE[place], "-", kind)
            count_axis(axes, np.array([line["size"] for line in lines]))
            axes.set_title(f"σ = {bandwidth:g}")
            axes.set_xlabel("samples")
            axes.set_ylabel("MMD")
            axes.legend(fontsize=9)

        return draw

    bandwidths = sorted({line["bandwidth"] for line in lines})
    return FigureBlock(
        "Distance of augmented samples from the truth (figure “Comparison of different causal augmentations”)",
        tuple(_panel(drawer(width), f"mmd{place}") for place, width in enumerate(bandwidths)),
        "Lower is better. Means over the seven classes, in the space of the true sources. The oracle is the distance "
        "of two samples of one distribution. The paper shows σ = 0.5.",
    )  # fmt: skip


def _risk(results: PaperResults) -> FigureBlock | None:
    risks, perturbed = results.summary(TOY, part="variance"), results.summary(TOY, part="perturbed")
    if not risks or not perturbed:
        return None

    def variance(axes: Axes) -> None:
        for place, label in enumerate(sorted({line["class"] for line in risks})):
            mine = [line for line in risks if line["class"] == label]
            _curve(axes, mine, "size", "variance_ratio", PALETTE[place % len(PALETTE)], "-", f"class {label}")
        axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
        count_axis(axes, np.array([line["size"] for line in risks]))
        axes.set_title("Variance, augmented over plain risk")
        axes.set_xlabel("samples of the class")
        legend_below(axes)

    def excess(axes: Axes) -> None:
        settings = dict.fromkeys((line["kind"], line["weight"]) for line in perturbed)
        for place, (kind, weight) in enumerate(settings):
            mine = [line for line in perturbed if (line["kind"], line["weight"]) == (kind, weight)]
            _curve(
                axes, mine, "share", "excess_risk", PALETTE[place], "-", f"{kind}, λ {weight:g}" if weight else "λ 0"
            )
        axes.set_title("Excess risk under a wrong f")
        axes.set_xlabel("share of the bend left in f")
        axes.set_ylabel("NLL above Bayes")
        legend_below(axes)

    return FigureBlock(
        "The two theorems (supplement A)", (_panel(variance, "variance"), _panel(excess, "excess")),
        f"Left: over {risks[0]['n_draws']:,} draws with the true f. Right: f leaves a share of the Hénon map's bend "
        "in; 20 minority samples.",
    )  # fmt: skip


def _packing(results: PaperResults) -> FigureBlock | None:
    rows = [row for row in results.rows(TOY, part="packing") if "points" in row]
    if not rows:
        return None
    rows.sort(key=lambda row: row["cell"]["likelihood_weight"])
    return FigureBlock(
        "Sources without and with the likelihood (figure S1)",
        tuple(
            _panel(_scatter(row["points"], f"weight {row['cell']['likelihood_weight']:g}", "s"), f"packing{place}")
            for place, row in enumerate(rows)
        ),
        "Without the likelihood nothing but the contrast shapes the sources.",
    )  # fmt: skip


def _extreme(results: PaperResults) -> FigureBlock | None:
    lines = results.summary("extreme-sizes", preset="ours", n_classes=1000)
    if not lines:
        return None

    def drawer(metric: str, label: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            shown = (("ecrt", "ECRT", MINORITY), ("ecrt_without", "ECRT without", PALETTE[3]), ("erm", "ERM", OTHERS),
                     ("oracle", "oracle", PALETTE[2]), ("bayes", "Bayes", GREY))  # fmt: skip
            for method, name, colour in shown:
                mine = [line for line in lines if line["method"] == method]
                _curve(axes, mine, "n_per_class", metric, colour, "-", name)
            for method, colour in (("ecrt_with", MINORITY), ("erm", OTHERS)):
                axes.plot(SIZES, [EXTREME[size][method][metric] for size in SIZES], "--", color=colour, linewidth=1)
            count_axis(axes, np.array(SIZES))
            axes.set_xlabel("samples of each class")
            axes.set_ylabel(label)
            legend_below(axes)

        return draw

    return FigureBlock(
        "Extreme classification of 1,000 classes",
        (_panel(drawer("top1", "top-1"), "extreme-top1"), _panel(drawer("nll", "NLL"), "extreme-nll")),
        "Dashed: the paper's ECRT and ERM. The oracle knows f and the variance and estimates the means.",
    )  # fmt: skip


def _mnist(results: PaperResults) -> FigureBlock | None:
    rows = [row for row in results.rows("mnist", n_rare=5) if "picture" in row]
    lines = results.summary("mnist", what="correlation")
    if not rows or not lines:
        return None
    rows.sort(key=lambda row: row["cell"]["network"] != "cnn")
    picture = rows[0]["picture"]
    real, drawn = list(picture["features"].values()), picture["synthetic_features"]

    def images(axes: Axes) -> None:
        with Image.open(io.BytesIO(base64.b64decode(picture["images"]))) as tiles:
            axes.imshow(255 - np.asarray(tiles), cmap="gray", vmin=0, vmax=255)
        axes.set_axis_off()
        axes.set_title("Images")

    def synthetic(axes: Axes) -> None:
        low, high = limits(np.concatenate([np.asarray(part) for part in real]))
        for label, points in drawn.items():
            behind, xy = np.asarray(picture["features"][label]), np.asarray(points)
            colour = PALETTE[int(label) % len(PALETTE)]
            axes.scatter(behind[:, 0], behind[:, 1], s=9, color=GREY, alpha=0.7, linewidths=0, rasterized=True)
            axes.scatter(xy[:, 0], xy[:, 1], s=9, color=colour, alpha=0.8, linewidths=0, rasterized=True)
        _frame(axes, "Synthetic features of rare digits", "z", low, high)

    def correlation(axes: Axes) -> None:
        for objective, colour in (("gcl", OTHERS), ("fdv", MINORITY)):
            mine = [line for line in lines if line["objective"] == objective]
            _curve(axes, mine, "epochs", "correlation", colour, "-", objective.upper())
        count_axis(axes, np.array([line["epochs"] for line in lines]))
        axes.set_title("Correlation within classes")
        axes.set_xlabel("epochs")
        legend_below(axes)

    own = any(row.get("gcl_critic") for row in results.rows("mnist", method="correlation"))
    critic = "; GCL has the critic of Eq. 1." if own else (
        "; GCL has the cosine critic of FDV here, since it was run before the recipe got that of Eq. 1."
    )  # fmt: skip
    return FigureBlock(
        "MNIST: images, features, sources, augmentation in feature space, correlation during training",
        (
            _panel(images, "mnist-x"),
            _panel(_scatter(real, "Features", "z"), "mnist-z"),
            _panel(_scatter(list(picture["sources"].values()), "Sources", "s"), "mnist-s"),
            _panel(synthetic, "mnist-synthetic"),
            _panel(correlation, "mnist-correlation"),
        ),
        f"Test digits ({rows[0]['cell']['method']}, {rows[0]['cell']['network']}); grey in the fourth panel: real "
        "ones. In the last, every point is a run of its own with that many epochs" + critic,
    )  # fmt: skip


def _dynamics(results: PaperResults) -> FigureBlock | None:
    found = results.summary("cifar100-sources", what="top-1 by epoch", encoder="majority")
    names = {"z": "on features", "s": "on sources", "s, augmented": "on sources, augmented"}

    def drawer(line: Row) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for place, (key, name) in enumerate(names.items()):
                curve = line["curves"][key]
                axes.plot(range(1, len(curve) + 1), curve, color=PALETTE[place], label=name, linewidth=1.4)
            axes.set_title(line["protocol"])
            axes.set_xlabel("epochs")
            axes.set_ylabel("top-1")
            legend_below(axes)

        return draw

    if not found:
        return None
    return FigureBlock(
        "CIFAR-100: learning on features and on sources (figure “Comparison of learning dynamics”)",
        tuple(_panel(drawer(line), f"dynamics{place}") for place, line in enumerate(found)),
        f"Test accuracy after every epoch of a network with 256 hidden units, mean of {found[0]['seeds']} seeds, for "
        "each protocol; the encoder has seen majority classes alone. Sources are those of linear de-mixing, without a "
        "flow.",
    )
