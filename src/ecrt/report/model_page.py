"""The page of a fitted model: summarise what is on disk to plain data, then render a template. Never trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ecrt.disk import write_text
from ecrt.metrics import PRIORS
from ecrt.report.model_blocks import (
    confusion_block,
    dependence_block,
    frequency_block,
    reliability_block,
    source_block,
    training_blocks,
)
from ecrt.report.model_findings import Finding, findings
from ecrt.report.model_labels import summarise_labels
from ecrt.report.model_numbers import summarise_numbers
from ecrt.report.model_tables import (
    SheetTable,
    class_table,
    column_table,
    group_table,
    independence_table,
    metric_table,
    pair_table,
)
from ecrt.report.model_words import PRIOR_TEXTS, data_sentences, model_facts, prior_sentences
from ecrt.report.rendering import FigureBlock, fill, short
from ecrt.runs.records import Evaluation, Measured, task_of

__all__ = ["ModelPage", "PriorView", "render_model", "summarise_model", "write_model_page"]

LONG_TABLE = 30
"""From more rows than this on a table is folded up and can be searched."""

WEAKEST = 10
UNTRAINED = "De-mixing ({}) is found in closed form, and nothing else was trained epoch by epoch: there are no curves."


@dataclass(frozen=True)
class PriorView:
    """What the page shows under one prior."""

    prior: str
    name: str
    meaning: str
    sentences: tuple[str, ...]
    weakest: SheetTable | None
    classes: SheetTable
    frequency: FigureBlock
    confusion: FigureBlock | None
    pairs: SheetTable | None
    reliability: FigureBlock


@dataclass(frozen=True)
class ModelPage:
    """Everything on the page."""

    title: str
    facts: tuple[tuple[str, str], ...]
    sentences: tuple[str, ...]
    subject: str
    columns: SheetTable | None
    chosen_prior: str
    metrics: SheetTable
    groups: SheetTable
    views: tuple[PriorView, ...]
    sources: FigureBlock
    training: tuple[FigureBlock, ...]
    untrained: str
    dependence: FigureBlock | None
    findings: tuple[Finding, ...]
    independence: SheetTable


def write_model_page(folder: str | Path) -> Path:
    """Write ``report.html``, and its figures to ``plots``, beside the files of an evaluation; gives its path."""
    folder = Path(folder)
    path, plots = folder / "report.html", folder / "plots"
    text, figures = _rendered(folder)
    write_text(path, text, errors="xmlcharrefreplace")
    plots.mkdir(exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    for name, figure in figures.items():
        for number, panel in enumerate(figure.panels, start=1):
            file = plots / (f"{name}-{number}.svg" if len(figure.panels) > 1 else f"{name}.svg")
            write_text(file, panel + "\n", errors="xmlcharrefreplace")
    return path


def _rendered(folder: Path) -> tuple[str, dict[str, FigureBlock]]:
    """The page that the task in the folder has, and its figures."""
    task = task_of(folder)
    if task == "regression":
        numbers = summarise_numbers(Measured.read(folder))
        return fill("regression.html", numbers), numbers.figures
    if task == "multilabel":
        labels = summarise_labels(Measured.read(folder))
        return fill("labels.html", labels), labels.figures
    page = summarise_model(Evaluation.read(folder))
    return render_model(page), _figures(page)


def _figures(page: ModelPage) -> dict[str, FigureBlock]:
    """Figures of the page by the name of their file."""
    figures: dict[str, FigureBlock | None] = {"sources": page.sources, "dependence": page.dependence}
    figures |= {f"training-{number}": figure for number, figure in enumerate(page.training, start=1)}
    for view in page.views:
        figures |= {
            f"frequency-{view.prior}": view.frequency,
            f"confusion-{view.prior}": view.confusion,
            f"reliability-{view.prior}": view.reliability,
        }
    return {name: figure for name, figure in figures.items() if figure is not None}


def render_model(page: ModelPage) -> str:
    """The page of a classifier."""
    return fill("model.html", page)


def summarise_model(evaluation: Evaluation) -> ModelPage:
    """Turn an evaluation into what the page shows: text, tables and figures."""
    model = evaluation.model
    return ModelPage(
        title=short(evaluation.title, 120) if evaluation.title else "A fitted ECRT model",
        facts=model_facts(model),
        sentences=tuple(data_sentences(evaluation)),
        subject=evaluation.subject,
        columns=column_table(evaluation.columns),
        chosen_prior="training" if model.class_prior == "training" else "balanced",
        metrics=metric_table(evaluation),
        groups=group_table(evaluation),
        views=tuple(_view(evaluation, prior) for prior in PRIORS),
        sources=source_block(evaluation),
        training=training_blocks(evaluation),
        untrained="" if evaluation.curves else UNTRAINED.format(model.demixing),
        dependence=dependence_block(evaluation),
        findings=findings(evaluation),
        independence=independence_table(evaluation),
    )


def _view(evaluation: Evaluation, prior: str) -> PriorView:
    table = class_table(evaluation, prior)
    many = len(evaluation.classes.labels) > LONG_TABLE
    weakest = SheetTable(f"weakest-{prior}", table.columns, table.rows[:WEAKEST], sortable=True) if many else None
    return PriorView(
        prior=prior,
        name=PRIOR_TEXTS[prior][0],
        meaning=PRIOR_TEXTS[prior][1],
        sentences=tuple(prior_sentences(evaluation, prior)),
        weakest=weakest,
        classes=table,
        frequency=frequency_block(evaluation, prior),
        confusion=confusion_block(evaluation, prior),
        pairs=pair_table(evaluation, prior) if len(evaluation.classes.labels) > 2 else None,
        reliability=reliability_block(evaluation, prior),
    )
