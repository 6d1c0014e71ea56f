"""What was found out about transfer on one data set, as plain data, and its file: diagnosis.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.diagnostics import (
    ClassGrid,
    Dependence,
    Gaussianity,
    Memorisation,
    MinorityGap,
    SourceDiagnostics,
    Stability,
    UniqueFeature,
)
from ecrt.disk import write_json
from ecrt.estimators.selection import Selection
from ecrt.runs.diagnosis_words import findings, recommendation
from ecrt.runs.findings import Finding

__all__ = ["DIAGNOSIS_FILE", "Diagnosis"]

DIAGNOSIS_FILE = "diagnosis.json"
FORMAT = 1
FIGURES_ONLY = {"null", "projections", "minority", "weights", "seen", "held_out", "quantiles"}
"""Arrays that only figures need."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """Answers to whether, and why, transfer helps here.

    Attributes
    ----------
    title : what the data are.
    labels, counts, minority : classes, their rows, and which of them are minority.
    features : names of the features, where columns have them.
    options : of the transfer that was examined: the best that was tried, even if it was not chosen.
    demixing, n_sources, n_demixed : its de-mixing, sources, and classes de-mixed on.
    augmentation : how it draws synthetic samples; "none" where it draws none.
    selection : does transfer help, and by how much.
    theory : the conditions of the theorem, among others.
    dependence, gaussianity, stability, grids : of its sources.
    memorisation : ``None`` where it cannot be told; ``memorisation_of`` says whose encoder it is about.
    unique : ``None`` where there are too few rows.
    gap : sources against features on held-out rows of the minority; ``None`` where none could be held out.
    columns : how columns were read, cells of ``ecrt.data.column_rows``.
    """

    title: str
    labels: NDArray[Any]
    counts: NDArray[np.int64]
    minority: NDArray[np.bool_]
    features: tuple[str, ...]
    options: dict[str, Any]
    demixing: str
    n_sources: int
    n_demixed: int
    augmentation: str
    selection: Selection
    theory: SourceDiagnostics
    dependence: Dependence
    gaussianity: Gaussianity
    stability: Stability
    grids: tuple[ClassGrid, ...]
    memorisation: Memorisation | None
    memorisation_of: str
    unique: UniqueFeature | None
    gap: MinorityGap | None
    columns: tuple[tuple[str, ...], ...] = ()

    @property
    def recommendation(self) -> str:
        """What to do, in plain words."""
        return recommendation(self)

    @property
    def findings(self) -> dict[str, Finding]:
        """A finding for each question, by its short name."""
        return findings(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything but what only figures need, as JSON has it; the same seed gives the same."""
        measured = {
            name: _plain(getattr(self, name))
            for name in ("theory", "dependence", "gaussianity", "stability", "grids", "memorisation", "unique", "gap")
        }
        return {
            "format": FORMAT,
            "title": self.title,
            "rows": int(self.counts.sum()),
            "columns": _plain(self.columns),
            "classes": [str(label) for label in self.labels],
            "minority": [str(label) for label in self.labels[self.minority]],
            "recommendation": self.recommendation,
            "transfer": self.selection.transfer,
            "findings": {name: asdict(finding) for name, finding in self.findings.items()},
            "examined": _plain(self.options) | {"sources": self.n_sources, "demixed_on": self.n_demixed},
            "selection": _without(_plain(self.selection), {"seconds"}),
            **measured,
        }

    def write(self, folder: str | Path) -> Path:
        """Write ``diagnosis.json``; gives its path."""
        path = Path(folder) / DIAGNOSIS_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.as_dict())
        return path


def _plain(value: Any) -> Any:
    """Records, arrays and NumPy numbers as what JSON has; what is not finite becomes null."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(entry) for name, entry in vars(value).items() if name not in FIGURES_ONLY}
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(entry) for entry in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _without(value: Any, names: set[str]) -> Any:
    """The same without entries of these names, at any depth: times differ from run to run."""
    if isinstance(value, dict):
        return {name: _without(entry, names) for name, entry in value.items() if name not in names}
    return [_without(entry, names) for entry in value] if isinstance(value, list) else value
