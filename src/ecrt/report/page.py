"""One self-contained HTML page: summarise results to plain data, then render a template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ecrt.disk import write_bytes, write_text
from ecrt.experiments.demo_results import DataResult, DemoResult
from ecrt.experiments.summary import METRICS
from ecrt.report.figures import digit_panels, overview_png, score_panel, source_panels, synthetic_panels
from ecrt.report.rendering import FigureBlock, environment
from ecrt.report.tables import ResultTable, markdown_table, summarise

__all__ = ["DemoPage", "FigureBlock", "Section", "render_demo", "summarise_demo", "write_report"]

HEADS = {"linear": "a linear", "mlp": "an MLP", "gaussian": "a Gaussian"}
QUICK_WARNING = "A short run with other sizes than the demonstration proper: its figures mean little."


@dataclass(frozen=True)
class Section:
    """One data set: its table, its verdict and how the methods came out on each seed."""

    table: ResultTable
    description: str
    verdicts: tuple[str, ...]
    choices: str
    figure: FigureBlock


@dataclass(frozen=True)
class DemoPage:
    """Everything on the page."""

    title: str
    warning: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    figures: tuple[FigureBlock, ...]


def summarise_demo(result: DemoResult) -> DemoPage:
    """Turn results into what the page shows: text, tables and figures."""
    seeds = ", ".join(f"{data.name} {data.n_seeds}" for data in result.data)
    facts = (
        ("Seeds", f"{seeds}; the first is {result.settings['seed']}"),
        ("Time", f"{result.seconds:.0f} s for {sum(len(data.fits) for data in result.data)} fits"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in result.versions.items())),
    )
    return DemoPage(
        title="ecrt demonstration",
        warning="" if result.settings["full"] else QUICK_WARNING,
        facts=facts,
        sections=tuple(_section(data) for data in result.data),
        figures=_figures(result),
    )


def render_demo(page: DemoPage) -> str:
    """Fill the template."""
    return environment().get_template("demo.html").render(page=page)


def write_report(result: DemoResult, folder: Path) -> Path:
    """Write ``report.html``, ``sources.png`` and ``tables.md`` into a folder; gives the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [markdown_table(summarise(data)) + "\n" + " ".join(data.verdicts()) + "\n" for data in result.data]
    write_text(folder / "tables.md", "\n".join(tables))
    write_bytes(folder / "sources.png", overview_png(result.toy))
    path = folder / "report.html"
    write_text(path, render_demo(summarise_demo(result)))
    return path


def _section(data: DataResult) -> Section:
    accuracy, nll = METRICS[:2]
    figure = FigureBlock(
        f"{data.title}, seed by seed",
        (Markup(score_panel(data, accuracy)), Markup(score_panel(data, nll))),
        "Each dot is one seed and each upright bar a mean. Some seeds are harder than others for every method alike, "
        "which is why the sentences above pair differences by seed."
        + (" The dotted line is what a classifier that knows the true densities reaches." if data.limit else ""),
    )
    return Section(summarise(data), data.description, tuple(data.verdicts()), _choices(data), figure)


def _choices(data: DataResult) -> str:
    """Say what the estimator chose on held-out rows."""
    chosen: dict[str, int] = {}
    fits = [fit for fit in data.fits if fit.method == data.methods[-1]]
    for fit in fits:
        name = f"{fit.demixing} de-mixing with {HEADS.get(fit.head, fit.head)} head"
        chosen[name] = chosen.get(name, 0) + 1
    listed = "; ".join(f"{name} on {count} of {len(fits)} seeds" for name, count in chosen.items())
    return f"On held-out training rows {data.methods[-1]} chose {listed}."


def _figures(result: DemoResult) -> tuple[FigureBlock, ...]:
    toy = result.toy
    rare = ", ".join(str(label) for label in toy.minority)
    flow = next(fit.demixing for data in result.data if data.name == "toy" for fit in data.fits if fit.method == "ECRT")
    synthetic = [Markup(panel) for panel in synthetic_panels(toy)]
    return (
        FigureBlock(
            "Toy: features and sources",
            tuple(Markup(panel) for panel in source_panels(toy)),
            f"Test samples of the first seed, coloured and numbered by class. The Hénon map bends every class; "
            f"de-mixing ({flow}), which never saw class {rare}, should unbend each of them into an upright cloud. "
            f"Up to order, sign and stretching of each axis the middle should match the right: the mean absolute rank "
            f"correlation with the true sources is {result.source_match:.2f} (1 is perfect).",
        ),
        FigureBlock(
            f"Toy: synthetic samples of the minority class {rare}",
            tuple(synthetic),
            f"From {len(toy.train_s)} training samples (crosses) synthetic ones are drawn coordinate by coordinate, "
            f"and sent back to features. The blue dots should cover the grey ones, test samples of the class that "
            f"nothing was fitted on; where they stray, de-mixing left the coordinates dependent.",
        ),
        FigureBlock(
            "Digits: synthetic samples of the minority classes",
            tuple(Markup(panel) for panel in digit_panels(result.digits)),
            "Some training samples of each rare digit, and parametric samples drawn in source space and sent back to "
            "pixels. They are noisier than real digits; what matters is that each row keeps the shape of its digit.",
        ),
    )
