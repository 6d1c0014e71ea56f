"""A figure of the page."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["FigureBlock"]


@dataclass(frozen=True)
class FigureBlock:
    """Panels with the sentence that says what to see; a wide one scrolls in its own box on a phone."""

    title: str
    panels: tuple[Markup, ...]
    caption: str
    wide: bool = False
