"""What was found out about transfer on one data set, as plain data, and its file: diagnosis.json.

Answers are codes with the numbers behind them; ``ecrt.report`` puts them into words.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

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
from ecrt.selection import Selection

DIAGNOSIS_FILE = "diagnosis.json"
FORMAT = 1
FIGURES_ONLY = {"null", "projections", "minority", "weights", "seen", "held_out", "quantiles"}
"""Arrays that only figures need."""

STABLE, UNSTABLE = 0.95, 0.8
"""Mean correlations of matching sources from which, and below which, fits agree and do not."""

Answer = Literal["yes", "partly", "no", "cannot tell"]
Recommendation = Literal["use", "use with care", "do not use"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes
    ----------
    answer : in one word.
    numbers : that it rests on, by name.
    harmless : whether the answer, even a no, is no cause for worry.
    because : which case it is, where an answer has several; empty for the usual one.
    """

    answer: Answer
    numbers: dict[str, Any] = field(default_factory=dict)
    harmless: bool = False
    because: str = ""


def theory_finding(n_sources: int, n_classes: int, enough_classes: bool, smallest_singular_value: float) -> Finding:
    """Whether the conditions of the identification theorem hold: 2 q + 1 classes for q sources, that differ enough."""
    numbers = {
        "n_sources": n_sources, "needed": 2 * n_sources + 1, "n_classes": n_classes,
        "most_sources": (n_classes - 1) // 2, "smallest_singular_value": smallest_singular_value,
    }  # fmt: skip
    if not enough_classes:
        return Finding("no", numbers, harmless=True, because="few classes")
    if smallest_singular_value > 0:
        return Finding("yes", numbers)
    return Finding("no", numbers, harmless=True, because="shared prior")


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
    memorisation : ``None`` where it is not known; ``memorisation_of`` says which rows an encoder has seen: those that
        were "marked", or those of the encoder that was "trained here"; "unknown" where neither is so.
    unique : ``None`` where there are too few rows.
    gap : sources against features on held-out rows of the minority; ``None`` where none could be held out.
    columns : how columns were read, rows of ``ecrt.data.column_rows``.
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
    memorisation_of: Literal["marked", "trained here", "unknown"]
    unique: UniqueFeature | None
    gap: MinorityGap | None
    columns: tuple[tuple[str, ...], ...] = ()

    @property
    def harmed(self) -> bool:
        """Whether held-out rows of the rare classes are worse off with transfer."""
        return self.selection.vetoed or (self.gap is not None and self.gap.high < 0)

    @property
    def recommendation(self) -> Recommendation:
        """Whether to use ECRT on these data."""
        if not self.selection.transfer or self.harmed:
            return "do not use"
        return "use with care" if self.unique is not None and self.unique.found else "use"

    @property
    def findings(self) -> dict[str, Finding]:
        """A finding for each question, by its short name."""
        return {
            "transfer": Finding("yes" if self.selection.transfer else "no"),
            "theory": theory_finding(
                self.n_sources, self.n_demixed, self.theory.enough_classes, self.theory.smallest_singular_value
            ),
            "dependence": self._dependence(),
            "gaussianity": self._gaussianity(),
            "stability": self._stability(),
            "gridding": self._gridding(),
            "memorisation": Finding("cannot tell", harmless=True)
            if self.memorisation is None
            else Finding("no" if self.memorisation.memorised else "yes"),
            "unique feature": self._unique_feature(),
            "features or sources": self._features_or_sources(),
        }

    def _dependence(self) -> Finding:
        told, n_classes = self.dependence.tested, len(self.dependence.classes)
        if self.n_sources < 2:
            return Finding("yes", because="one source")
        if not told:
            return Finding("cannot tell", {"n_classes": n_classes})
        after, before = self.dependence.dependent(), self.dependence.dependent(after=False)
        numbers = {
            "tested": len(told), "too_few": n_classes - len(told), "by_sources": len(after), "by_features": len(before),
            "rare": [str(one.label) for one in after if one.minority],
            "rare_tested": any(one.minority for one in told),
        }  # fmt: skip
        return Finding("yes" if not after else "partly" if len(after) <= len(told) / 2 else "no", numbers)

    def _gaussianity(self) -> Finding:
        shapes, strong = self.gaussianity.sources, self.gaussianity.strong
        if not shapes:
            return Finding("cannot tell")
        beyond = sum(one.p_value < 0.05 for one in shapes)
        numbers = {
            "n_sources": len(shapes), "beyond": beyond, "strong": len(strong), "skewness": shapes[0].skewness,
            "excess_kurtosis": shapes[0].excess_kurtosis,
        }  # fmt: skip
        if not strong:
            return Finding("yes" if beyond == 0 else "partly", numbers, harmless=beyond > 0)
        return Finding("no" if len(strong) > len(shapes) / 2 else "partly", numbers)

    def _stability(self) -> Finding:
        lowest = self.stability.lowest
        if not np.isfinite(lowest):
            return Finding("cannot tell")
        answer: Answer = "yes" if lowest >= STABLE else "partly" if lowest >= UNSTABLE else "no"
        return Finding(answer, {"mean": self.stability.mean, "lowest": lowest, "pairs": len(self.stability.pairs)})

    def _gridding(self) -> Finding:
        if not self.grids:
            return Finding("cannot tell", harmless=True)
        coarse, rarest = sum(grid.coarse for grid in self.grids), self.grids[0]
        numbers = {
            "coarse": coarse, "n_classes": len(self.grids), "rarest": str(rarest.label), "distinct": rarest.distinct,
            "gap": rarest.gap,
        }  # fmt: skip
        answer: Answer = "yes" if not coarse else "no" if coarse == len(self.grids) else "partly"
        return Finding(answer, numbers, harmless=coarse > 0 and self.augmentation != "permutation")

    def _unique_feature(self) -> Finding:
        if self.unique is None:
            return Finding("cannot tell")
        numbers = {
            "by_chance": float(np.quantile(self.unique.null, 0.95)),
            "heaviest": [
                self.features[at] if self.features else f"column {at}"
                for at in np.argsort(-np.abs(self.unique.weights), kind="stable")[:3]
            ],
        }
        return Finding("no" if self.unique.found else "yes", numbers)

    def _features_or_sources(self) -> Finding:
        if self.gap is None:
            return Finding("cannot tell")
        if self.gap.high < 0:
            return Finding("no")
        return Finding("yes" if self.gap.low > 0 else "partly", harmless=self.gap.low <= 0)

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
            "findings": {name: _plain(asdict(finding)) for name, finding in self.findings.items()},
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
