"""Can a diagnosis tell whether transfer may be trusted? Twins with and without a feature unique to the minority."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ecrt.data import rare_feature_data
from ecrt.estimators import ECRTClassifier
from ecrt.runs import diagnose
from ecrt.stages import Linear, Parametric

__all__ = ["cells", "run_cell", "summarise"]

Row = dict[str, Any]

FIRST_SEED = 400
"""Earlier seeds were looked at when the generator and the veto of the minority were made."""


def cells(smoke: bool) -> Iterable[Row]:
    """Both twins of 20 seeds; a trial run has one."""
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if smoke else 20)):
        for unique in (True,) if smoke else (True, False):
            yield {"seed": seed, "unique": unique, "trials": 4 if smoke else 18}


def run_cell(*, seed: int, unique: bool, trials: int) -> Row:
    """Diagnose one data set.

    As many sources as the theorem allows for 18 frequent classes, and a head that is fitted in a moment; with these
    fixed, whether to de-mix at all is the one question left to selection.
    """
    data = rare_feature_data(unique=unique, rng=np.random.default_rng(seed))
    clf = ECRTClassifier(
        demixing=Linear(pseudo_samples=9.0, n_sources=8, rotation="discriminant"),
        augmentation=Parametric(pseudo_samples=9.0),
        head="gaussian",
        device="cpu",
    )
    found = diagnose(data.z, data.y, estimator=clf, trials=trials, refits=2, random_state=seed)
    if found.unique is None or found.gap is None:
        raise RuntimeError("Every class of the twins has rows enough for every question.")
    return {
        "flagged": found.unique.found,
        "variance_ratio": found.unique.ratio,
        "p_value": found.unique.p_value,
        "transfer": found.selection.transfer,
        "vetoed": found.selection.vetoed,
        "gain": found.selection.gain,
        "sources_over_features": found.gap.gain,
        "recommended": found.recommendation == "use",
        "answers": {name: finding.answer for name, finding in found.findings.items()},
    }


def summarise(rows: list[Row]) -> list[Row]:
    """How often each twin is flagged, and transfer chosen on it."""
    table = []
    for unique, name in ((True, "feature unique to the minority"), (False, "its twin without")):
        of = [row for row in rows if row["cell"]["unique"] == unique]
        if not of:
            continue
        table.append({
            "what": name,
            "runs": len(of),
            "flagged": sum(row["flagged"] for row in of),
            "transfer_chosen": sum(row["transfer"] for row in of),
            "recommended": sum(row["recommended"] for row in of),
            "median_variance_ratio": float(np.median([row["variance_ratio"] for row in of])),
            "median_gain": float(np.median([row["gain"] for row in of])),
            "median_sources_over_features": float(np.median([row["sources_over_features"] for row in of])),
        })  # fmt: skip
    return table
