"""Equal tuning for the methods of the recipe arxiv: as many settings of each, chosen on held-out training rows.

Every method is tried with the same settings, drawn at random; what only one method has (the share of synthetic samples
of ECRT and of the GAN, FOCAL's exponent, LDAM's margin, VAT's radius) is drawn beside them. A
setting is fitted on four fifths of the training rows and measured on the last fifth, weighted as if a label were drawn
first: the test rows play no part. ``arxiv.TUNED`` holds what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ecrt.data import ClassRoles, assign_roles, stratified_holdout
from ecrt.estimators import ECRTClassifier
from ecrt.estimators.inputs import resolve_device
from ecrt.estimators.options import demix_configs, label_head_config
from ecrt.stages import DemixResult, Labelled, choose_label_head, demix_labels
from paper.data import load_arxiv
from paper.experiments.arxiv import COMMON, METHODS
from paper.experiments.arxiv_rivals import RIVALS, VAT, choose_rival

__all__ = ["N_SETTINGS", "cells", "draw_setting", "run_cell", "summarise"]

Row = dict[str, Any]

N_SETTINGS = 16
"""Settings tried of each method."""


def draw_setting(number: int) -> Row:
    """The same numbers give the same settings, whatever the method."""
    rng = np.random.default_rng(number)
    setting = {
        "learning_rate": float(np.exp(rng.uniform(np.log(5e-5), np.log(1e-3)))),
        "weight_decay": float(np.exp(rng.uniform(np.log(1e-3), np.log(1.0)))),
        "head_dropout": float(rng.uniform(0.1, 0.7)),
        "head_hidden": [int(rng.choice([512, 1024, 1536]))],
        "epochs": int(rng.choice([6, 10, 14])),
        "augmentation_weight": float(rng.choice([0.1, 0.2, 0.3, 0.5])),
        "gamma": float(rng.choice([0.5, 1.0, 2.0])),
        "largest_margin": float(rng.choice([0.25, 0.5, 1.0])),
        "epsilon": float(rng.choice([0.02, 0.05, 0.1, 0.2])),
    }
    return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in setting.items()}


def settings_of(method: str, number: int) -> Row:
    """A drawn setting as options of a method; what means nothing to it is left out."""
    setting = draw_setting(number)
    own = {name: setting.pop(name) for name in ("gamma", "largest_margin", "epsilon")}
    if "augmentation_weight" in METHODS[method]:
        del setting["augmentation_weight"]
    for loss, name in (("focal", "gamma"), ("ldam", "largest_margin")):
        if METHODS[method].get("head_loss") == loss:
            setting["head_loss_options"] = {name: own[name]}
    return setting | ({"epsilon": own["epsilon"]} if method == VAT else {})


def cells(smoke: bool) -> Iterable[Row]:
    """Every method with every setting."""
    for number in range(1 if smoke else N_SETTINGS):
        for method in ("ECRT",) if smoke else METHODS:
            yield {"method": method, "setting": number, "max_train": 6000 if smoke else None}


def run_cell(*, method: str, setting: int, max_train: int | None) -> Row:
    """Held-out loss of a method under one setting; nothing is refitted, and no test row is read."""
    options = COMMON | {"demixing": "linear"} | METHODS[method] | settings_of(method, setting)
    if max_train is not None:
        options |= {"epochs": 2, "head_hidden": [64]}
    z, labelled, roles, train_rows, held_out_rows = _rows(max_train)
    s, demixed = _sources(options["demixing"], max_train)
    rng, device = np.random.default_rng(0), resolve_device("auto")
    if method in RIVALS:
        choice, *_ = choose_rival(
            method, options, s, demixed, labelled, train_rows, held_out_rows, roles, rng, device
        )  # fmt: skip
    else:
        config = label_head_config(ECRTClassifier(**options), *z.shape)
        choice, *_ = choose_label_head(
            s, demixed, labelled, train_rows, held_out_rows, roles, config, rng, device
        )  # fmt: skip
    return {"options": settings_of(method, setting), "held_out_bce": min(choice.candidates.values()),
            "best_epoch": choice.setting}  # fmt: skip


@lru_cache(maxsize=1)
def _rows(
    max_train: int | None,
) -> tuple[NDArray[np.float64], Labelled, ClassRoles, NDArray[np.int64], NDArray[np.int64]]:
    """Training rows, their labels, and which of them are held out."""
    data = load_arxiv()
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(data.y_train))[:max_train])
    labelled = Labelled(sparse.csr_array(data.y_train[rows].astype(np.int8)))
    roles = assign_roles(
        labelled.counts, data.names, minority=COMMON["minority"], encode_on="majority", demix_on="majority"
    )
    return data.X_train[rows].astype(np.float64), labelled, roles, *stratified_holdout(labelled.rarest, 0.2, rng)


@lru_cache(maxsize=2)
def _sources(demixing: Literal["none", "linear"], max_train: int | None) -> tuple[NDArray[np.float64], DemixResult]:
    """Sources of the training rows; linear de-mixing has nothing to tune."""
    z, labelled, roles, train_rows, _ = _rows(max_train)
    config = demix_configs(ECRTClassifier(demixing=demixing), *z.shape)[0]
    demixed = demix_labels(z, labelled, train_rows, roles, config, np.random.default_rng(0), resolve_device("cpu"))
    return demixed.sources(z), demixed


def summarise(rows: list[Row]) -> list[Row]:
    """The setting of each method with the lowest held-out loss, beside the median over settings."""
    lines = []
    for method in METHODS:
        mine = [row for row in rows if row["cell"]["method"] == method]
        if mine:
            best = min(mine, key=lambda row: float(row["held_out_bce"]))
            losses = [row["held_out_bce"] for row in mine]
            lines.append({"what": method, "settings": len(mine), "held_out_bce": best["held_out_bce"],
                          "median": float(np.median(losses)), **best["options"]})  # fmt: skip
    return lines
