"""Do the sources behave as the theory asks? Measured for every class, whether it took part in de-mixing or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ecrt.flows import ClassPrior, Demixer
from ecrt.metrics import hsic, max_abs_correlation

__all__ = ["ClassDiagnosis", "SourceDiagnostics", "SourceRows", "diagnose_sources", "theory_matrix"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

ROUND_TRIPS = 256
"""Rows that are sent through the de-mixing and back."""


@dataclass(frozen=True, eq=False)
class SourceRows:
    """What has to be kept of some rows to diagnose their sources, now or later.

    Attributes
    ----------
    s, y : sources and class indices.
    log_volume : what is left of the log-likelihood of each row without that of its sources.
    first, spread : features of the first rows, for the round trip, and the standard deviation of all.
    """

    s: Array
    y: Labels
    log_volume: Array
    first: Array
    spread: Array

    @classmethod
    @torch.no_grad()
    def of(cls, demixer: Demixer, z: Array, y: Labels) -> SourceRows:
        """Rows of features z and classes y, in one pass through the de-mixing."""
        # torch cannot mark memory as read-only, nor walk it backwards; nothing here writes to z.
        rows = torch.from_numpy(np.require(z, requirements=["C", "W"]))
        parts = [demixer.sources_and_volume(part) for part in rows.split(8192)]
        s, log_volume = (torch.cat(values).numpy() for values in zip(*parts, strict=True))
        return cls(s, y, log_volume, z[:ROUND_TRIPS].copy(), z.std(axis=0))


@dataclass(frozen=True)
class ClassDiagnosis:
    """Dependence left between the sources of one class; NaN where it has too few samples to tell."""

    label: Any
    n_samples: int
    demixed: bool
    max_correlation: float
    hsic: float
    log_likelihood: float


@dataclass(frozen=True, kw_only=True)
class SourceDiagnostics:
    """What was measured after a fit.

    Attributes
    ----------
    classes : one entry for each class.
    round_trip_error : largest difference between z and f^-1(f(z)), rest coordinates at their mean aside, relative to
        the spread of z.
    enough_classes : at least 2 q + 1 de-mixing classes for q sources, as the theorem asks of Gaussian sources.
    smallest_singular_value : of the theorem's matrix L from the fitted class priors; 0 where there are too few classes.
    """

    classes: tuple[ClassDiagnosis, ...]
    round_trip_error: float
    enough_classes: bool
    smallest_singular_value: float

    @property
    def theory_met(self) -> bool:
        """Whether the theorem's conditions on the classes hold."""
        return self.enough_classes and self.smallest_singular_value > 0


def theory_matrix(prior: ClassPrior, labels: Labels) -> Array:
    r"""Natural parameters of the classes, :math:`(\mu / v, -1 / 2v)` per source, less those of the first class.

    The identification theorem asks 2 q of these columns to be linearly independent. Rows are divided by their root mean
    square, so that the singular values do not depend on the units of the sources.
    """
    with torch.no_grad():
        precision = 1 / prior.variance_md[labels].double()
        natural = torch.cat([prior.mean_md[labels].double() * precision, -0.5 * precision], dim=1).cpu().numpy()
    differences = (natural[1:] - natural[0]).T
    scale = (
        np.sqrt((differences**2).mean(axis=1, keepdims=True)) if differences.size else np.ones((len(differences), 1))
    )
    return np.asarray(differences / np.where(scale > 0, scale, 1.0))


def diagnose_sources(
    demixer: Demixer, measured: SourceRows, classes: NDArray[Any], demixed_on: NDArray[np.bool_]
) -> SourceDiagnostics:
    """Measure independence, likelihood, invertibility and the theorem's conditions.

    Parameters
    ----------
    measured : the rows to measure on.
    classes : labels of the classes.
    """
    s, y = measured.s, measured.y
    n_sources = s.shape[1]
    n_demixed = int(demixed_on.sum())
    enough = n_demixed >= 2 * n_sources + 1
    smallest = 0.0
    if enough and isinstance(demixer.prior, ClassPrior):
        smallest = float(np.linalg.svd(theory_matrix(demixer.prior, np.flatnonzero(demixed_on)), compute_uv=False)[-1])
    with torch.no_grad():
        log_likelihood = np.concatenate([
            demixer.prior(s_part, y_part).numpy()
            for s_part, y_part in zip(torch.from_numpy(s).split(8192), torch.from_numpy(y).split(8192), strict=True)
        ]) + measured.log_volume  # fmt: skip
    found = []
    for index, label in enumerate(classes.tolist()):
        rows = np.flatnonzero(y == index)
        found.append(
            ClassDiagnosis(
                label=label,
                n_samples=len(rows),
                demixed=bool(demixed_on[index]),
                max_correlation=max_abs_correlation(s[rows]) if len(rows) else float("nan"),
                hsic=hsic(s[rows]) if len(rows) else float("nan"),
                log_likelihood=float(log_likelihood[rows].mean()) if len(rows) else float("nan"),
            )
        )
    return SourceDiagnostics(
        classes=tuple(found),
        round_trip_error=_round_trip_error(demixer, measured),
        enough_classes=enough,
        smallest_singular_value=smallest,
    )


@torch.no_grad()
def _round_trip_error(demixer: Demixer, measured: SourceRows) -> float:
    """With the rest at its mean z itself cannot come back, but its sources must: compare after a second trip."""
    s = measured.s[:ROUND_TRIPS]
    restored = demixer.inverse(torch.from_numpy(s))
    if demixer.linear.n_rest == 0:
        spread = np.maximum(measured.spread, 1e-12)
        return float((np.abs(restored.numpy() - measured.first) / spread).max(initial=0.0))
    return float(np.abs(demixer(restored).numpy() - s).max(initial=0.0))
