"""What the page on the paper is made from: result files in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ecrt.errors import InputError
from paper.statistics import observations

__all__ = ["PaperResults", "number", "plus_minus"]

Row = dict[str, Any]


class PaperResults:
    """Result files of ``python -m paper``, by the name of their experiment.

    Parameters
    ----------
    folder : holds NAME.json files; those that are missing have not been run.
    with_trials : whether trial runs count as well; they are named in ``trials`` in any case.
    """

    def __init__(self, folder: Path, *, with_trials: bool = False) -> None:
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}: run an experiment first, such as python -m paper toy.")
        self.folder = folder
        self.files: dict[str, Row] = {}
        self._entries: dict[str, list[Row]] = {}
        self.trials: list[str] = []
        for file in sorted(folder.glob("*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or "summary" not in content or "rows" not in content:
                continue
            name = file.stem.removesuffix(".smoke")
            if content.get("command", "").endswith("--smoke"):
                if name in self.files:  # the full run comes first in the alphabet
                    continue
                self.trials.append(name)
                if not with_trials:
                    continue
            self.files[name] = content

    def summary(self, name: str, **wanted: Any) -> list[Row]:
        """Lines of an experiment's table that have these entries; none where it has not been run."""
        lines = self.files.get(name, {}).get("summary", [])
        return [line for line in lines if wanted.items() <= line.items()]

    def entries(self, name: str) -> list[Row]:
        """All runs of an experiment, flattened."""
        if name not in self._entries:
            self._entries[name] = observations(self.files.get(name, {}).get("rows", []))
        return self._entries[name]

    def value(self, name: str, metric: str, **wanted: Any) -> float | None:
        """One number of one line."""
        lines = [line for line in self.summary(name, **wanted) if metric in line]
        return None if not lines else float(lines[0][metric])

    def rows(self, name: str, **wanted: Any) -> list[Row]:
        """Cells of an experiment whose options are these."""
        return [row for row in self.files.get(name, {}).get("rows", []) if wanted.items() <= row["cell"].items()]


def number(value: float | None, decimals: int = 3) -> str:
    """A number as it is shown; a dash for none.

    >>> number(0.12345), number(None)
    ('0.123', '–')
    """
    return "–" if value is None else f"{value:.{decimals}f}"


def plus_minus(gain: float, half_width: float | None, decimals: int = 4) -> str:
    """A signed number with its interval, where there is one.

    >>> plus_minus(0.02, 0.01, 2), plus_minus(-0.02, None, 2)
    ('+0.02 ± 0.01', '-0.02')
    """
    return f"{gain:+.{decimals}f}" + ("" if half_width is None else f" ± {half_width:.{decimals}f}")
