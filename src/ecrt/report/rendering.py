"""What every page shares: figures with their sentence, and how a template is filled."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["FigureBlock", "environment", "fill", "short", "short_label"]


@dataclass(frozen=True)
class FigureBlock:
    """Panels with the sentence that says what to see; a wide one scrolls in its own box on a phone."""

    title: str
    panels: tuple[Markup, ...]
    caption: str
    wide: bool = False


def environment() -> Environment:
    """Templates of this package; whatever is filled in is escaped, and nothing may be missing."""
    return Environment(
        loader=PackageLoader("ecrt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def fill(template: str, page: Any) -> str:
    """A page with our own script, the only one that may run in it; nothing may be loaded."""
    templates = environment()
    script = templates.get_template("model.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return templates.get_template(template).render(page=page, script=Markup(script), digest=digest)


def short(text: str, length: int = 60) -> str:
    """Text on one line, without what cannot be printed, cut with an ellipsis.

    >>> short("a rather long label", 9)
    'a rather…'
    """
    line = _one_line(text)
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def short_label(label: str, length: int) -> str:
    """The same with the middle cut out: many labels differ only at the end.

    >>> short_label("species of bird 17", 12)
    'species…d 17'
    """
    line = _one_line(label)
    tail = (length - 1) // 3 + 1
    return line if len(line) <= length else line[: length - 1 - tail].rstrip() + "…" + line[-tail:].lstrip()


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "(empty)"
