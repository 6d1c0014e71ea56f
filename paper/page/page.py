"""The page that sets the paper's tables, figures and claims beside ours: results to plain data, then a template."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import ChoiceLoader, PackageLoader
from markupsafe import Markup

from ecrt.disk import check_writable, make_folder, write_text
from ecrt.errors import InputError
from ecrt.report.rendering import environment
from paper.page.claims import CLAIMS, SECTIONS
from paper.page.figure import FigureBlock
from paper.page.judging import Claim, Judgement, Verdict, judge
from paper.page.panels import paper_figures
from paper.page.results import PaperResults
from paper.page.tables import BesideTable, beside_tables
from paper.recipes import RECIPES

__all__ = ["JudgedClaim", "PaperPage", "judge_claims", "render_paper", "summarise_paper", "write_paper_page"]

MARKS: dict[Verdict, str] = {
    "holds": "yes", "holds in part": "partly", "undecided": "cannot-tell", "does not hold": "no",
    "not run": "cannot-tell",
}  # fmt: skip
OWN = "Our own bar"
FIGURES = "paper-figures"
TEMPLATES = {".html": "paper.html", ".md": "paper.md"}


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with what became of it."""

    number: int
    claim: Claim
    found: Judgement

    @property
    def section(self) -> str:
        """Of the paper."""
        return self.claim.section

    @property
    def text(self) -> str:
        """What the paper says."""
        return self.claim.text

    @property
    def verdict(self) -> Verdict:
        """Whether it holds here."""
        return self.found.verdict

    @property
    def mark(self) -> str:
        """The class of style of the verdict."""
        return MARKS[self.verdict]


@dataclass(frozen=True)
class PaperPage:
    """Everything on the page."""

    title: str
    counts: str
    claims: tuple[JudgedClaim, ...]
    tables: tuple[BesideTable, ...]
    figures: tuple[FigureBlock, ...]
    trials: tuple[str, ...]
    """Experiments that only a trial run is there of."""
    missing: tuple[str, ...]
    """Experiments that there are no results of."""

    @property
    def named_figures(self) -> list[tuple[str, FigureBlock]]:
        """Figures with the files that Markdown shows."""
        return [(f"{FIGURES}/{place}.svg", figure) for place, figure in enumerate(self.figures, 1)]

    @property
    def sections(self) -> list[tuple[str, list[JudgedClaim]]]:
        """Claims by section, in the paper's order."""
        return [(name, mine) for name in SECTIONS if (mine := [c for c in self.claims if c.section == name])]


def judge_claims(results: PaperResults) -> list[JudgedClaim]:
    """What results say of every claim, in the paper's order."""
    return [JudgedClaim(number, claim, judge(claim, results)) for number, claim in enumerate(CLAIMS, 1)]


def summarise_paper(results: PaperResults) -> PaperPage:
    """Judge every claim, and make tables and figures."""
    claims = judge_claims(results)
    theirs = [claim for claim in claims if not claim.text.startswith(OWN)]
    numbers = {verdict: sum(claim.verdict == verdict for claim in theirs) for verdict in MARKS}
    counts = "; ".join(f"{verdict}: {number}" for verdict, number in numbers.items() if number)
    own = [claim.verdict == "holds" for claim in claims if claim.text.startswith(OWN)]
    counts = f"{len(theirs)} claims of the paper. {counts.capitalize()}. Of {len(own)} bars of our own {sum(own)} hold."
    return PaperPage(
        title="The paper and what was found here",
        counts=counts,
        claims=tuple(claims),
        tables=tuple(beside_tables(results)),
        figures=tuple(paper_figures(results)),
        trials=tuple(results.trials),
        missing=tuple(name for name in RECIPES if name not in results.files),
    )


def render_paper(page: PaperPage, template: str = "paper.html") -> str:
    """Fill a template of ours, which may use those of the library."""
    templates = environment()
    templates.loader = ChoiceLoader([PackageLoader("paper.page"), PackageLoader("ecrt.report")])
    return templates.get_template(template).render(page=page)


def write_paper_page(results: Path, output: Path) -> Path:
    """Write the page on all results of a folder, as HTML or Markdown by the ending of the file.

    Markdown has its figures in a folder of their own beside it.
    """
    if output.suffix not in TEMPLATES:
        raise InputError(f"The page is written as .html or .md, not {output.suffix or 'without an ending'}.")
    check_writable(output)
    page = summarise_paper(PaperResults(results))
    text = render_paper(page, TEMPLATES[output.suffix])
    if output.suffix == ".md":
        make_folder(output.parent / FIGURES)
        for name, figure in page.named_figures:
            write_text(output.parent / name, _side_by_side(figure.panels))
    write_text(output, text)
    return output


def _side_by_side(panels: tuple[Markup, ...]) -> str:
    """One picture of all panels on white, three in a row."""
    width, height = (float(value) for value in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', panels[0])[0])
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    placed = [
        panel.replace(
            "<svg ",
            f'<svg x="{place % columns * width}" y="{place // columns * height}" width="{width}" height="{height}" ',
            1,
        )
        for place, panel in enumerate(map(str, panels))
    ]
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * width:g} {rows * height:g}">'
    return "\n".join([start, '<rect width="100%" height="100%" fill="white"/>', *placed, "</svg>\n"])
