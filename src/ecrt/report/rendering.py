"""How a page is made: a summary and its figures fill a template. The templates hold all words."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

Plots = Mapping[str, Sequence[str]]
"""SVG panels of each figure, by the name of its file."""


def environment() -> Environment:
    """Templates of this package; whatever is filled in is escaped, and nothing may be missing."""
    made = Environment(
        loader=PackageLoader("ecrt.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    filters = (commas, counted, listed, number, percent, quoted, head_name, short, short_label, units)
    made.filters |= {function.__name__: function for function in filters}
    return made


def fill(template: str, page: Mapping[str, Any], plots: Plots) -> str:
    """A page with our own script, the only one that may run in it; nothing may be loaded."""
    templates = environment()
    script = templates.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    drawn = {name: [Markup(panel) for panel in panels] for name, panels in plots.items()}
    return templates.get_template(template).render(page=page, plots=drawn, script=Markup(script), digest=digest)


def paragraphs(template: str, name: str, *arguments: Any) -> list[str]:
    """What a macro of a template says, as plain text: a line for each paragraph."""
    said = str(getattr(environment().get_template(template).module, name)(*arguments))
    return [text for part in said.split("</p>") if (text := Markup(part).striptags())]


def short(text: str, length: int = 60) -> str:
    """Text on one line, without what cannot be printed, cut with an ellipsis.

    >>> short("a rather long label", 9)
    'a rather…'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "(empty)"
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def short_label(label: str, length: int) -> str:
    """The same with the middle cut out: many labels differ only at the end.

    >>> short_label("species of bird 17", 12)
    'species…d 17'
    """
    line = short(label, len(label) + 8)
    tail = (length - 1) // 3 + 1
    return line if len(line) <= length else line[: length - 1 - tail].rstrip() + "…" + line[-tail:].lstrip()


def commas(value: float) -> str:
    """A whole number for readers.

    >>> commas(12345)
    '12,345'
    """
    return f"{value:,.0f}"


def counted(value: float, one: str, many: str) -> str:
    """A number with its noun.

    >>> counted(1, "row", "rows"), counted(2000, "row", "rows")
    ('1 row', '2,000 rows')
    """
    return f"{value:,.0f} {one if value == 1 else many}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Join with commas and an "and"; many are cut short.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    kept = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return " and ".join([", ".join(kept[:-1]), kept[-1]]) if len(kept) > 1 else "".join(kept)


def number(value: float, decimals: int = 3) -> str:
    """A number, or a dash for one that is not finite."""
    return f"{value:.{decimals}f}" if np.isfinite(value) else "–"


def percent(share: float) -> str:
    """A share for readers; a digit more where it matters.

    >>> percent(0.917), percent(0.9954), percent(float("nan"))
    ('92 %', '99.5 %', '–')
    """
    if not np.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %" if share in (0, 1) or 0.01 <= share <= 0.99 else f"{100 * share:.1f} %"


def quoted(label: str) -> str:
    """A label within a sentence: numbers as they are, text in quotes."""
    label = short_label(str(label), 40)
    return label if label.replace(".", "").isdigit() else f"“{label}”"


def units(value: float) -> str:
    """A number in the units of a target: four digits that count.

    >>> units(12345.6), units(0.0123456), units(0.0), units(float("nan"))
    ('12,346', '0.01235', '0', '–')
    """
    if not np.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def head_name(candidate: str) -> str:
    """A head as it was tried.

    >>> head_name("linear 0.003"), head_name("gaussian 1e+06")
    ('linear, weight decay 0.003', 'Gaussian, 1,000,000 pseudo-samples')
    """
    head, _, setting = candidate.partition(" ")
    text = f"{float(setting):,.0f}" if float(setting) >= 1 else f"{float(setting):g}"
    kinds = {"linear": "linear, weight decay {}", "mlp": "MLP, {} epochs", "gaussian": "Gaussian, {} pseudo-samples"}
    return kinds.get(head, head + ", {}").format(text)
