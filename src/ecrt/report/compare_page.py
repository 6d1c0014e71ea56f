"""The page of a comparison: what is on disk as plain data, then a template. Never trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ecrt.comparison import MEASURES, METHODS, Comparison
from ecrt.disk import write_text
from ecrt.metrics import PRIORS, PriorName
from ecrt.report.compare_figures import class_gain_panel, gain_panel, score_panel
from ecrt.report.compare_tables import class_gain_table, full_table, pair_table, tuning_table
from ecrt.report.model_tables import Entry, SheetTable, column_table
from ecrt.report.model_words import PRIOR_TEXTS
from ecrt.report.rendering import FigureBlock, fill, short
from ecrt.report.tables import ResultTable

__all__ = ["CompareView", "ComparisonPage", "render_comparison", "summarise_comparison", "write_comparison_page"]

LONG_TABLE = 30
SPLITS = {
    "stratified": "rows drawn at random within each class",
    "grouped": "rows of one group always on one side, classes as even as groups allow",
    "timed": "training rows always before test rows; windows of equal size in the later half of the table",
}


@dataclass(frozen=True)
class CompareView:
    """What the page shows under one prior."""

    prior: PriorName
    name: str
    meaning: str
    verdict: tuple[str, ...]
    table: ResultTable
    scores: FigureBlock
    against: SheetTable | None
    pairs: SheetTable
    class_figure: FigureBlock | None
    classes: SheetTable | None


@dataclass(frozen=True)
class ComparisonPage:
    """Everything on the page."""

    title: str
    metric: str
    reference: str
    chosen_prior: PriorName
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    views: tuple[CompareView, ...]
    tuning: SheetTable
    tuning_note: str
    parameters: SheetTable
    columns: SheetTable | None = None
    long_table: int = LONG_TABLE


def write_comparison_page(folder: str | Path) -> Path:
    """Write ``report.html`` beside the results of a comparison; gives its path."""
    folder = Path(folder)
    path = folder / "report.html"
    page = render_comparison(summarise_comparison(Comparison.read(folder)))
    write_text(path, page, errors="xmlcharrefreplace")
    return path


def render_comparison(page: ComparisonPage) -> str:
    """The page as text."""
    return fill("compare.html", page)


def summarise_comparison(found: Comparison) -> ComparisonPage:
    """Turn a comparison into what the page shows: text, tables and figures."""
    title = found.settings["title"]
    return ComparisonPage(
        title=f"Comparison on {short(title, 100)}" if title else "Comparison of methods",
        metric=MEASURES[found.metric].label,
        reference=found.label(found.reference),
        chosen_prior=found.prior,
        facts=_facts(found),
        warnings=tuple(found.warnings),
        views=tuple(_view(found, prior) for prior in PRIORS),
        tuning=tuning_table(found),
        tuning_note=_tuning_note(found),
        parameters=_parameters(found),
        columns=column_table(tuple(map(tuple, found.data.get("reading", ())))),
    )


def _view(found: Comparison, prior: PriorName) -> CompareView:
    against = sorted(found.against_reference(prior), key=lambda pair: -pair.gain.mean)
    panels = [score_panel(found, prior)] + ([gain_panel(found, prior)] if against else [])
    several = found.settings["seeds"] > 1
    classes = class_gain_table(found, prior)
    return CompareView(
        prior=prior,
        name=PRIOR_TEXTS[prior][0],
        meaning=PRIOR_TEXTS[prior][1],
        verdict=tuple(found.verdict(prior)),
        table=full_table(found, prior),
        scores=FigureBlock(
            f"{MEASURES[found.metric].label} of every method",
            tuple(Markup(panel) for panel in panels),
            "Left: each dot is one split, the bar is the mean" + (" with its interval" if several else "") + "; the "
            "reference is red. Right: how much better than the reference on the same splits, which takes out that some "
            "splits are harder for all. A filled dot is beyond noise.",
        ),
        against=pair_table(found, against, f"against-{prior}") if against else None,
        pairs=pair_table(found, found.all_pairs(prior), f"pairs-{prior}"),
        class_figure=None
        if classes is None
        else FigureBlock(
            "Recall gained over the reference, class by class",
            (Markup(class_gain_panel(found, prior)),),
            f"Each mark is a class and a method, above the line where more of its rows are found than by "
            f"{found.label(found.reference)}. Rare classes stand on the left.",
            wide=True,
        ),
        classes=classes,
    )


def _facts(found: Comparison) -> tuple[tuple[str, str], ...]:
    settings, data = found.settings, found.data
    counts = data["counts"]
    tuned = f"{settings['trials']} trials" if settings["trials"] is not None else f"{settings['budget']:g} s"
    seconds = sum(sum(one.values()) for runs in found.times.values() for one in runs)
    return (
        ("Table", f"{data['rows']:,} rows, {data['columns']:,} columns, {len(counts):,} classes of {min(counts):,} to "
                  f"{max(counts):,} rows"),
        ("Splits", f"{settings['seeds']}, {settings['splits']}: {SPLITS[settings['splits']]}"),
        ("Tuning", f"{tuned} for each method and split, for the best {MEASURES[found.metric].label.lower()} under the "
                   f"{found.prior} prior on an inner split of the training rows"),
        ("Work", f"{seconds / 60:.1f} minutes of one core"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in settings["versions"].items())),
    )  # fmt: skip


def _tuning_note(found: Comparison) -> str:
    if found.settings["budget"] is None:
        return "Every method has the same number of trials, whatever they cost."
    return (
        "Every method has the same seconds on each split. The trial that runs when they end is cut and does not count; "
        "if none was finished, a first, cheap setting is taken untried. The last fit, on all training rows, is not "
        "counted."
    )


def _parameters(found: Comparison) -> SheetTable:
    rows = []
    for name, result in found.methods.items():
        for seed, chosen in enumerate(result.parameters):
            reached = result.validation[seed]
            text = ", ".join(f"{key} {_shown(value)}" for key, value in chosen.items())
            rows.append(
                (
                    Entry(found.label(name), full=METHODS[name].reference if name in METHODS else ""),
                    Entry(str(seed), float(seed)),
                    Entry("–", float("nan")) if reached is None else Entry(f"{reached:.3f}", reached),
                    Entry(text),
                )
            )
    columns = ("Method", "Seed", "Best of all trials on validation rows", "Chosen setting")
    return SheetTable("parameters", columns, tuple(rows), sortable=True, summary="What tuning chose on every split")


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "chosen within" if value is None else str(value)
