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


def write_model_page(found: Evaluation, folder: str | Path, *, next_command: str = "") -> Path:
    """Write ``report.html``, and its figures to ``plots``, to a folder; gives the path of the page.

    ``next_command`` is what to type next, here and on the other pages; none is shown if it is empty.
    """
    plots = Path(folder) / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    path, figures = _write(found, plots.parent, next_command)
    for old in plots.glob("*.svg"):
        old.unlink()
    for name, panels in figures.items():
        for number, panel in enumerate(panels, start=1):
            file = plots / (f"{name}-{number}.svg" if len(panels) > 1 else f"{name}.svg")
            write_text(file, panel + "\n", errors="xmlcharrefreplace")
    return path


def write_comparison_page(found: Comparison, folder: str | Path, *, next_command: str = "") -> Path:
    """Write ``report.html`` to a folder; gives its path."""
    return _write(found, Path(folder), next_command)[0]


def write_diagnosis_page(found: Diagnosis, folder: str | Path, *, next_command: str = "") -> Path:
    """Write ``report.html`` and ``diagnosis.json`` to a folder; gives the path of the page."""
    return _write(found, found.write(folder).parent, next_command)[0]


def _write(found: Evaluation | Comparison | Diagnosis, folder: Path, next_command: str) -> tuple[Path, Plots]:
    text, plots = page_of(found, next_command)
    write_text(folder / "report.html", text, errors="xmlcharrefreplace")
    return folder / "report.html", plots


def page_of(found: Evaluation | Comparison | Diagnosis, next_command: str = "") -> tuple[str, Plots]:
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
