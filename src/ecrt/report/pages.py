"""Pages on disk: results are summarised, drawn, and filled into the template of their kind. Nothing here trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ecrt.comparison import Comparison
from ecrt.disk import write_text
from ecrt.report.classes import class_plots, summarise_classes
from ecrt.report.comparison import comparison_plots, summarise_comparison
from ecrt.report.diagnosis import diagnosis_plots, summarise_diagnosis
from ecrt.report.labels import label_plots, summarise_labels
from ecrt.report.regression import regression_plots, summarise_regression
from ecrt.report.rendering import Plots, fill
from ecrt.runs.diagnosis import Diagnosis
from ecrt.runs.evaluation import Evaluation

Found = Evaluation | Comparison | Diagnosis


def write_page(found: Found, folder: str | Path, *, next_command: str = "") -> Path:
    """Write ``report.html`` to a folder, and figures of a model to ``plots`` beside it; gives the path of the page.

    ``next_command`` is what to type next; none is shown if it is empty.
    """
    text, figures = page_of(found, next_command)
    page, plots = Path(folder) / "report.html", Path(folder) / "plots"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text, errors="xmlcharrefreplace")
    if isinstance(found, Evaluation):
        plots.mkdir(exist_ok=True)
        for old in plots.glob("*.svg"):
            old.unlink()
        for name, panels in figures.items():
            for number, panel in enumerate(panels, start=1):
                file = plots / (f"{name}-{number}.svg" if len(panels) > 1 else f"{name}.svg")
                write_text(file, panel + "\n", errors="xmlcharrefreplace")
    return page


def page_of(found: Found, next_command: str = "") -> tuple[str, Plots]:
    """The page of results of any kind, as text, and its figures."""
    summary: dict[str, Any]
    match found:
        case Evaluation(task="classification"):
            template, summary, plots = "classes.html", summarise_classes(found), class_plots(found)
        case Evaluation(task="regression"):
            template, summary, plots = "regression.html", summarise_regression(found), regression_plots(found)
        case Evaluation():
            template, summary, plots = "labels.html", summarise_labels(found), label_plots(found)
        case Comparison():
            template, summary, plots = "comparison.html", summarise_comparison(found), comparison_plots(found)
        case Diagnosis():
            template, summary, plots = "diagnosis.html", summarise_diagnosis(found), diagnosis_plots(found)
    return fill(template, summary | {"next_command": next_command}, plots), plots
